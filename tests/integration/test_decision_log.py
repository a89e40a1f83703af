"""OPA's own decision log, with what `system.log` masks: nothing of a Secret's data is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tools.servers.http import request
from tools.servers.processes import ProcessLauncher
from tools.servers.secured_opa import RunningOpa, start_opa

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_DATA = "aHVudGVyMg=="  # what must be nowhere
_SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "db",
        "namespace": "shop",
        "annotations": {_LAST_APPLIED: json.dumps({"data": {"password": _DATA}}), "team": "kept"},
    },
    "data": {"password": _DATA},
    "stringData": {"password": _DATA},
}


@dataclass
class Logging:
    """An OPA that logs decisions to its standard error."""

    opa: RunningOpa

    def ask(self, role: str, path: str, body: object, method: str = "POST") -> None:
        """Ask for a decision, or write."""
        token = self.opa.token_files[role].read_text(encoding="utf-8")
        url = f"{self.opa.url}/v1/data/{path}"
        text = None if body is None else json.dumps(body)
        answer = request(method, url, ca_file=self.opa.ca_file, token=token, body=text)
        assert answer.status in (200, 204)

    def logged(self) -> list[dict[str, Any]]:
        """Return the decisions on the log."""
        lines = (json.loads(line) for line in self.opa.server.logs().splitlines())
        return [line for line in lines if line.get("type") == "openpolicyagent.org/decision_logs"]


@pytest.fixture
def logging(tmp_path: Path) -> Iterator[Logging]:
    """As a process, whose log is a file that is there at once."""
    logs = ["--set=decision_logs.console=true"]
    opa = start_opa(ProcessLauncher(), tmp_path, logs, by_bundle=False)
    yield Logging(opa)
    opa.server.stop()


async def test_secrets_are_logged_without_their_data_and_other_kinds_whole(
    logging: Logging,
) -> None:
    kind = {"group": "", "version": "v1", "kind": "Secret"}
    review = {"kind": kind, "object": _SECRET, "oldObject": _SECRET, "uid": "u-1"}
    config_map = {"kind": "ConfigMap", "data": {"color": "blue"}}
    logging.ask("admission", "io/k8s/federation/admission", {"input": _SECRET})
    logging.ask("admission", "kube_sync/metadata/pipeline", {"input": {"request": review}})
    logging.ask("admission", "kube_sync/metadata/pipeline", {"input": {"items": [_SECRET]}})
    logging.ask("admission", "io/k8s/federation/admission", {"input": config_map})
    logging.ask("replicator", "kubernetes/secrets", {"shop": {"db": _SECRET}}, "PUT")
    for path in ("kubernetes/secrets", "kubernetes/secrets/shop/db", "kubernetes"):
        logging.ask("replicator", path, None, "GET")
    await eventually(lambda: len(logging.logged()), 7)
    decisions = logging.logged()
    assert _DATA not in json.dumps(decisions)
    assert decisions[0]["input"]["metadata"]["annotations"] == {"team": "kept"}
    assert set(decisions[0]["input"]) == {"apiVersion", "kind", "metadata"}
    assert decisions[1]["input"]["request"]["uid"] == "u-1"
    assert decisions[3]["input"] == config_map
    assert [decision["path"] for decision in decisions if "result" in decision] == []
