"""`kube-sync run`: all of it in one process, as on a laptop."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.certificates import write_certificates
from tests.eventually import eventually
from tests.integration.test_pair import PLACED
from tools.demo.components import UNBRAKED
from tools.demo.fleet import FLEET, POLICIES, PREFERENCES, cluster, policy_map
from tools.demo.fleet import namespace as namespace_manifest
from tools.demo.fleet import replica_set as shop_replica_set
from tools.servers.http import get
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, ServerSpec, free_port
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack


@pytest.fixture
def everything(stack: RunningStack, opa: RunningOpa, tmp_path: Path) -> Iterator[RunningServer]:
    """Replicator, remediator and webhook in one process, ready."""
    write_certificates(tmp_path / "certs", ["localhost", "127.0.0.1"])
    port = free_port()
    configuration = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admin"])},
        "opa": opa.settings(),
        "decisions": opa.replicator.server() | opa.replicator.client(),
        "admission": {
            "listen": "127.0.0.1:0",
            "drain_seconds": 0.1,
            "cert_file": str(tmp_path / "certs/tls.crt"),
            "key_file": str(tmp_path / "certs/tls.key"),
        },
        "observe": {"listen": f"127.0.0.1:{port}"},
        "remediate": {**UNBRAKED, "listen": f"127.0.0.1:{free_port()}"},
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    running = ProcessLauncher().launch(
        ServerSpec(
            name="run",
            program=str(Path(sys.executable).with_name("kube-sync")),
            arguments=("run", "--config", str(file)),
            folder=tmp_path,
            url=f"http://127.0.0.1:{port}",
            ready_paths=("/readyz",),
        )
    )
    yield running
    running.stop()


async def test_one_process_replicates_decides_remediates_and_ends_at_sigterm(
    stack: RunningStack, namespace_of_fleet: str, everything: RunningServer, namespace: str
) -> None:
    def apply(manifest: dict[str, Any]) -> None:
        stack.api.apply(manifest)

    manifest = shop_replica_set("web")
    manifest["metadata"]["namespace"] = namespace
    apply(manifest)
    apply(cluster("west", "europe-west1", "2"))
    apply(policy_map(PLACED))

    def placement() -> Any:
        url = f"{stack.apiserver_url}/apis/apps/v1/namespaces/{namespace}/replicasets/web"
        token = stack.kube_tokens["admin"]
        found = json.loads(get(url, ca_file=stack.apiserver_ca_file, token=token).body)
        text = found["metadata"].get("annotations", {}).get(PREFERENCES)
        return sorted(json.loads(text)["clusters"]) if text else None

    def metrics() -> str:
        return get(everything.url + "/metrics").body.decode()

    await eventually(placement, ["west"])
    applied = 'kube_sync_remediations_total{outcome="applied"} 1.0'
    found = await eventually(metrics, lambda text: applied in text)
    stack.api.delete("configmaps", "placement", POLICIES)
    stack.api.delete("clusterprofiles", "west", namespace_of_fleet)
    assert 'web"' not in found  # no object's name is ever a label
    process = everything._process  # type: ignore[attr-defined] # noqa: SLF001 - its exit status
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


@pytest.fixture
def namespace_of_fleet(stack: RunningStack) -> str:
    stack.api.apply(namespace_manifest(FLEET))
    return FLEET
