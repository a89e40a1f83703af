from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.decisions.decision_reader import DecisionReader
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import Target
from kube_sync.errors import Undecided
from kube_sync.guard import Inventory, Placements
from kube_sync.objects import ObjectKey
from kube_sync.policies.policywarning import PolicyWarning, Warnings
from kube_sync.replicator.placementcheck import PlacementCheck, fleet_names
from tests.unit.async_tools import running, until

NAMES = frozenset(["c001", "c002"])
POLICY = """package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {"clusters": here}

here := {"c0001": {"weight": 1}}
"""
MODULES = {"opa/placement/policy.rego": POLICY, "opa/other/other.rego": "package other\n"}
NEAREST = "the fleet has no cluster 'c0001' (nearest: c001, c002)"


def on(*clusters: str, evict: bool = False) -> Outcome:
    value = json.dumps({"clusters": dict.fromkeys(clusters)})
    return Outcome("u", Decision({PLACEMENT: value}, evict=evict))


class World:
    def __init__(self, rest: Callable[[float], Awaitable[object]] | None = None) -> None:
        self.hub = DecisionHub("me")
        self.inventory: Inventory | None = Inventory(NAMES)
        self.warned: list[Warnings] = []
        self.looks = 0
        placements = Placements()
        self.read = DecisionReader(placements.unreadable, lambda: MODULES)
        self.check = PlacementCheck(
            self.hub,
            placements,
            lambda: self.inventory,
            lambda: MODULES,
            self._warn,
            self.read.failing_rows,
            sleep=rest or self._sleep,
        )

    def _warn(self, warnings: Warnings) -> None:
        if warnings != (self.warned[-1] if self.warned else {}):
            self.warned.append(warnings)

    async def _sleep(self, _seconds: float) -> None:
        self.looks += 1
        await asyncio.sleep(0)

    def decide(self, name: str, outcome: Outcome) -> None:
        self.hub.publish(
            Target("apps", "v1", "replicasets", name, "shop").gvr,
            Target("apps", "v1", "replicasets", name, "shop").key,
            outcome,
            "data",
            "p",
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with running(self.check.run()):
            await until(lambda: self.looks)
            yield

    async def note(self) -> tuple[str, ...]:
        """Return what readers are told once it was looked at again."""
        looks = self.looks
        self.check.written("clusters")
        await until(lambda: self.looks > looks)
        return self.hub.notes


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    world = World()
    async with world.running():
        yield world


async def test_unknown_clusters_are_told_to_readers_and_to_whoever_wrote_the_policy(
    world: World,
) -> None:
    for name, outcome in (("a", on("c0001")), ("b", on("c0001")), ("c", on("c002", "c0001"))):
        world.decide(name, outcome)
    world.decide("d", on("c001"))
    world.decide("e", on("c0001", evict=True))
    assert await world.note() == (
        f"4 placements name clusters that are unknown, 2 of them no other ones: {NEAREST}",
    )
    said = f"policy.rego row 5: {NEAREST}; workloads that get no other cluster are not moved there"
    module = "opa/placement/policy.rego"
    assert world.warned == [{module: [PolicyWarning("unknown_cluster", module, 5, said)]}]
    for name in "abce":
        world.decide(name, on("c002"))
    assert await world.note() == ()
    assert world.warned[1:] == [{}]


async def test_name_that_no_policy_spells_out_is_told_where_placements_are_decided(
    world: World,
) -> None:
    world.decide("a", on("atlantis"))
    await world.note()
    ((warning,),) = world.warned[0].values()
    assert warning.message.startswith("policy.rego row 3: the fleet has no cluster 'atlantis'")


async def test_unusable_decisions_are_told_to_whoever_wrote_the_policy(world: World) -> None:
    with pytest.raises(Undecided) as error:
        world.read(b'{"annotations": {"%s": []}}' % PLACEMENT.encode())
    world.decide("a", Outcome("u", failure=str(error.value)))
    world.decide("b", Outcome("u", failure="of another kind, which OPA tells"))
    assert await world.note() == ()
    ((warning,),) = world.warned[0].values()
    assert warning.message.startswith(
        "decisions cannot be used: policy.rego row 3 of ConfigMap opa/place"
    )


async def test_cluster_that_comes_ends_what_was_said_although_no_decision_differs(
    world: World,
) -> None:
    world.decide("a", on("c0001"))
    assert await world.note() != ()
    world.inventory = Inventory(NAMES | {"c0001"})
    assert await world.note() == ()


async def test_what_was_said_stands_while_clusters_or_decisions_are_not_current(
    world: World,
) -> None:
    world.decide("a", on("c0001"))
    said = await world.note()
    world.inventory = Inventory(NAMES | {"c0001"})
    world.hub.freshness.report("clusters", "503")
    assert await world.note() == said
    world.hub.freshness.report("clusters", None)
    world.hub.hold("load", "OPA is being loaded")
    assert await world.note() == said
    world.hub.release("load")
    assert await world.note() == ()


async def test_what_is_decided_while_it_rests_is_looked_at_without_further_news() -> None:
    rests = asyncio.Event()

    async def rest(_seconds: float) -> None:
        looked.set()
        await rests.wait()

    resting, looked = World(rest), asyncio.Event()
    async with running(resting.check.run()):
        await looked.wait()
        resting.decide("a", on("c0001"))
        rests.set()
        await until(lambda: resting.hub.notes)


async def test_without_clusters_nothing_is_compared(world: World) -> None:
    world.inventory = None
    world.decide("a", on("c0001"))
    assert await world.note() == ()
    assert world.warned == []


class Held:
    name, known, loaded = "clusters", True, True

    def __init__(self, *keys: ObjectKey) -> None:
        self._keys = keys

    def keys(self) -> tuple[ObjectKey, ...]:
        return self._keys


def test_clusters_are_known_by_name_once_they_are_loaded() -> None:
    held = Held(ObjectKey("fleet", "c001"), ObjectKey("", "c002"))
    assert fleet_names([cast("Any", held)]) == Inventory(NAMES, qualified=frozenset(["fleet/c001"]))
    held.loaded = False
    assert fleet_names([cast("Any", held)]) is None
    assert fleet_names([]) is None
    assert fleet_names([cast("Any", Held())]) is None
