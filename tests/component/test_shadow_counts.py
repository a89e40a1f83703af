"""A real OPA decides twice, and what the lane would change is what a plan announces."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Opa, Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.requested import FIELD_MANAGER
from kube_sync.inspect.plan import command
from kube_sync.inspect.plan.request import Request
from kube_sync.kube.lease import LEASES
from kube_sync.kube.placementpolicies import KIND, PLACEMENT_POLICIES
from kube_sync.kube.policymaps import STATUS
from kube_sync.objects import ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaClient
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.replicator import staging
from kube_sync.replicator.differences import KINDS
from kube_sync.replicator.replicator import Replicator
from kube_sync.replicator.shadow import Shadow
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, kube_of
from tests.parts import quickly
from tests.unit.async_tools import until
from tests.unit.inspect.plan.fleets import (
    NAMESPACE,
    PLACEMENT,
    POLICY,
    policy,
    replicaset,
    write,
    zoned,
)
from tools.servers.binaries import ensure_binary

BINARY = str(ensure_binary("opa"))
SETTINGS = Settings(opa=Opa(binary=BINARY))
PLACED = 'annotations["federation.kubernetes.io/replica-set-preferences"]'
LATE = 'endswith(input.metadata.name, "1")'
EDITS = {
    "same": POLICY + "\n# other words\n",
    "moves": POLICY.replace("_fit}", '_fit; name != "c1"}'),
    "adds": POLICY.replace("== _zone(input.metadata.annotations)", '!= "nowhere"'),
    "refuses": POLICY.replace("count(_fit) == 0", LATE),
    "leaves": POLICY.replace("count(_fit) > 0", f"count(_fit) > 0\n\tnot {LATE}"),
    "empties": POLICY.replace("some name in _fit", f"some name in _fit; not {LATE}"),
    "conflicts": POLICY + f'\n{PLACED} := {{"clusters": {{}}}} if {LATE}\n',
    "changes": POLICY + f'\nlabels["example.com/late"] := "yes" if {LATE}\n',
}
COUNTED = [
    (("moves", "refuses"), {"moves", "refused"}),
    (EDITS, {"moves", "adds", "refused", "nowhere", "failed", "changes"}),
]
OWNED: Any = {"f:metadata": {"f:annotations": {f"f:{PLACEMENT}": {}}}}
OURS = {"manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": "apps/v1"}


@dataclass
class World:
    """A replicator between a fake API server and a real OPA, over workloads that are settled."""

    api: FakeApiServer
    opa: OpaClient
    hub: DecisionHub
    export: str

    def stage(self, name: str, source: str, stage: str = "shadow") -> None:
        labels = {"kube-sync.io/stage": stage}
        annotations = {"kube-sync.io/stands-for": "placement"}
        metadata = {"labels": labels, "annotations": annotations}
        key = ObjectKey(NAMESPACE, name)
        self.api.put(CONFIGMAPS, key, metadata=metadata, data={"policy.rego": source})

    def stage_object(self, name: str, source: str) -> None:
        spec = {"modules": [{"name": "more.rego", "rego": source}], "stage": "shadow"}
        self.api.put(PLACEMENT_POLICIES, ObjectKey(NAMESPACE, name), spec=spec)

    def staged(self, name: str) -> Any:
        found = self.api.get(PLACEMENT_POLICIES, ObjectKey(NAMESPACE, name))
        return found.get("status", {}).get("staged", {})

    def withdraw(self, name: str) -> None:
        self.api.delete(CONFIGMAPS, ObjectKey(NAMESPACE, name))

    def is_counted(self, name: str) -> bool:
        return "objects" in self.status(name)

    def status(self, name: str) -> Any:
        metadata = self.api.get(CONFIGMAPS, ObjectKey(NAMESPACE, name))["metadata"]
        return json.loads((metadata.get("annotations") or {}).get(STATUS, "{}"))


def settled() -> tuple[list[Any], list[Any]]:
    """Return clusters, and workloads that have what the policy in force decides."""
    chance = random.Random(7)  # noqa: S311 - no secret is made of it
    zones = {f"c{n}": ("eu", "us", "asia")[n % 3] for n in range(6)}
    workloads = []
    for n in range(40):
        zone = chance.choice(["eu", "us", "asia"])
        on = [name for name, other in zones.items() if other == zone]
        workload = replicaset(f"w{n}", zone, *on)
        workload["metadata"]["managedFields"] = [
            {**OURS, "fieldsType": "FieldsV1", "fieldsV1": OWNED}
        ]
        workloads.append(workload)
    return [zoned(name, zone) for name, zone in zones.items()], workloads


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[World]:
    monkeypatch.setattr(staging, "Shadow", partial(Shadow, rest=0.05))
    clusters, workloads = settled()
    kinds = {"ReplicaSet": REPLICASETS, "ClusterProfile": CLUSTERS, "ConfigMap": CONFIGMAPS}
    hub, scratch = DecisionHub("test"), ScratchOpa(BINARY)
    async with (
        fake_apiserver() as api,
        kube_of(api, tmp_path) as kube,
        scratch.serving({}, b"{}") as opa,
    ):
        for kind, gvr in {**kinds, "Lease": LEASES}.items():
            api.define(gvr, kind)
        api.define(PLACEMENT_POLICIES, KIND, builtin=False)
        for found in (policy(), *clusters, *workloads):
            metadata = found["metadata"]
            key = ObjectKey(metadata["namespace"], metadata["name"])
            content = {name: part for name, part in found.items() if name in ("metadata", "data")}
            api.put(kinds[found["kind"]], key, **content)
        replicator = Replicator(
            SETTINGS, kube, opa, hub, Readiness(), scratch, shelf=BundleServer()
        )
        task = asyncio.create_task(replicator.run())
        await until(lambda: len(hub.records) == 40 and not hub.held)
        export = write(tmp_path / "fleet", policy(), *clusters, *workloads)
        yield World(api, opa, hub, export)
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize(("edits", "kinds"), quickly(1, COUNTED))
async def test_what_the_shadow_counts_is_what_a_plan_announces(
    world: World, tmp_path: Path, edits: Iterable[str], kinds: set[str]
) -> None:
    before = world.hub.seq
    seen = set()
    for name, source in ((name, EDITS[name]) for name in edits):
        world.stage(name, source)
        await until(partial(world.is_counted, name))
        counted = world.status(name)
        world.withdraw(name)
        candidate = write(tmp_path / f"{name}.json", policy(source))
        request = Request(exported=world.export, files=(candidate,), form="json")
        plan = json.loads((await command.run(request, SETTINGS, print)).text)
        assert counted["objects"] == plan["summary"]["workloads"] == 40
        told = {kind: counted[kind] for kind in KINDS}
        assert told == {kind: plan["summary"][kind] for kind in KINDS}
        seen |= {kind for kind, count in told.items() if count}
    assert seen == kinds
    assert world.hub.seq == before  # what is in force decided nothing anew


async def test_placementpolicy_is_counted_alone_and_together_with_a_configmap(world: World) -> None:
    header = POLICY.partition("\n")[0]
    world.stage_object("late", f'{header}\n\nlabels["example.com/late"] := "yes" if {LATE}\n')
    await until(lambda: world.staged("late").get("changes"))
    alone = world.staged("late")
    world.stage("next", EDITS["moves"])
    await until(lambda: world.status("next").get("moves") and world.staged("late").get("moves"))
    both, said = world.staged("late"), world.status("next")
    assert {kind: both[kind] for kind in KINDS} == {kind: said[kind] for kind in KINDS}
    assert both["objects"] == alone["objects"] == 40
    assert both["moves"] > alone["moves"] == 0
    assert both["togetherWith"] == [f"{NAMESPACE}/next"]
    assert said["together_with"] == [f"PlacementPolicy {NAMESPACE}/late"]


async def test_opa_holds_no_lane_but_while_something_is_staged(world: World) -> None:
    async def lanes() -> list[str]:
        return [p.id for p in await world.opa.policies() if p.id.startswith("kube_sync_stage/")]

    assert await lanes() == []
    world.stage("next", EDITS["moves"])
    await until(lambda: world.status("next").get("moves"))
    assert len(await lanes()) == 2
    world.stage("next", "package io.k8s.federation.admission\n\nx := y\n")
    await until(lambda: world.status("next").get("status") == "error")
    assert "var y is unsafe" in world.status("next")["error"]["errors"][0]["message"]
    assert await lanes() == []
