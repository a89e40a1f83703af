"""A sink of PlacementDecisions that leads: the reconciler asks the brakes, and writes by it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kube_sync.config import Remediate
from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.decisions.records import BookmarkRecord, DecisionRecord, StatusRecord, Target
from kube_sync.errors import Conflict, SyncError
from kube_sync.guard import ADDITION, HISTORY, Fleet, Guard, Limits, Placements
from kube_sync.guard.add_first import Terms
from kube_sync.guard.limits import Rate
from kube_sync.kube import slices
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.meta import Apply
from kube_sync.kube.slices import Published, Slice
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.add_first import AddFirst
from kube_sync.remediation.brakes import Brakes
from kube_sync.remediation.health.own import OwnHealth, healthy_by
from kube_sync.remediation.modes import Mode, Modes
from kube_sync.remediation.plan import Write
from kube_sync.remediation.reconciler import Reconciler
from kube_sync.remediation.sinks.annotations import AnnotationSink
from kube_sync.remediation.sinks.follower import Follower
from kube_sync.remediation.sinks.forms import OcmForm, SigForm
from kube_sync.remediation.sinks.placement_decisions import PlacementDecisionSink
from kube_sync.remediation.writer import Writer
from tests.fakes.listing import Listing, listed
from tests.unit.async_tools import running

JOBS = GroupVersionResource("batch", "v1", "jobs")
VERSION = ResourceVersion("1")


def preferences(clusters: Iterable[str]) -> str:
    return json.dumps({"clusters": {name: {"weight": 2} for name in clusters}})


def decision(name: str, *clusters: str) -> DecisionRecord:
    annotations = {PLACEMENT: preferences(clusters)} if clusters else {}
    target = Target("batch", "v1", "jobs", name, "ns")
    return DecisionRecord(target, "u", Decision(annotations), 1, "data", "p1")


def item(name: str, *healthy: str, parallelism: int = 1) -> Item:
    annotations = {PLACEMENT: preferences(["the-owners"])}
    annotations |= {f"health.kube-sync.io/{cluster}": "healthy" for cluster in healthy}
    metadata = {"name": name, "annotations": annotations}
    body = json.dumps({"metadata": metadata, "spec": {"parallelism": parallelism}}).encode()
    return Item(ObjectKey("ns", name), "u", VERSION, body)


class Api:
    """Stores slices as the API server does."""

    def __init__(self) -> None:
        self.slices: dict[ObjectKey, Published] = {}
        self.failures: list[SyncError] = []
        self.version = 1

    async def kind(self, _gvr: GroupVersionResource) -> str:
        return "Job"

    async def apply(self, wanted: Slice, found: Published | None) -> Published:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        assert self.slices.get(wanted.key) == found
        self.version += 1
        self.slices[wanted.key] = Published(
            wanted.key,
            "p",
            str(self.version),
            wanted.placed,
            wanted.labels,
            (wanted.owner,),
            wanted.choices,
            records=wanted.records,
        )
        return self.slices[wanted.key]

    async def delete(self, found: Published) -> None:
        await asyncio.sleep(0)
        del self.slices[found.key]


class Facts:
    def begin(self) -> None: ...

    def fleet(self, now: float) -> Fleet:
        assert now
        return Fleet(0.0, 10, 10, epoch_matches=True)

    def accept(self, clusters: int) -> None: ...


class World:
    """Jobs whose only sink publishes PlacementDecisions, and one process that does so."""

    def __init__(
        self,
        *names: str,
        api: Api | None = None,
        limits: Limits | None = None,
        mode: Mode = "enforce",
        add_first: Terms | None = None,
    ) -> None:
        self.api = api or Api()
        self.now = 1_000_000.0
        self.approved = frozenset[str]()
        fenced = FencedWriter(lambda: math.inf)
        self.sink = PlacementDecisionSink(SigForm("fleet"), self.api, [JOBS], fenced)
        modes = Modes(Remediate(mode=mode))
        brakes, rehearsal = (self._brakes(limits or Limits()) for _ in range(2))
        self.reconciler = Reconciler(
            Writer(self.write, fenced),
            modes,
            brakes,
            rehearsal,
            lambda: self.now,
            lambda _gvr: self.sink,
            sleep=self._sleep,
            target_changed=lambda key: self.follower.add([key]),
            moves=None if add_first is None else self._add_first(add_first),
        )
        self.sink.subscribe(self.reconciler.replan)
        decisions, targets = self.reconciler.decisions, self.reconciler.targets
        self.follower = Follower(self.sink, {JOBS: self.sink}, targets, decisions, modes.of, fenced)
        listed(targets(JOBS), Listing([item(name) for name in names], VERSION))

    def _add_first(self, terms: Terms) -> AddFirst:
        health = OwnHealth(healthy_by("health.kube-sync.io"))
        return AddFirst(terms, Placements(), health, lambda: self.now)

    def observe(self, found: Item) -> None:
        """Let the watch tell of a target."""
        self.reconciler.targets(JOBS).apply(Event("MODIFIED", VERSION, found))

    def record(self) -> dict[str, object]:
        """Return the record of the addition that is published."""
        (found,) = self.api.slices.values()
        record: dict[str, object] = json.loads(found.records.get(ADDITION, "{}"))
        return record

    def _brakes(self, limits: Limits) -> Brakes:
        guard: Guard[str] = Guard(limits)
        return Brakes(guard, Placements(), Facts(), lambda: self.approved, lambda: self.now)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    async def write(self, gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
        await self.sink.write((gvr, key), step)

    def relist(self) -> None:
        """List what is published, as a process does that starts."""
        listed(self.sink.published, Listing(self._published(), VERSION))

    def _published(self) -> list[Item]:
        shape, items = SigForm("fleet").shape, []
        for found in self.api.slices.values():
            wanted = Slice(
                found.key,
                found.placed,
                found.labels,
                found.owners[0],
                found.choices,
                records=found.records,
            )
            document = shape.document(wanted)
            document["metadata"] |= {"uid": "p", "resourceVersion": found.version}
            items.append(Item(found.key, "p", VERSION, json.dumps(document).encode()))
        return items

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        loops = (self.reconciler.resync(), self.reconciler.run(), self.follower.run())
        async with running(*loops):
            self.relist()
            yield
            await self.idle()

    async def idle(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)

    def decide(self, *decisions: DecisionRecord) -> None:
        held, released = StatusRecord(("new",), "me"), StatusRecord((), "me")
        for record in (None, held, *decisions, released, BookmarkRecord(1, "me")):
            self.reconciler.apply_record(record)

    def waits(self) -> dict[str, str]:
        return {key[1].name: wait.kind for key, wait in self.reconciler.waiting}

    def clusters(self) -> dict[str, list[str]]:
        return {
            found.placed.partition("/")[2]: [choice.cluster for choice in found.choices]
            for found in self.api.slices.values()
        }


ONE = Limits(moves=Rate(1, 1))


async def settled(world: World) -> None:
    """Wait until the decisions of a batch are taken as complete."""
    await world.idle()
    world.now += 5
    world.reconciler.weigh()
    await world.idle()


async def test_a_first_placement_is_published_with_its_history_and_no_annotation() -> None:
    world = World("a")
    async with world.running():
        world.decide(decision("a", "eu"))
        await settled(world)
    assert world.clusters() == {"a": ["eu"]}
    (found,) = world.api.slices.values()
    assert found.owners[0].kind == "Job"
    assert found.records.keys() == {HISTORY}
    assert json.loads(found.records[HISTORY])


async def test_the_brakes_hold_what_a_leading_sink_publishes() -> None:
    world = World("a", "b", limits=ONE)
    async with world.running():
        world.decide(decision("a", "eu"), decision("b", "eu"))
        await settled(world)
        world.decide(decision("a", "us"), decision("b", "us"))
        await settled(world)
        assert sorted(map(tuple, world.clusters().values())) == [("eu",), ("us",)]
        (held,) = world.reconciler.waiting
        assert held[1].kind == "budget"
        assert held[1].changes.keys() == {PLACEMENT}
        world.now += 60
        world.reconciler.replan(None)
    assert world.clusters() == {"a": ["us"], "b": ["us"]}


async def test_another_process_reads_back_what_was_let_through_and_its_history() -> None:
    dwell = Limits(dwell=30)
    first = World("a", limits=dwell)
    async with first.running():
        first.decide(decision("a", "eu"))
        await settled(first)
    second = World("a", api=first.api, limits=dwell)
    second.now = first.now
    async with second.running():
        second.decide(decision("a", "us"))
        await settled(second)
        assert (second.waits(), second.clusters()) == ({"a": "dwell"}, {"a": ["eu"]})
        second.now += 60
        second.reconciler.replan(None)
    assert second.clusters() == {"a": ["us"]}


async def test_a_move_that_adds_first_is_two_writes_also_of_two_processes() -> None:
    terms = Terms(300)
    first = World("a", add_first=terms)
    async with first.running():
        first.decide(decision("a", "eu"))
        await settled(first)
        first.decide(decision("a", "us"))
        await settled(first)
        assert (first.clusters(), first.waits()) == ({"a": ["eu", "us"]}, {"a": "adding"})
        assert first.record()["added"] == ["us"]
    second = World("a", api=first.api, add_first=terms)
    second.now = first.now
    async with second.running():
        second.decide(decision("a", "us"))
        await settled(second)
        assert (second.clusters(), second.waits()) == ({"a": ["eu", "us"]}, {"a": "adding"})
        second.observe(item("a", "us"))
        await settled(second)
        assert (second.clusters(), second.waits()) == ({"a": ["us"]}, {})
        assert second.record() == {}


async def test_an_addition_that_is_not_healthy_in_time_is_tried_again_for_another_spec() -> None:
    world = World("a", add_first=Terms(300))
    async with world.running():
        world.decide(decision("a", "eu"))
        await settled(world)
        world.observe(item("a", "eu"))
        world.decide(decision("a", "us"))
        await settled(world)
        world.now += 301
        world.reconciler.replan(None)
        await settled(world)
        assert (world.clusters(), world.waits()) == ({"a": ["eu"]}, {"a": "unhealthy"})
        assert world.record()["step"] == "reverted"
        world.observe(item("a", "eu", "ap"))
        await settled(world)
        assert world.clusters() == {"a": ["eu"]}
        world.observe(item("a", "eu", parallelism=2))
        await settled(world)
        assert (world.clusters(), world.waits()) == ({"a": ["eu", "us"]}, {"a": "adding"})


async def test_the_end_of_a_placement_ends_the_move_that_adds_first() -> None:
    world = World("a", add_first=Terms(300))
    async with world.running():
        world.decide(decision("a", "eu"))
        await settled(world)
        world.decide(decision("a", "us"))
        await settled(world)
        world.decide(decision("a"))
        await settled(world)
        assert (world.clusters(), world.waits()) == ({}, {})


async def test_the_mode_manual_publishes_what_a_person_applied() -> None:
    world = World("a", mode="manual")
    async with world.running():
        world.decide(decision("a", "eu"))
        await settled(world)
        assert (world.waits(), world.clusters()) == ({"a": "manual"}, {})
        world.reconciler.apply([(JOBS, ObjectKey("ns", "a"))])
        await settled(world)
    assert world.clusters() == {"a": ["eu"]}


async def test_nothing_is_written_before_what_is_published_is_listed() -> None:
    """It would seem that nothing is placed yet, and no placement a move."""
    world = World("a")
    async with running(world.reconciler.resync(), world.reconciler.run()):
        world.decide(decision("a", "eu"))
        await settled(world)
        assert world.clusters() == {}
        assert any("placementdecisions" in reason for reason in world.reconciler.holds)
        world.relist()
        await settled(world)
    assert world.clusters() == {"a": ["eu"]}


async def test_a_slice_that_somebody_changed_is_put_right() -> None:
    world = World("a")
    async with world.running():
        world.decide(decision("a", "eu"))
        await settled(world)
        (found,) = world.api.slices.values()
        world.api.version += 1
        theirs = replace(found, choices=(), version=str(world.api.version))
        world.api.slices[found.key] = theirs
        world.relist()
        await settled(world)
    assert world.clusters() == {"a": ["eu"]}


async def test_a_conflict_is_retried_and_a_target_that_goes_takes_its_slices_along() -> None:
    world = World("a")
    world.api.failures = [Conflict("409")]
    async with world.running():
        world.decide(decision("a", "eu"))
        await settled(world)
        world.relist()
        await settled(world)
        assert world.clusters() == {"a": ["eu"]}
        gone = Event("DELETED", VERSION, item("a"))
        world.reconciler.targets(JOBS).apply(gone)
    assert world.clusters() == {}


class Beside(World):
    """A second sink follows the one that leads."""

    def __init__(self, *names: str, limits: Limits | None = None) -> None:
        super().__init__(*names, limits=limits)
        self.others = Api()
        fenced = FencedWriter(lambda: math.inf)
        form = OcmForm(None)
        self.beside = PlacementDecisionSink(form, self.others, [JOBS], fenced)
        decisions, targets = self.reconciler.decisions, self.reconciler.targets
        self.second = Follower(
            self.beside, {JOBS: self.sink}, targets, decisions, lambda _: "enforce", fenced
        )
        listed(self.beside.published, Listing([], VERSION))

    def followed(self) -> list[list[str]]:
        return [[one.cluster for one in found.choices] for found in self.others.slices.values()]


async def test_a_sink_beside_the_leading_one_gets_what_that_one_has() -> None:
    world = Beside("a", limits=Limits(dwell=30))
    async with world.running(), running(world.second.run()):
        world.decide(decision("a", "eu"))
        await settled(world)
        assert world.followed() == [["eu"]]
        assert all(found.records == {} for found in world.others.slices.values())
        world.decide(decision("a", "us"))
        await settled(world)
        assert (world.clusters(), world.followed()) == ({"a": ["eu"]}, [["eu"]])
        assert [held.kind for held in world.second.held.values()] == ["not_applied"]
        world.now += 60
        world.reconciler.replan(None)
        await settled(world)
        assert (world.clusters(), world.followed()) == ({"a": ["us"]}, [["us"]])
        world.relist()
    assert world.second.held == {}


async def test_a_sink_that_led_before_loses_the_history_when_it_follows() -> None:
    world = World("a")
    async with world.running():
        world.decide(decision("a", "eu"))
        await settled(world)
    other = World("a", api=world.api)
    lead = AnnotationSink(other.write)
    follower = Follower(
        other.sink,
        {JOBS: lead},
        other.reconciler.targets,
        other.reconciler.decisions,
        lambda _: "enforce",
        FencedWriter(lambda: math.inf),
    )
    async with running(follower.run()):
        other.relist()
        other.decide(decision("a", "the-owners"))
        await other.idle()
    (found,) = other.api.slices.values()
    assert ([choice.cluster for choice in found.choices], found.records) == (["the-owners"], {})


async def test_a_step_of_another_sink_is_refused() -> None:
    world = World("a")
    with pytest.raises(TypeError, match="placement_decisions"):
        await world.sink.write((JOBS, ObjectKey("ns", "a")), Apply("u", {PLACEMENT: "x"}))


def test_the_records_have_the_names_that_the_guard_knows() -> None:
    assert slices.RECORDS == (HISTORY, ADDITION)
