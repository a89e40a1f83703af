"""All policy packs at once on real servers: decided, placed, and told to authors of parameters."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.kube.policymaps import STATUS
from kube_sync.opa.packs import BASE, all_packs, write
from tests.eventually import eventually
from tools.demo.components import UNBRAKED
from tools.demo.fleet import FLEET, PREFERENCES, cluster, replica_set
from tools.demo.fleet import namespace as namespace_manifest
from tools.servers.manifests import manifests_of
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, ServerSpec, free_port
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

ROOT = Path(__file__).resolve().parents[2]
COST = "policy.example.com/cost"
REGION = "topology.kubernetes.io/region"
CERTIFIED = "policy.example.com/certifications"
# Names of clusters as the parameters of the packs have them.
CLUSTERS = {
    "paris": ("europe-west9", "4", "pci=3"),
    "milan": ("europe-west8", "3", "pci=2"),
    "oslo": ("europe-north1", "12", "pci=3"),
    "oregon": ("us-west1", "2", "pci=3"),
}


@dataclass
class World:
    stack: RunningStack
    policies: str  # the namespace of policies and parameters
    packs: Path

    def load(self, name: str) -> None:
        """Apply a pack's parameters, then its policy."""
        for manifest in manifests_of(self.packs / name / "parameters.yaml"):
            self.stack.api.apply(manifest)
        modules = {
            file.name: file.read_text(encoding="utf-8")
            for file in (self.packs / name).glob("*.rego")
        }
        self.stack.api.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"policy-{name}", "namespace": self.policies},
                "data": modules,
            }
        )

    def placed(self, name: str, space: str) -> Any:
        found = self.stack.api.get("replicasets", name, space)["metadata"]
        text = (found.get("annotations") or {}).get(PREFERENCES)
        return json.loads(text)["clusters"] if text else None

    def status(self, name: str) -> Any:
        found = self.stack.api.get("configmaps", name, self.policies)["metadata"]
        return json.loads((found.get("annotations") or {}).get(STATUS, "null"))

    def set_parameter(self, name: str, key: str, value: object) -> None:
        """Set a parameter; None removes it."""
        text = None if value is None else json.dumps(value)
        self.stack.api.merge("configmaps", name, {"data": {key: text}}, self.policies)


@pytest.fixture
def world(stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path) -> Iterator[World]:
    """Replicator and remediator with the built-in systems beside the policies; all packs loaded."""
    stack.install_kinds(ROOT / "manifests/crds")
    packs = tmp_path / "packs"
    names = [name for name in all_packs() if name != BASE]
    for name in names:
        write(name, packs, namespace)
    windows = packs / "maintenance-windows/parameters.yaml"
    windows.write_text(windows.read_text(encoding="utf-8").replace("2026-", "2199-"))
    running = start(stack, opa, namespace, tmp_path)
    made = World(stack, namespace, packs)
    for name in [*names, BASE]:
        made.load(name)
    yield made
    running.stop()
    for name in CLUSTERS:
        stack.api.delete("clusterprofiles", name, FLEET)


def start(stack: RunningStack, opa: RunningOpa, policies: str, folder: Path) -> RunningServer:
    port = free_port()
    configuration = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admin"])},
        "opa": opa.settings(),
        "builtin": ["scheduling", "metadata"],  # their modules are in the same OPA
        "replicate": {"namespaces": [FLEET, "payments"]},
        "coordination": {"namespace": policies},
        "policies": {"namespaces": [policies], "labelled": {"namespaces": [policies]}},
        "decisions": opa.replicator.server() | opa.replicator.client(),
        "observe": {"listen": f"127.0.0.1:{port}"},
        "remediate": {**UNBRAKED, "listen": f"127.0.0.1:{free_port()}"},
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    return ProcessLauncher().launch(
        ServerSpec(
            name="run",
            program=str(Path(sys.executable).with_name("kube-sync")),
            arguments=("run", "--config", str(file)),
            folder=folder,
            url=f"http://127.0.0.1:{port}",
            ready_paths=("/readyz",),
        )
    )


async def test_all_packs_decide_together_and_say_what_is_wrong_with_their_parameters(
    world: World,
) -> None:
    api = world.stack.api
    for space in (FLEET, "payments"):
        api.apply(namespace_manifest(space))
    for name, (region, cost, certified) in CLUSTERS.items():
        metadata = {
            "name": name,
            "namespace": FLEET,
            "labels": {REGION: region, COST: cost},
            "annotations": {CERTIFIED: certified},
        }
        api.apply(cluster(name, region, "0") | {"metadata": metadata})
    # Of the namespace: in the EU, certified, on pairs, in two regions; oslo costs too much.
    manifest = replica_set("ledger")
    manifest["metadata"] |= {"namespace": "payments", "annotations": {}}
    api.apply(manifest)
    placed = partial(world.placed, "ledger", "payments")
    await eventually(placed, {"milan": {"weight": 1}, "paris": {"weight": 1}})
    await eventually(lambda: world.status("cost-ceilings"), {"status": "ok"})

    world.set_parameter("cost-ceilings", "celing", 3)
    said = "celing is no parameter; there are ceiling, namespaces"

    def complaint() -> Any:
        status = world.status("cost-ceilings")
        return (status.get("error") or {}).get("message")

    await eventually(complaint, f"{world.policies}/cost-ceilings: {said}")
    world.set_parameter("cost-ceilings", "celing", None)
    await eventually(partial(world.status, "cost-ceilings"), {"status": "ok"})

    # Other parameters, another placement.
    world.set_parameter("disaster-recovery-pairs", "pairs", [["milan", "oregon"]])
    world.set_parameter("data-residency", "namespaces", {})
    await eventually(placed, {"milan": {"weight": 1}, "oregon": {"weight": 1}})
    api.delete("replicasets", "ledger", "payments")
