"""A real OPA with a canary: who asks for a decision and who is told of it have the same one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube_sync.admission.engine import EngineClient
from kube_sync.admission.engine_formats import DIALECTS
from kube_sync.admission.entry import EntryClient
from kube_sync.admission.target import Target
from kube_sync.decisions.explaining import Explaining
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.requested import as_requested
from kube_sync.inspect.plan.extra_documents import in_effect
from kube_sync.kube.client import KubeClient
from kube_sync.kube.lease import LEASES
from kube_sync.kube.placementpolicies import KIND, PLACEMENT_POLICIES
from kube_sync.kube.policymaps import STATUS
from kube_sync.objects import ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaClient
from kube_sync.opa.entry import ENTRY_PATH
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.opa.sides import Side
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.replicator import staging
from kube_sync.replicator.replicator import Listeners, Replicator
from kube_sync.replicator.shadow import Shadow
from tests.component.test_shadow_counts import EDITS, SETTINGS, settled
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, kube_of
from tests.fakes.engine import review
from tests.unit.async_tools import until
from tests.unit.inspect.plan.fleets import NAMESPACE, POLICY, policy
from tests.unit.inspect.plan.fleets import item as _item

NAME = "next"
OBJECT = ObjectKey(NAMESPACE, "late")
PACKAGE = "io.k8s.federation.admission"
BINARY = SETTINGS.opa.binary
DECISION = SETTINGS.placement.path
ALL = {"canary-namespaces": "shop"}
HALTS = {
    "refused": EDITS["refuses"],
    "nowhere": EDITS["empties"],
    "failed": EDITS["conflicts"],
    "undecided": "package elsewhere\n\nx := 1\n",
    "moves": EDITS["moves"],
}
Decisions = Mapping[str, Any]  # by the workload's name


class World:
    """A replicator between a fake API server and a real OPA, and what asks as the webhook does."""

    def __init__(self, api: FakeApiServer, kube: KubeClient, opa: OpaClient) -> None:
        self.api, self.opa, self._kube = api, opa, kube
        self.hub = DecisionHub("none")
        self.replicator: Replicator  # once one runs
        self.workloads = settled()[1]
        self.sets: dict[str, Mapping[str, str]] = {}  # by digest, as they are recorded
        self.halts: list[list[str]] = []  # why, as Events are told
        url = "http://opa/v1/data/"
        target = Target(url + DECISION, DIALECTS["v1"])
        connector = opa._session.connector  # noqa: SLF001 - it trusts the OPA of the test
        self._session = aiohttp.ClientSession(connector=connector, connector_owner=False)
        engine = EngineClient(target, dict, self._session, lambda: True)
        self._engine = EntryClient(engine, url + ENTRY_PATH, lambda: True)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run a new replicator, with whatever OPA and the API server hold by now."""
        self.hub = DecisionHub("test")
        scratch = ScratchOpa(BINARY)
        parts = SETTINGS, self._kube, self.opa, self.hub, Readiness(), scratch
        self.replicator = replicator = Replicator(
            *parts,
            shelf=BundleServer(),
            listeners=Listeners(
                in_force=self.sets.__setitem__,
                halted=lambda _policy, halt: self.halts.append(halt.why),
            ),
        )
        task = asyncio.create_task(replicator.run())
        try:
            await until(lambda: len(self.hub.records) == len(self.workloads) and not self.hub.held)
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        await self._session.close()

    def stage(self, source: str, stage: str = "canary", **terms: str) -> None:
        said = {f"kube-sync.io/{name}": text for name, text in terms.items()}
        metadata = {
            "labels": {"kube-sync.io/stage": stage},
            "annotations": {"kube-sync.io/stands-for": "placement", **said},
        }
        key = ObjectKey(NAMESPACE, NAME)
        self.api.put(CONFIGMAPS, key, metadata=metadata, data={"policy.rego": source})

    def stage_object(self, source: str, share: str) -> None:
        spec = {"modules": [{"name": "late.rego", "rego": source}], "stage": "canary"}
        metadata = {"annotations": {"kube-sync.io/canary-share": share}}
        self.api.put(PLACEMENT_POLICIES, OBJECT, metadata=metadata, spec=spec)

    @property
    def staged(self) -> Any:
        return self.api.get(PLACEMENT_POLICIES, OBJECT).get("status", {}).get("staged", {})

    @property
    def status(self) -> Any:
        metadata = self.api.get(CONFIGMAPS, ObjectKey(NAMESPACE, NAME))["metadata"]
        return json.loads((metadata.get("annotations") or {}).get(STATUS, "{}"))

    @property
    def told(self) -> Decisions:
        """What followers of the stream are told of each workload."""
        records = self.hub.records.items()
        return {t.name: _plain(record.decision, record.failure) for t, record in records}

    async def asked(self) -> Decisions:
        """What a review of each workload is answered."""
        found = {}
        for workload in self.workloads:
            asked = review(workload)
            answer = await self._engine.ask(asked, asked.object)
            said = json.loads(answer.decision)
            names = ("annotations", "labels", "errors")
            found[workload["metadata"]["name"]] = {name: said.get(name) or None for name in names}
        return found

    async def lanes(self) -> set[str]:
        return {p.id for p in await self.opa.policies() if p.id.startswith("kube_sync_stage/")}

    async def until_lanes(self, condition: Callable[[set[str]], bool]) -> None:
        while not condition(await self.lanes()):
            pass  # each look is a round trip


