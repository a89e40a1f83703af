"""What is staged changes how objects are told apart and decided, as long as it is there."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kube_sync.config import Settings
from kube_sync.decisions.canary import Canary
from kube_sync.decisions.decision_reader import DecisionReader
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.policysets import Division
from kube_sync.guard import ADDITION, Placements
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.analysis.result import Document, FieldRead, Reads
from kube_sync.opa.sides import Side
from kube_sync.policies.staging.canaries import Counting
from kube_sync.policies.staging.lanes import Counted
from kube_sync.replicator.failed_additions import FailedAdditions
from kube_sync.replicator.replica import ReplicaMaker
from kube_sync.replicator.resources import Resources
from kube_sync.replicator.staging import Core, StagedEvaluation


def reads(*path: str) -> Reads:
    return Reads(Document((FieldRead(path, whole=False, asked=()),), used=True), {}, (), {})


def body(**labels: str) -> bytes:
    return json.dumps({"metadata": {"name": "x", "labels": labels}}).encode()


class World:
    """What is staged beside what is in force, and who is told of it."""

    def __init__(self) -> None:
        nothing = cast("Any", None)
        maker = ReplicaMaker(nothing, Readiness(), lambda: None)
        self.resources = Resources(Settings(), maker, Readiness())
        self.resources.policies_changed(reads("metadata", "labels", "zone"))
        self.divisions: list[Division | None] = []
        self.in_force: list[str] = []
        self.counted: list[Counted | None] = []
        self.checked: list[Canary | None] = []
        self.policies = policies = SimpleNamespace(
            count=self.counted.append, count_canary=self.counted.append, canary=None
        )
        self.failed = FailedAdditions(self._failed)
        self.evaluator = Evaluator(nothing, "me")
        self.staging = StagedEvaluation(
            Core(
                opa=nothing,
                instance="me",
                hub=DecisionHub("me"),
                policies=cast("Any", policies),
                resources=self.resources,
                placements=Placements({}),
                targets=dict,
                inventory=lambda: None,
                evaluator=self.evaluator,
                read=DecisionReader(lambda _: None),
                tracker=cast("Any", self),
                check=cast("Any", SimpleNamespace(canary_changed=self.checked.append)),
                in_force=lambda digest, _modules: self.in_force.append(digest),
                failed=self.failed,
            )
        )

    def _failed(self) -> None:
        self.staging.recount()

    def division_changing(self) -> None:
        self.divisions.append(None)

    def division_changed(self, division: Division) -> None:
        self.divisions.append(division)

    def decide_by(self, found: Reads | None) -> None:
        side = Side("p/place", "0.5")
        self.staging.canary_changed(None if found is None else Canary(side, "c", found, {}))

    def count(self, found: Reads | None) -> None:
        counting = None if found is None else Counting("it", Side("p/place", "0.5"), found)
        self.staging.counting_changed(counting)


@pytest.fixture
def world() -> World:
    return World()


def kinds(world: World, *bodies: bytes) -> list[bytes | None]:
    (members,) = [m.members for m in world.resources.mirrors if m.name == "replicasets"]
    found = [members.read(one, "u") for one in bodies]
    return [None if member is None else member.kind for member in found]


def test_nothing_is_told_of_writes_while_nothing_is_staged(world: World) -> None:
    staging = world.staging
    assert staging.counting == ()
    staging.lane_changed(reads())
    world.count(reads())
    assert len(staging.counting) == 2
    staging.lane_changed(None)
    world.count(None)
    assert staging.counting == ()


def test_what_is_in_force_decides_on_all_once_the_canary_is_gone(world: World) -> None:
    world.decide_by(reads())
    world.staging.canary_changing()
    world.decide_by(None)
    came, changing, went = world.divisions
    assert (changing, world.in_force, world.checked[1:]) == (None, ["c"], [None])
    assert came is not None
    assert came.divide is not None
    assert went is not None
    assert (went.divide, went.evaluator) == (None, world.evaluator)


def test_what_a_canary_alone_reads_makes_classes_as_long_as_there_is_one(
    world: World,
) -> None:
    one, other = body(zone="eu", tier="a"), body(zone="eu", tier="b")
    assert len(set(kinds(world, one, other))) == 1
    world.decide_by(reads("metadata", "labels", "tier"))
    assert len(set(kinds(world, one, other))) == 2
    world.count(reads("metadata", "labels", "tier"))
    world.decide_by(None)
    assert len(set(kinds(world, one, other))) == 2
    world.count(None)
    assert len(set(kinds(world, one, other))) == 1


def test_where_a_canary_reads_all_of_an_object_no_two_are_of_one_class(
    world: World,
) -> None:
    """One that is only counted leaves them as they are: who counts asks about each."""
    world.count(reads())
    assert None not in kinds(world, body(zone="eu"))
    world.decide_by(reads())
    assert kinds(world, body(zone="eu")) == [None]


def test_other_lanes_count_beside_a_canary(world: World) -> None:
    world.staging.lane_changed(reads("metadata", "labels", "team"))
    world.decide_by(reads("metadata", "labels", "tier"))
    bodies = body(tier="a", team="x"), body(tier="b", team="x"), body(tier="a", team="y")
    assert len(set(kinds(world, *bodies))) == 3


def test_what_a_canary_moved_and_was_not_healthy_is_in_its_counts(world: World) -> None:
    counter = world.staging.count_canary
    world.policies.canary = Canary(Side("p/place", "1"), "c", reads(), {})
    counter(Counted(10, {"moves": 2}))
    for name, policy in (("web", "c"), ("api", "another")):
        world.failed.note("replicasets", _failed(name, policy))
    world.policies.canary = None
    counter(Counted(10, {"moves": 2}))
    counter(None)
    found = [None if one is None else dict(one.differences) for one in world.counted]
    assert found == [
        {"moves": 2},
        {"moves": 2, "unhealthy": 1},
        {"moves": 2, "unhealthy": 1},
        {"moves": 2},
        None,
    ]


def _failed(name: str, policy: str) -> Item:
    record = json.dumps({"to": "d", "at": 5, "step": "reverted", "policy": policy})
    body = {"metadata": {"name": name, "annotations": {ADDITION: record}}}
    key = ObjectKey("ns", name)
    return Item(key, "u", ResourceVersion("1"), json.dumps(body).encode())
