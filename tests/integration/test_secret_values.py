"""A policy decides by the values of Secrets, and fails on them: they are told nowhere."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tools.demo.components import start_service
from tools.demo.fleet import cluster, replica_set
from tools.servers.http import get
from tools.servers.running import RunningServer
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

KUBE_SYNC = Path(sys.executable).with_name("kube-sync")
VALUE = "s3cr3t-v4lu3"
CODED = base64.b64encode(VALUE.encode()).decode()
# Compares it, and hands it to what fails on it: builtins, keys of an object, two outputs of a rule.
POLICY = """package io.k8s.federation.admission

coded := data.kubernetes.secrets["{namespace}"].key.data.password

value := base64.decode(coded)

annotations["federation.kubernetes.io/replica-set-preferences"] := json.marshal({{
	"clusters": {{name: {{"weight": 1}} | some name in chosen}}
}})

chosen contains name if {{
	some name, cluster in data.kubernetes.clusters["{namespace}"]
	wanted := substring(value, 0, 3)
	cluster.metadata.labels.region == wanted
}}

errors contains "it is no JSON" if json.unmarshal(value)

errors contains "it is no number" if to_number(value) > 1

errors contains "no time" if time.parse_rfc3339_ns(value) > 1

errors contains "no key" if {{
	input.metadata.name == "keys"
	count({{key: found | some key in [value, coded]; some found in [1, 2]}}) > 0
}}

errors contains "two outputs" if {{
	input.metadata.name == "outputs"
	one_of_two(1) == 1
}}

one_of_two(_) := value

one_of_two(_) := coded
"""


NAMES = ("web", "keys", "outputs")


def _cluster(name: str) -> dict[str, Any]:
    found = cluster(name, name, "1")
    found["metadata"]["labels"] = {"region": name}
    return found


class World:
    """A namespace with a Secret, a policy that reads it, and workloads that it is asked about."""

    def __init__(self, stack: RunningStack, opa: RunningOpa, namespace: str, folder: Path) -> None:
        self.stack, self.opa, self.namespace, self.folder = stack, opa, namespace, folder
        self.ledger = folder / "ledger.db"
        self._apply("Secret", "key", {"data": {"password": CODED}})
        self._apply("ConfigMap", "p", {"data": {"p.rego": POLICY.format(namespace=namespace)}})
        for manifest in (*map(replica_set, NAMES), *(_cluster(name) for name in ("s3c", "other"))):
            manifest["metadata"]["namespace"] = namespace
            stack.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))
        self.configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admin"])},
            "opa": opa.settings(),
            "coordination": {"namespace": namespace},
            "decisions": {**opa.replicator.server(), **opa.replicator.client()},
            "policies": {"namespaces": [namespace]},
            "ledger": {"path": str(self.ledger)},
            "replicate": {
                "namespaces": [namespace],
                "resources": [
                    {"group": "apps", "version": "v1", "resource": "replicasets"},
                    {"group": "", "version": "v1", "resource": "secrets", "secrets": True},
                    {
                        "group": "multicluster.x-k8s.io",
                        "version": "v1alpha1",
                        "resource": "clusterprofiles",
                        "as": "clusters",
                    },
                ],
            },
        }
        self.service: RunningServer = start_service("replicate", folder / "r", self.configuration)

    def _apply(self, kind: str, name: str, content: dict[str, Any]) -> None:
        metadata = {"name": name, "namespace": self.namespace}
        manifest = {"apiVersion": "v1", "kind": kind, "metadata": metadata, **content}
        self.stack.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))

    def command(self, *arguments: str) -> str:
        """Return all that a command says."""
        config = str(self.folder / "r" / "config.yaml")
        found = subprocess.run(
            [KUBE_SYNC, *arguments, "--config", config],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return found.stdout + found.stderr

    def board(self, path: str) -> str:
        opa = self.opa.replicator
        token = opa.token_file.read_text(encoding="utf-8")
        return get(f"{opa.url}/v1/board/{path}", ca_file=opa.ca_file, token=token).body.decode()

    def listed(self, kind: str) -> str:
        return self.stack.kubectl("get", kind, f"--namespace={self.namespace}", "--output=json")


@pytest.fixture
def world(stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path) -> Iterator[World]:
    world = World(stack, opa, namespace, tmp_path)
    try:
        yield world
    finally:
        world.service.stop()


@pytest.mark.slow
async def test_values_of_secrets_that_a_policy_may_read_are_told_nowhere(world: World) -> None:
    # Errors of OPA's are quoted, but for the values that rules gave.
    await eventually(lambda: "conflicting values" in world.command("decisions"), True)  # noqa: FBT003
    said = {path: world.board(path) for path in ("fleet", "health", "held", "history?since=0")}
    for name in NAMES:
        where = f"namespace={world.namespace}&name={name}"
        said[f"story {name}"] = world.board(f"story?resource=replicasets.v1.apps&{where}")
        said[f"why {name}"] = world.command("why", f"replicaset/{name}", "-n", world.namespace)
    asked = ("why-not", "replicaset/web", "--cluster=other", "--tries=20", "-n", world.namespace)
    said["why-not web"] = world.command(*asked)
    for command in ("decisions -o json", "history -o json", "plan --remove-cluster s3c"):
        said[command] = world.command(*command.split())
    said["metrics"] = get(f"{world.service.url}/metrics").body.decode()
    said["readyz"] = get(f"{world.service.url}/readyz").body.decode()
    for kind in ("configmaps", "events", "replicasets", "leases"):
        said[kind] = world.listed(kind)
    world.service.stop()
    said["log"] = world.service.logs()
    files = [path for path in world.folder.rglob("ledger.db*") if path.is_file()]
    said["ledger"] = "".join(path.read_bytes().decode("latin-1") for path in files)
    assert [told for told, text in said.items() if VALUE in text or CODED in text] == []
    assert "conflicting values" in said["decisions -o json"]
    assert "decided  s3c" in said["why-not web"]