def _plain(decision: Any, failure: str | None) -> Any:
    if decision is None:
        return failure
    annotations = {name: json.loads(text) for name, text in decision.annotations.items()}
    return {
        "annotations": annotations or None,
        "labels": dict(decision.labels) or None,
        "errors": list(decision.errors) or None,
    }


def on(workloads: list[Any], side: Side) -> set[str]:
    keys = [ObjectKey(w["metadata"]["namespace"], w["metadata"]["name"]) for w in workloads]
    return {key.name for key in keys if side.has(key)}


def differs(one: Decisions, other: Decisions) -> set[str]:
    return {name for name in one if one[name] != other[name]}


async def explains(world: World, side: Side) -> None:
    """Make sure that what decides on a side tells by which rules, where their author wrote them."""
    item = _item(world.api.get(CONFIGMAPS, ObjectKey(NAMESPACE, NAME)))
    known = await in_effect([item], SETTINGS.policies)
    assert known is not None
    assert known.side == side
    canary = world.replicator.policies.canary
    assert canary is not None
    assert canary.side == side
    workload = next(w for w in world.workloads if w["metadata"]["name"] in on([w], side))
    body = as_requested(json.dumps(workload).encode())
    found = await Explaining(world.opa, DECISION).explain(body, canary.modules, "canary")
    told = _plain(found.decision, found.failure)
    assert told == world.told[workload["metadata"]["name"]]
    assert {rule.file for rule in found.rules} == {f"{NAMESPACE}/{NAME}/policy.rego"}
    (rule,) = (r for r in found.rules if r.applied and r.text.startswith("annotations["))
    assert rule.name.startswith(f"{DECISION.replace('/', '.')}.annotations")
    assert EDITS["adds"].splitlines()[rule.row - 1] == rule.text


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[World]:
    monkeypatch.setattr(staging, "Shadow", partial(Shadow, rest=0.05))
    clusters, workloads = settled()
    kinds = {"ReplicaSet": REPLICASETS, "ClusterProfile": CLUSTERS, "ConfigMap": CONFIGMAPS}
    async with (
        fake_apiserver() as api,
        kube_of(api, tmp_path) as kube,
        ScratchOpa(BINARY).serving({}, b"{}") as opa,
    ):
        for kind, gvr in {**kinds, "Lease": LEASES}.items():
            api.define(gvr, kind)
        api.define(PLACEMENT_POLICIES, KIND, builtin=False)
        for found in (policy(), *clusters, *workloads):
            metadata = found["metadata"]
            key = ObjectKey(metadata["namespace"], metadata["name"])
            content = {name: part for name, part in found.items() if name in ("metadata", "data")}
            api.put(kinds[found["kind"]], key, **content)
        world = World(api, kube, opa)
        yield world
        await world.close()


async def test_each_object_is_decided_by_its_side_wherever_it_is_asked_about_and_keeps_it(
    world: World,
) -> None:
    edit = EDITS["adds"]
    small, large = (Side(f"{NAMESPACE}/placement", share) for share in ("0.3", "0.6"))
    async with world.running():
        former = world.told
        world.stage(edit, **{"canary-share": "0.3"})
        await until(lambda: world.status.get("effect"))
        await until(lambda: differs(former, world.told) == on(world.workloads, small))
        assert await world.asked() == world.told
        first = world.told
        world.stage(edit, **{"canary-share": "0.6"})
        await until(lambda: differs(former, world.told) == on(world.workloads, large))
        assert await world.asked() == world.told
        assert not differs(first, world.told) & on(world.workloads, small)
        second = world.told
        # Whoever asks later by which policies: each decision names a set that was recorded.
        by = {record.policy for record in world.hub.records.values()}
        assert len(by) == 2
        assert {source for digest in by for source in world.sets[digest].values()} == {POLICY, edit}
        await explains(world, large)
    async with world.running():
        # As it was from the first word on: of no object was anything else told before.
        assert world.told == second
        assert world.hub.seq == len(world.workloads)
        assert await world.asked() == second
        # Another policy in force is edited: nobody changes sides, there or back.
        more = ObjectKey(NAMESPACE, "more")
        world.api.put(CONFIGMAPS, more, data={"more.rego": "package more\n\nx := 1\n"})
        await world.until_lanes(lambda found: any("__more__" in i for i in found))
        assert (world.told, world.hub.seq) == (second, len(world.workloads))
        world.stage(edit, "candidate")
        await until(lambda: world.told == former)
        await world.until_lanes(lambda found: not found)
        assert await world.asked() == former


async def test_placementpolicy_is_a_canary_of_its_side_and_stays_one_and_halts(
    world: World,
) -> None:
    late = f'package {PACKAGE}\n\nlabels.late := "yes"\n'
    side = on(world.workloads, Side(f"{NAMESPACE}/late.PlacementPolicy", "0.3"))
    async with world.running():
        former = world.told
        world.stage_object(late, "0.3")
        await until(lambda: differs(former, world.told) == side)
        await until(lambda: world.staged.get("effect") == {"share": "0.3", "namespaces": []})
        assert await world.asked() == world.told
        first = world.told
    async with world.running():
        assert (world.told, world.hub.seq) == (first, len(world.workloads))
        world.stage_object(late + '\nerrors contains "no"\n', "0.3")
        await until(lambda: world.staged.get("halted"))
        await until(lambda: world.told == former)
        assert world.staged["refused"] == len(side)
        await world.until_lanes(lambda found: not found)


@pytest.mark.slow
async def test_canary_halts_at_each_limit_and_all_is_as_it_was(world: World) -> None:
    async with world.running():
        former, before = world.told, world.hub.seq
        for effect, source in HALTS.items():
            world.stage(source, **ALL)
            await until(lambda: world.status.get("status") == "halted")
            (why,) = world.status["halted"]["why"]
            assert effect.removesuffix("s") in why
            assert world.status["effect"] is None
            assert world.status[effect]
            await world.until_lanes(lambda found: not found)
            assert world.halts.pop() == world.status["halted"]["why"]
        # They were counted first: nothing was ever decided by them.
        assert (world.told, world.hub.seq) == (former, before)
    async with world.running():
        assert (world.told, world.status["status"]) == (former, "halted")
        assert await world.lanes() == set()
    assert world.halts == [], "each is told once"


async def test_canary_that_passes_a_limit_by_a_change_of_the_fleet_is_taken_out(
    world: World,
) -> None:
    """Nobody edited anything: the clusters changed under it."""
    never = 'errors contains "no" if count(data.kubernetes.clusters.fleet) > 6'
    async with world.running():
        former = world.told
        world.stage(POLICY + f'\nlabels.late := "yes"\n\n{never}\n', **ALL)
        await until(lambda: len(differs(former, world.told)) == len(former))
        metadata = {"labels": {"example.com/zone": "nowhere"}}
        world.api.put(CLUSTERS, ObjectKey("fleet", "c9"), metadata=metadata)
        await until(lambda: world.status.get("status") == "halted")
        await until(lambda: world.told == former)
        await world.until_lanes(lambda found: not found)
        assert world.status["halted"]["why"] == ["40 would be refused, at most 0 may"]
        assert await world.asked() == former
