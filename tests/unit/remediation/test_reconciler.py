from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from kube_sync.config import Remediate
from kube_sync.decisions.decision import PLACEMENT, REQUESTED, Decision
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    Record,
    StatusRecord,
    Target,
)
from kube_sync.errors import Conflict, NotFound, Refused, Retriable, SyncError, Terminal
from kube_sync.guard import HISTORY, Fleet, Guard, Inventory, Limits, Placements
from kube_sync.guard.history import read_history
from kube_sync.guard.limits import Rate
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.meta import Apply
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation import brakes, reconciler
from kube_sync.remediation.brakes import Brakes
from kube_sync.remediation.decision_cache import Key, follow
from kube_sync.remediation.modes import Mode, Modes
from kube_sync.remediation.plan import Write, plan
from kube_sync.remediation.planner import Moves
from kube_sync.remediation.reconciler import Reconciler
from kube_sync.remediation.sinks import annotations as annotation_sink
from kube_sync.remediation.sinks.annotations import AnnotationSink
from kube_sync.remediation.writer import Writer
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.concurrency import Concurrency
from kube_sync.runtime.controller import Turns
from kube_sync.runtime.cooperative import TURN
from kube_sync.runtime.freshness import SETTLE_SECONDS, Stale
from tests.fakes.listing import Listing, listed
from tests.fakes.otlp import recorded
from tests.memory import remembered
from tests.unit.async_tools import Timers, running, until

REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
VERSION = ResourceVersion("1")
HELD = StatusRecord(("loading",), "me")
RELEASED = StatusRecord((), "me")
BOOKMARK = BookmarkRecord(1, "me")
UNLIMITED = Limits()
PLACEMENTS = Placements({"place": "names"})


def _key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def _target(name: str, namespace: str = "ns") -> Target:
    return Target("apps", "v1", "replicasets", name, namespace)


def _decision(
    name: str, text: str, uid: str = "u", key: str = "place", namespace: str = "ns"
) -> DecisionRecord:
    return DecisionRecord(_target(name, namespace), uid, Decision({key: text}), 1, "data", "")


class ApiServer:
    """What is stored, and how PATCHes are answered; the reconciler's Store follows it."""

    def __init__(self, **annotations: str) -> None:
        self.objects = {name: {"place": text} for name, text in annotations.items()}
        self.patched: list[str] = []
        self.failures: list[SyncError] = []
        self.latest = 1
        self.versions: dict[str, int] = {}  # of each object, as the watch told it last
        self.uid = "u"
        self.spec: dict[str, Any] = {}

    async def patch(self, gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
        version = str(self.versions[key.name])
        assert (gvr, step.version, step.uid) == (REPLICASETS, version, self.uid)
        self.patched.append(key.name)
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        both: dict[str, str | None] = {**self.objects[key.name], **step.annotations}
        self.objects[key.name] = {k: value for k, value in both.items() if value is not None}

    def places(self) -> dict[str, str]:
        return {name: found.get("place", "") for name, found in self.objects.items()}

    def item(self, name: str) -> Item:
        metadata = {"name": name, "annotations": self.objects[name]}
        body = {"metadata": metadata, "spec": self.spec}
        version = ResourceVersion(str(self.versions[name]))
        return Item(_key(name), self.uid, version, json.dumps(body).encode())

    def change(self, *names: str) -> None:
        """Give objects a new version."""
        self.latest += 1
        self.versions |= dict.fromkeys(names, self.latest)

    def listing(self) -> Listing:
        self.change(*self.objects)
        return Listing([self.item(name) for name in self.objects], VERSION)


class Facts:
    """A fleet that is in order, until a test says otherwise."""

    def __init__(self) -> None:
        self.clusters = self.best = 10
        self.stale: Stale | None = None
        self.inventory: Inventory | None = None
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def fleet(self, now: float) -> Fleet:
        assert now
        return Fleet(
            0.0,
            self.clusters,
            self.best,
            epoch_matches=True,
            stale=self.stale,
            inventory=self.inventory,
        )

    def accept(self, clusters: int) -> None:
        self.best = clusters


class World:
    def __init__(
        self,
        server: ApiServer,
        mode: Mode = "enforce",
        limits: Limits = UNLIMITED,
        turns: Turns | None = None,
        moves: Callable[[World], Moves] | None = None,
        **namespaces: Mode,
    ) -> None:
        self.server = server
        self.patch, self.pause = server.patch, self._pass
        self.now, self.left = 1_000_000.0, math.inf
        self.facts, self.approved = Facts(), frozenset[str]()
        self.told: list[str] = []
        self.warned: dict[str, str] = {}
        self.sleeps: list[float] = []
        self.brakes = self._brakes(limits, rehearsed=False)
        self.reconciler = Reconciler(
            Writer(
                lambda *step: self.patch(*step),  # noqa: PLW0108 - a test may replace it
                FencedWriter(lambda: self.left),
            ),
            Modes(Remediate(mode=mode, namespaces=namespaces)),
            self.brakes,
            self._brakes(limits, rehearsed=True),
            lambda: self.now,
            lambda _gvr: AnnotationSink(self.patch),
            notify=lambda key: self.told.append(key[1].name),
            warned=lambda key, uid, text: self.warned.update({f"{key[1].name}/{uid}": text}),
            sleep=self.sleep,
            moves=moves and moves(self),
        )
        self.turns = turns
        self.take = self.reconciler.apply_record
        self.relist()

    def _brakes(self, limits: Limits, *, rehearsed: bool) -> Brakes:
        approved, now = (lambda: self.approved), (lambda: self.now)
        guard: Guard[str] = Guard(limits)
        return Brakes(guard, PLACEMENTS, self.facts, approved, now, rehearsed=rehearsed)

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await self.pause(seconds)

    async def _pass(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def waits(self) -> dict[str, str]:
        """What each object waits for."""
        return {key[1].name: wait.kind for key, wait in self.reconciler.waiting}

    def relist(self) -> None:
        listed(self.reconciler.targets(REPLICASETS), self.server.listing())

    def watch(self, name: str) -> None:
        """Let the watch tell of an object as it is stored now."""
        self.server.change(name)
        event = Event("MODIFIED", VERSION, self.server.item(name))
        self.reconciler.targets(REPLICASETS).apply(event)

    def add(self, namespace: str, *names: str) -> None:
        """Store objects in another namespace, too, in the same place."""
        store = self.reconciler.targets(REPLICASETS)
        self.server.change(*names)
        for name in names:
            body = {"metadata": {"name": name, "annotations": {"place": "us"}}}
            version, key = ResourceVersion(str(self.server.latest)), ObjectKey(namespace, name)
            item = Item(key, self.server.uid, version, json.dumps(body).encode())
            store.apply(Event("ADDED", version, item))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        loops = self.reconciler
        async with running(loops.resync(), loops.run(self.turns), loops.run(self.turns)):
            yield
            await self.idle()

    async def idle(self) -> None:
        """Wait until every worker waits."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def steady(self) -> None:
        """Wait until what limited a moment ago does no more."""
        await self.idle()
        self.now += SETTLE_SECONDS
        self.reconciler.weigh()
        await self.idle()

    def stream(self, *decisions: DecisionRecord) -> None:
        """Take in a whole new stream, as the hub sends it."""
        sending = StatusRecord(("the decisions are being sent",), "me")
        for record in (None, sending, *decisions, RELEASED, BOOKMARK):
            self.take(record)


async def test_only_objects_that_differ_are_patched() -> None:
    world = World(ApiServer(same="eu", other="us", undecided="us"))
    async with world.running():
        world.stream(_decision("same", "eu"), _decision("other", "eu"))
    assert world.server.patched == ["other"]
    assert world.server.places()["other"] == "eu"


async def test_all_is_settled_once_every_object_was_looked_at_by_who_may_write() -> None:
    world = World(ApiServer(a="us", b="us"))
    during, patch = list[bool](), world.server.patch

    async def looked(gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
        during.append(world.reconciler.settled)
        await patch(gvr, key, step)

    world.patch = looked
    async with world.running():
        assert not world.reconciler.settled
        world.stream(_decision("a", "eu"), _decision("b", "eu"))
        assert not world.reconciler.settled
        await until(lambda: world.reconciler.settled)
        assert world.server.places() == {"a": "eu", "b": "eu"}
        world.left = 0.0
        assert not world.reconciler.settled
    assert during == [False, False]


async def test_a_mass_of_changes_in_one_namespace_does_not_delay_those_of_another() -> None:
    world = World(ApiServer(**{f"large-{number}": "us" for number in range(500)}))
    few = [f"small-{number}" for number in range(10)]
    world.server.objects |= {name: {"place": "us"} for name in few}
    world.relist()
    world.add("other", *few)
    async with world.running():
        large = [_decision(f"large-{number}", "eu") for number in range(500)]
        world.stream(*large, *(_decision(name, "eu", namespace="other") for name in few))
        await until(lambda: len(world.server.patched) >= 500)
    assert {*few} <= {*world.server.patched[:24]}


async def test_no_more_objects_are_written_at_once_than_have_a_turn() -> None:
    world = World(ApiServer(a="us", b="us", c="us"), turns=Concurrency(1))
    at_once, most = 0, 0
    patch = world.server.patch

    async def counted(gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await patch(gvr, key, step)
        at_once -= 1

    world.patch = counted
    async with world.running():
        world.stream(*(_decision(name, "eu") for name in "abc"))
    assert (sorted(world.server.patched), most) == (["a", "b", "c"], 1)


async def test_a_patched_object_that_comes_back_by_the_watch_is_not_patched_again() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        store = world.reconciler.targets(REPLICASETS)
        store.apply(Event("MODIFIED", VERSION, world.server.item("a")))
    assert world.server.patched == ["a"]


async def test_a_write_that_comes_back_with_somebody_elses_change_is_put_right() -> None:
    """The watch tells of the latest state: one event may be of several writes."""
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.server.objects["a"]["place"] = "asia"
        world.watch("a")
    assert (world.server.patched, world.server.places()) == (["a", "a"], {"a": "eu"})


@pytest.mark.parametrize("other", [None, "asia"])
async def test_an_event_before_the_answer_to_the_write_is_planned_after_it(
    other: str | None,
) -> None:
    world = World(ApiServer(a="us"))
    patch = world.server.patch

    async def overtaken(gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
        await patch(gvr, key, step)
        if other is not None and len(world.server.patched) == 1:
            world.server.objects["a"]["place"] = other
        world.watch("a")
        await world.idle()

    world.patch = overtaken
    writes = 1 if other is None else 2
    async with world.running():
        world.stream(_decision("a", "eu"))
        await until(lambda: len(world.server.patched) == writes)
        await world.idle()
        await world.idle()
    assert (world.server.patched, world.server.places()) == (["a"] * writes, {"a": "eu"})
    assert remembered(world.reconciler, Apply) == []


async def test_a_decision_that_changes_during_the_write_is_written_after_it() -> None:
    world = World(ApiServer(a="us"))
    patch = world.server.patch

    async def meanwhile(gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
        await patch(gvr, key, step)
        if len(world.server.patched) == 1:
            world.take(_decision("a", "asia"))
            world.take(BOOKMARK)
            await world.idle()

    world.patch = meanwhile
    async with world.running():
        world.stream(_decision("a", "eu"))
        await until(lambda: world.server.patched)
        await world.idle()
        await world.idle()
        assert world.server.places() == {"a": "eu"}
        world.watch("a")
    assert (world.server.patched, world.server.places()) == (["a", "a"], {"a": "asia"})


async def test_what_somebody_changed_during_a_hold_is_put_right_when_it_ends() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.watch("a")
        await world.idle()
        world.take(HELD)
        world.server.objects["a"]["place"] = "asia"
        world.watch("a")
        await world.idle()
        assert world.server.patched == ["a"]
        world.take(RELEASED)
    assert (world.server.patched, world.server.places()) == (["a", "a"], {"a": "eu"})


async def test_a_mass_is_weighed_as_a_whole_although_its_decisions_come_one_by_one() -> None:
    """Each is recorded while others are waited for, and none is written before all are there."""
    world = World(ApiServer(**dict.fromkeys("abcdef", "us")), limits=Limits(mass_share=0.5))
    late = [_decision(name, "eu") for name in "bcdef"]

    async def sleep(seconds: float) -> None:
        if late:
            world.take(late.pop())
            world.take(BOOKMARK)
            await world.idle()
            assert world.brakes.waiting
        world.now += seconds / 2
        await asyncio.sleep(0)

    world.pause = sleep
    async with world.running():
        world.stream()
        await world.idle()
        world.take(_decision("a", "eu"))
        world.take(BOOKMARK)
        await until(lambda: len(world.waits()) == 6)
    assert (late, world.server.patched) == ([], [])
    assert {*world.waits().values()} == {"mass"}


async def _approved_and_held(world: World, *names: str) -> None:
    """Have a person approve the first object's move, while a fleet that shrank holds it."""
    world.facts.clusters = 5
    world.stream(*(_decision(name, "eu") for name in names))
    await until(lambda: len(world.waits()) == len(names))
    (key,) = [key for key, _ in world.reconciler.waiting if key[1].name == names[0]]
    assert world.reconciler.apply([key]) == [key]
    await until(lambda: world.waits().get(names[0]) == "fleet")


async def test_a_decision_that_is_taken_back_at_once_leaves_what_a_person_approved() -> None:
    world = World(ApiServer(a="us"), "manual", limits=Limits(shrink=0.3))
    turns = [_decision("a", "eu")]

    async def sleep(seconds: float) -> None:
        if turns:
            world.take(turns.pop())
        else:
            world.now += seconds
        await asyncio.sleep(0)

    async with world.running():
        await _approved_and_held(world, "a")
        world.pause = sleep
        world.take(_decision("a", "us"))
        await until(lambda: not turns)
        await world.idle()
        world.facts.clusters = 10
        world.reconciler.weigh()
    assert (world.server.patched, world.waits()) == (["a"], {})


async def test_a_new_stream_while_all_are_planned_leaves_what_a_person_approved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It makes every decision unconfirmed, and what is not decided needs no step."""
    others = [f"o{number}" for number in range(2 * TURN)]
    world = World(ApiServer(**dict.fromkeys([*others, "a"], "us")), "manual", Limits(shrink=0.3))
    dropped, drop = list[Key](), world.brakes.drop

    def drop_and_tell(key: Key) -> None:
        if not dropped:
            asyncio.get_running_loop().call_soon(world.take, None)
        dropped.append(key)
        drop(key)

    async with world.running():
        await _approved_and_held(world, "a", *others)
        monkeypatch.setattr(world.brakes, "drop", drop_and_tell)
        world.relist()
        await until(lambda: dropped)
        await world.idle()
        world.stream(*(_decision(name, "eu") for name in ("a", *others)))
        await until(lambda: len(world.waits()) == len(others) + 1)
        world.facts.clusters = 10
        world.reconciler.weigh()
        await until(lambda: world.server.patched)
    assert world.server.patched == ["a"]


async def test_a_note_is_taken_off_once_what_was_asked_for_is_there() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        assert world.server.objects["a"][REQUESTED] == '{"place":"us"}'
        world.relist()
        world.take(_decision("a", "us"))
        await world.idle()
        assert world.server.places() == {"a": "us"}
        world.relist()
    assert world.server.patched == ["a", "a"]
    assert world.server.objects["a"].keys() == {"place", HISTORY}


async def test_what_is_written_is_told_by_its_keys() -> None:
    world = World(ApiServer(a="us"))
    world.server.objects["b"] = {"place": "eu", REQUESTED: "{}"}
    world.relist()
    decision = Decision({"place": "eu"}, labels={"tier": "gold"})
    with capture_logs() as logs:
        async with world.running():
            both = DecisionRecord(_target("a"), "u", decision, 1, "data", "")
            world.stream(both, _decision("b", "eu"))
    said = {line["key"]: line for line in logs if line["event"] == "remediated"}
    assert (said["ns/a"]["annotations"], said["ns/a"]["labels"]) == (
        [REQUESTED, "place"],
        ["tier"],
    )
    assert said["ns/b"]["annotations"] == [REQUESTED]


async def test_the_same_decision_again_patches_nothing() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.relist()
        world.take(_decision("a", "eu"))
    assert world.server.patched == ["a"]


async def test_what_somebody_else_changed_is_put_right() -> None:
    world = World(ApiServer(a="eu"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        assert world.server.patched == []
        world.server.objects["a"] = {"place": "us"}
        world.relist()
    assert world.server.patched == ["a"]


async def test_a_patch_is_in_the_trace_of_its_decision_and_one_after_drift_is_not() -> None:
    world = World(ApiServer(a="us"))
    trace, parent = "a" * 32, "b" * 16
    decided = msgspec.structs.replace(_decision("a", "eu"), trace=f"00-{trace}-{parent}-01")
    with recorded("remediate") as collected:
        async with world.running():
            world.stream(decided)
            await world.idle()
            world.watch("a")
            await world.idle()
            world.server.objects["a"] |= {"place": "us"}
            world.watch("a")
    assert world.server.patched == ["a", "a"]
    first, second = collected.named("remediate")
    assert (first.trace, first.parent) == (trace, parent)
    assert first.attributes["kube_sync.decision.seq"] == str(decided.seq)
    assert second.parent == ""
    assert second.trace != trace
    assert "kube_sync.decision.seq" not in second.attributes


async def test_an_object_of_a_collection_that_is_not_watched_is_left_alone() -> None:
    world = World(ApiServer(a="us"))
    other = Target("apps", "v1", "deployments", "a", "ns")
    async with world.running():
        world.stream(DecisionRecord(other, "u", Decision({"place": "eu"}), 1, "data", ""))
    assert world.server.patched == []


async def test_before_the_first_stream_nothing_is_written() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.take(_decision("a", "eu"))
    assert world.server.patched == []


async def test_while_held_nothing_is_written_and_the_release_catches_up() -> None:
    world = World(ApiServer(a="us", b="us"))
    async with world.running():
        world.stream()
        world.take(HELD)
        world.take(_decision("a", "eu"))
        world.take(_decision("b", "eu"))
        world.relist()
        await world.idle()
        assert world.server.patched == []
        world.take(RELEASED)
    assert sorted(world.server.patched) == ["a", "b"]


async def test_a_new_stream_holds_until_it_is_released() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", "us"))
        world.take(None)
        world.take(_decision("a", "eu"))
        await world.idle()
        assert world.server.patched == []
        world.take(RELEASED)
    assert world.server.patched == ["a"]


async def test_a_new_stream_forgets_what_it_does_not_confirm() -> None:
    world = World(ApiServer(kept="eu", dropped="eu"))
    async with world.running():
        world.stream(_decision("kept", "eu"), _decision("dropped", "eu"))
        world.stream(_decision("kept", "eu"))
        await world.idle()
        world.server.objects = {"kept": {"place": "us"}, "dropped": {"place": "us"}}
        world.relist()
    assert world.server.patched == ["kept"]


async def test_between_release_and_bookmark_only_what_is_confirmed_is_written() -> None:
    """The two may come in different packets; an old decision must not slip in between."""
    world = World(ApiServer(kept="us", dropped="us"))
    async with world.running():
        world.stream(_decision("kept", "us"), _decision("dropped", "us"))
        await world.idle()
        world.server.objects = {"kept": {"place": "eu"}, "dropped": {"place": "eu"}}
        world.take(None)
        world.relist()
        world.take(_decision("kept", "us"))
        world.take(RELEASED)
        await world.idle()
        world.take(BOOKMARK)
    assert world.server.patched == ["kept"]


async def test_a_resource_deleted_before_a_new_stream_confirms_it_is_forgotten() -> None:
    """The hub tells a deletion in place of the decision that was to be sent."""
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", "us"))
        world.take(None)
        for record in (DeletedRecord(_target("a"), 2), RELEASED, BOOKMARK):
            world.take(record)
        world.server.objects["a"] = {"place": "eu"}
        world.relist()
    assert world.server.patched == []


async def test_a_deleted_resource_is_not_decided_any_more() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", "us"))
        world.take(DeletedRecord(_target("a"), 2))
        world.take(DeletedRecord(_target("unknown"), 3))
        world.server.objects["a"] = {"place": "eu"}
        world.relist()
    assert world.server.patched == []


async def test_a_decision_on_an_earlier_object_of_that_name_is_not_written() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu", uid="earlier"))
    assert world.server.patched == []


async def test_an_empty_placement_is_not_written() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", '{"clusters":{}}', key=PLACEMENT))
    assert world.server.patched == []


@pytest.mark.parametrize("mode", ["off", "dry-run", "manual"])
async def test_any_mode_but_enforce_writes_nothing(mode: Mode) -> None:
    world = World(ApiServer(a="us"), mode)
    async with world.running():
        world.stream(_decision("a", "eu"))
        world.relist()
    assert world.server.patched == []


async def test_an_object_that_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = Timers(monkeypatch)
    world = World(ApiServer(a="us"))
    world.server.failures = [NotFound("404")]
    async with world.running():
        world.stream(_decision("a", "eu"))
    assert world.server.patched == ["a"]
    assert timers.seconds == []


@pytest.mark.parametrize(
    ("error", "at_least", "at_most"),
    [
        (Conflict("409"), 0.5, 1.0),
        (Refused("403"), 60.0, 60.0),
        (Retriable("503"), 0.5, 1.0),
        (Retriable("429", 7.0), 7.0, 7.0),
        (Retriable("503", 0.0), 0.5, 1.0),
    ],
)
async def test_a_failed_patch_is_tried_again_when_the_server_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, error: SyncError, at_least: float, at_most: float
) -> None:
    timers = Timers(monkeypatch)
    world = World(ApiServer(a="us"))
    world.server.failures = [error]
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        (seconds,) = timers.seconds
        assert at_least <= seconds <= at_most
        assert world.server.patched == ["a"]
        world.now += seconds
        timers.fire()
        await world.idle()
    assert world.server.places() == {"a": "eu"}


async def test_repeated_failures_wait_longer_until_one_patch_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    world = World(ApiServer(a="us"))
    world.server.failures = [Retriable("503")] * 3
    waits: list[float] = []
    async with world.running():
        world.stream(_decision("a", "eu"))
        for _ in range(3):
            await world.idle()
            waits += timers.seconds
            timers.fire()
        await world.idle()
        world.server.failures = [Retriable("503")]
        world.relist()
        world.take(_decision("a", "asia"))
        await world.idle()
        waits += timers.seconds
    steps = (1.0, 2.0, 4.0, 1.0)
    assert all(step / 2 <= w <= step for w, step in zip(waits, steps, strict=True))


@pytest.mark.parametrize("end", [Terminal("422"), NotFound("404"), None])
async def test_a_key_that_needs_no_more_tries_leaves_no_backoff_behind(
    monkeypatch: pytest.MonkeyPatch, end: SyncError | None
) -> None:
    """Every object that ever conflicted would be remembered for ever."""
    timers = Timers(monkeypatch)
    world = World(ApiServer(a="us"))
    world.server.failures = [Conflict("409"), *([end] if end else [])]
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        if end is None:  # whoever was first did what was wanted
            world.server.objects["a"] = {"place": "eu"}
            world.relist()
        timers.fire()
    assert remembered(world.reconciler, Backoff) == []


async def test_what_retrying_cannot_help_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    world = World(ApiServer(a="us", b="us"))
    world.server.failures = [Terminal("422")]
    async with world.running():
        world.stream(_decision("a", "eu"), _decision("b", "eu"))
        await world.idle()
        assert timers.seconds == []
    assert sorted(world.server.patched) == ["a", "b"]


async def test_a_retry_takes_the_decision_of_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue holds keys, never decisions."""
    timers = Timers(monkeypatch)
    world = World(ApiServer(a="us"))
    world.server.failures = [Retriable("503")]
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.take(HELD)
        world.take(_decision("a", "asia"))
        world.take(RELEASED)
        await world.idle()
        timers.fire()
    assert world.server.places() == {"a": "asia"}


class Stream:
    """A StreamClient that has this much to say."""

    def __init__(self, *records: Record | None) -> None:
        self._records = records
        self.closed = False

    async def records(self) -> AsyncGenerator[Record | None]:
        try:
            for record in self._records:
                yield record
            await asyncio.Event().wait()
        finally:
            self.closed = True


async def test_every_record_of_the_stream_is_taken_in() -> None:
    world = World(ApiServer(a="us"))
    stream = Stream(None, _decision("a", "eu"), RELEASED, BOOKMARK)
    async with world.running(), running(follow(stream, world.reconciler.apply_record)):
        await world.idle()
    assert world.server.patched == ["a"]
    assert stream.closed, "a stream that nobody reads must not stay open"


async def test_a_hold_that_is_told_twice_still_holds() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream()
        world.take(HELD)
        world.take(HELD)
        world.take(_decision("a", "eu"))
    assert world.server.patched == []


async def test_a_key_that_is_not_decided_any_more_is_removed() -> None:
    world = World(ApiServer(a="us"))
    world.server.objects["a"] = {"place": "eu", "other": "1", REQUESTED: '{"place":null}'}
    world.relist()
    async with world.running():
        world.stream(_decision("a", "2", key="other"))
    assert world.server.objects["a"].keys() == {"other", REQUESTED, HISTORY}


async def test_an_undefined_decision_touches_nothing_and_is_told() -> None:
    world = World(ApiServer(a="us"))
    world.server.objects["a"] |= {REQUESTED: '{"place":"eu"}'}
    world.relist()
    async with world.running():
        world.stream(DecisionRecord(_target("a"), "u", None, 1, "policy", ""))
    assert (world.server.patched, world.waits(), world.told) == ([], {"a": "undefined"}, ["a"])


async def test_what_waits_is_counted_once_and_no_longer_when_it_is_over() -> None:
    world = World(ApiServer(a="us"))
    failed = DecisionRecord(_target("a"), "", None, 1, "data", "", failure="conflict")
    async with world.running():
        world.stream(failed)
        await world.idle()
        world.take(failed)
        await world.idle()
        assert (world.told, _held("failed")) == (["a"], 1)
        world.take(_decision("a", "us"))
        world.take(BOOKMARK)
    assert (world.waits(), _held("failed")) == ({}, 0)


async def test_a_process_that_may_not_write_writes_nothing_until_it_may() -> None:
    world = World(ApiServer(a="us"))
    world.left = 0.0
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        assert world.server.patched == []
        assert world.reconciler.holds == ("another remediator is active",)
        world.left = 10.0
        world.reconciler.lead()
    assert world.server.patched == ["a"]


async def test_others_get_their_turns_while_thousands_of_objects_are_taken_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Among them the renewal of the Lease, which would be lost, and all of it begun anew."""
    names = [f"o{number}" for number in range(2_000)]
    world = World(ApiServer(**dict.fromkeys(names, "eu")))
    worked, most = 0, 0

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: object) -> object:
            nonlocal worked
            worked += 1
            return function(*given)

        return counted

    async def renewing() -> None:
        nonlocal worked, most
        while True:
            most, worked = max(most, worked), 0
            await asyncio.sleep(0)

    monkeypatch.setattr(annotation_sink, "plan", counting(plan))
    monkeypatch.setattr(brakes, "read_history", counting(read_history))
    async with running(renewing()), world.running():
        world.stream(*(_decision(name, "eu") for name in names))
        for _ in range(100):
            await asyncio.sleep(0)
    assert 0 < most <= 3 * TURN  # a look and two workers


async def test_who_loses_and_gets_the_lease_while_it_begins_begins_once_more() -> None:
    names = [f"o{number}" for number in range(2 * TURN)]
    world = World(ApiServer(**dict.fromkeys(names, "us")))
    async with world.running():
        world.stream(*(_decision(name, "eu") for name in names))
        await until(lambda: world.facts.begun > 0)
        assert not world.reconciler.active
        world.reconciler.lead()
        await until(lambda: len(world.server.patched) == len(names))
    assert world.facts.begun == 2 * 2  # what is written, and what is rehearsed


async def test_a_process_that_was_stalled_writes_nothing_more() -> None:
    """Its time was over between two PATCHes, and it was not told."""

    class Slow(ApiServer):
        async def patch(self, gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
            world.left = 0.0
            await super().patch(gvr, key, step)

    world = World(Slow(a="us", b="us", c="us"))
    world.left = 1.0
    async with world.running():
        world.stream(*(_decision(name, "eu") for name in "abc"))
    assert len(world.server.patched) == 1


async def test_a_patch_without_an_answer_ends_with_the_time_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Silent(ApiServer):
        async def patch(self, gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
            assert (gvr, key, step.uid) == (REPLICASETS, _key("a"), self.uid)
            await asyncio.Event().wait()

    timers = Timers(monkeypatch)
    world = World(Silent(a="us"))
    world.left = 0.01
    async with world.running():
        world.stream(_decision("a", "eu"))
        await until(lambda: timers.seconds)
    assert _outcomes("fenced")


async def test_what_is_due_while_another_one_leads_is_done_when_this_one_may_write_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wait that ends meanwhile is the only one who knows of its key."""
    timers = Timers(monkeypatch)
    world = World(ApiServer(a="us"))
    world.server.failures = [Retriable("503")]
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.left = 0.0  # for so short a time that nobody is told
        timers.fire()
        await world.idle()
        assert world.server.patched == ["a"]
        world.left = math.inf
        world.reconciler.weigh()
        await world.idle()
    assert world.server.patched == ["a", "a"]


async def test_nothing_is_written_before_all_collections_are_listed() -> None:
    world = World(ApiServer(a="us"))
    deployments = GroupVersionResource("apps", "v1", "deployments")
    store = world.reconciler.targets(deployments)
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        assert world.server.patched == []
        listed(store, Listing([], VERSION))
    assert world.server.patched == ["a"]


@pytest.mark.parametrize(
    ("mode", "kind", "patched"),
    [("dry-run", "dry-run", []), ("manual", "manual", []), ("off", None, []), ("enforce", None, 1)],
)
async def test_a_namespace_may_have_a_mode_of_its_own(
    mode: Mode, kind: str | None, patched: object
) -> None:
    world = World(ApiServer(a="us"), "off" if mode == "enforce" else "enforce", ns=mode)
    async with world.running():
        world.stream(_decision("a", "eu"))
    assert world.waits() == ({"a": kind} if kind else {})
    assert len(world.server.patched) == (patched or 0)


async def test_a_dry_run_says_what_it_would_do() -> None:
    world = World(ApiServer(a="us"), "dry-run")
    async with world.running():
        world.stream(_decision("a", "eu"))
    ((_, wait),) = world.reconciler.waiting
    assert wait.changes == {"place": ("us", "eu")}


async def test_what_a_person_lets_through_is_carried_out_and_nothing_else() -> None:
    world = World(ApiServer(a="us", b="us"), "manual")
    async with world.running():
        world.stream(_decision("a", "eu"), _decision("b", "eu"))
        await world.idle()
        assert world.waits() == {"a": "manual", "b": "manual"}
        (key,) = [key for key, _ in world.reconciler.waiting if key[1].name == "a"]
        assert world.reconciler.apply([key]) == [key]
        await world.idle()
        assert world.reconciler.apply([key]) == []
        await world.idle()
        assert (world.server.patched, world.waits()) == (["a"], {"b": "manual"})
        world.relist()
        world.take(_decision("a", "asia"))
        world.take(BOOKMARK)
    assert world.waits()["a"] == "manual"


async def test_a_fleet_that_shrank_holds_moves_and_nothing_else() -> None:
    world = World(ApiServer(a="us", b="us"), limits=Limits(shrink=0.3))
    world.facts.clusters = 5
    async with world.running():
        world.stream(_decision("a", "eu"), _decision("b", "1", key="other"))
        await world.idle()
        assert (world.server.patched, world.waits()) == (["b"], {"a": "fleet"})
        world.facts.clusters = 10
        world.reconciler.weigh()
    assert world.server.patched == ["b", "a"]
    assert world.waits() == {}


async def test_a_mass_of_moves_waits_for_its_approval_whatever_batches_it_comes_in() -> None:
    world = World(ApiServer(**dict.fromkeys("abcdef", "us")), limits=Limits(mass_share=0.5))
    async with world.running():
        world.stream()
        await world.idle()
        for name in "abcdef":
            world.take(_decision(name, "eu"))
            world.take(BOOKMARK)
        await world.idle()
        assert world.server.patched == []
        approve = {wait.approve for _, wait in world.reconciler.waiting}
        assert {*world.waits().values()} == {"mass"}
        world.approved = frozenset(name for name in approve if name)
        world.reconciler.weigh()
    assert sorted(world.server.patched) == [*"abcdef"]


async def test_what_is_in_dry_run_holds_up_nobody_and_says_that_it_would_be_held() -> None:
    """A mass is one of what would be written; and one of rehearsed moves is told as well."""
    limits, names = Limits(mass_share=0.5), [f"d{number}" for number in range(4)]
    world = World(ApiServer(a="us", b="us", c="us"), limits=limits, dry="dry-run")
    dry = [_decision(name, "eu", namespace="dry") for name in names]
    async with world.running():
        world.add("dry", *names)
        world.stream(_decision("a", "eu"), *dry)
        await world.idle()
        assert world.server.patched == ["a"]
        waits = {key[1].name: wait for key, wait in world.reconciler.waiting}
        assert {name: wait.kind for name, wait in waits.items()} == dict.fromkeys(names, "dry-run")
        (reason,) = {wait.reason for wait in waits.values()}
        assert reason == "it would wait (mass): 4 of 4 workloads of namespace dry would move"
        world.approved = frozenset(wait.approve or "" for wait in waits.values())
        world.reconciler.weigh()
        await world.idle()
        assert {w.reason for _, w in world.reconciler.waiting} == {"it would be written"}
    assert world.server.patched == ["a"]


@pytest.mark.parametrize("mode", ["off", "dry-run"])
async def test_objects_that_are_never_written_hide_no_mass_of_others(mode: Mode) -> None:
    """All of those that may be written would move: how many more there are does not matter."""
    world = World(ApiServer(a="us", b="us"), limits=Limits(mass_share=0.5), other=mode)
    async with world.running():
        world.add("other", *(f"o{number}" for number in range(9)))
        world.stream(_decision("a", "eu"), _decision("b", "eu"))
        await world.idle()
        assert (world.server.patched, world.waits()) == ([], {"a": "mass", "b": "mass"})
        (reason,) = {wait.reason for _, wait in world.reconciler.waiting}
        assert reason == "2 of 2 workloads of namespace ns would move"


async def test_one_namespace_over_its_share_holds_nothing_of_another() -> None:
    world = World(ApiServer(a="us", b="us", c="us"), limits=Limits(mass_share=0.5))
    names = [f"o{number}" for number in range(4)]
    async with world.running():
        world.add("other", *names)
        others = [_decision(name, "eu", namespace="other") for name in names]
        world.stream(_decision("a", "eu"), *others)
        await world.idle()
        assert (world.server.patched, world.waits()) == (["a"], dict.fromkeys(names, "mass"))
        assert {wait.reason for _, wait in world.reconciler.waiting} == {
            "4 of 4 workloads of namespace other would move"
        }


async def test_a_rehearsed_approval_makes_no_smaller_fleet_normal_where_something_moves() -> None:
    limits = Limits(shrink=0.3, mass_floor=9)
    world = World(ApiServer(a="us", b="us"), limits=limits, dry="dry-run")
    world.facts.clusters = 5
    async with world.running():
        world.add("dry", "d")
        world.stream(_decision("d", "eu", namespace="dry"))
        await world.idle()
        ((_, wait),) = world.reconciler.waiting
        world.approved = frozenset([wait.approve or ""])
        world.reconciler.weigh()
        await world.idle()
        assert {w.reason for _, w in world.reconciler.waiting} == {"it would be written"}
        world.take(_decision("a", "eu"))
        world.take(BOOKMARK)
        await world.idle()
        assert (world.server.patched, world.waits()) == ([], {"a": "fleet", "d": "dry-run"})
        world.approved |= {w.approve or "" for k, w in world.reconciler.waiting if k[1].name == "a"}
        world.reconciler.weigh()
    assert (world.server.patched, world.facts.best) == (["a"], 5)


async def test_what_was_refused_is_no_part_of_a_mass() -> None:
    """It waits until it or its decision changes; others must not wait with it."""
    world = World(ApiServer(**dict.fromkeys("abcd", "us")), limits=Limits(mass_share=0.5))
    world.server.failures = [Terminal("422"), Terminal("422")]
    async with world.running():
        world.stream(_decision("a", "eu"), _decision("b", "eu"))
        await world.idle()
        assert world.waits() == {"a": "refused", "b": "refused"}
        world.take(HELD)
        world.take(RELEASED)
        await world.idle()
        for name in "cd":
            world.take(_decision(name, "eu"))
        world.take(BOOKMARK)
        await world.idle()
        assert sorted(world.server.patched) == ["a", "b", "c", "d"]
        world.relist()
        world.take(_decision("a", "asia"))
        world.take(BOOKMARK)
        await world.idle()
    assert world.waits() == {}


async def test_what_is_forbidden_is_no_part_of_a_mass_until_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    world = World(ApiServer(**dict.fromkeys("abcd", "us")), limits=Limits(mass_share=0.5))
    world.server.failures = [Refused("403"), Refused("403")]
    async with world.running():
        world.stream(_decision("a", "eu"), _decision("b", "eu"))
        await world.idle()
        assert world.waits() == {"a": "forbidden", "b": "forbidden"}
        for name in "cd":
            world.take(_decision(name, "eu"))
        world.take(BOOKMARK)
        await world.idle()
        assert sorted(world.server.patched) == ["a", "b", "c", "d"]
        world.relist()
        await world.idle()
        assert world.waits() == {"a": "forbidden", "b": "forbidden"}
        world.now += 60.0
        world.take(_decision("c", "us"))
        world.take(BOOKMARK)
        timers.fire()
        await world.idle()
        assert world.waits() == {"a": "mass", "b": "mass", "c": "mass"}


async def test_what_stays_forbidden_is_tried_once_a_minute_and_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    world = World(ApiServer(a="us", b="us"), limits=Limits(mass_floor=1, mass_share=0))
    world.server.failures = [Refused("403")] * 3
    async with world.running():
        world.stream(_decision("a", "eu"))
        for tries in (1, 2, 3):
            await world.idle()
            assert (world.server.patched, world.waits()) == (["a"] * tries, {"a": "forbidden"})
            assert not world.brakes.waiting
            world.now += 59.0
            world.relist()  # somebody writes its status
            await world.idle()
            timers.fire()  # too early, by the clock of another
            await world.idle()
            assert len(world.server.patched) == tries
            world.now += 1.0
            timers.fire()
        await world.idle()
        assert world.server.places() == {"a": "eu", "b": "us"}
    assert (world.told, world.waits()) == (["a"], {})


async def test_another_decision_on_what_is_forbidden_is_tried_at_once() -> None:
    """What forbids a PATCH may look at what it says."""
    world = World(ApiServer(a="us"))
    world.server.failures = [Refused("403")]
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.take(_decision("a", "asia"))
        world.take(BOOKMARK)
    assert world.server.places() == {"a": "asia"}


async def test_who_may_write_again_tries_what_was_forbidden_at_once() -> None:
    world = World(ApiServer(a="us"))
    world.server.failures = [Refused("403")]
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.reconciler.lead()
    assert world.server.places() == {"a": "eu"}


async def test_a_forbidden_object_that_is_gone_is_forgotten() -> None:
    world = World(ApiServer(a="us"))
    world.server.failures = [Refused("403")]
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.server.objects = {}
        world.relist()
        await world.idle()
        world.server.objects = {"a": {"place": "us"}}
        world.relist()
    assert world.server.patched == ["a", "a"]


async def test_what_a_rival_keeps_is_no_part_of_a_mass_until_it_may_be_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    limits = Limits(mass_share=0.5)
    world = World(ApiServer(a="us", b="us", c="us", d="us"), limits=limits)
    async with world.running():
        for name in "ab":
            await _fight(world, name)
        assert world.waits() == {"a": "rival", "b": "rival"}
        for name in "cd":
            world.take(_decision(name, "eu"))
        world.take(BOOKMARK)
        await world.idle()
        assert sorted(world.server.patched[-2:]) == ["c", "d"]
        world.relist()
        await world.idle()
        world.now += 600.0
        world.take(_decision("c", "us"))
        world.take(BOOKMARK)
        timers.fire()
        await world.idle()
        assert world.waits() == {"a": "mass", "b": "mass", "c": "mass"}


async def _fight(world: World, name: str) -> None:
    """Somebody puts a placement back until that is left to them."""
    if world.server.patched == []:
        world.stream(_decision(name, "eu"))
    else:
        world.take(_decision(name, "eu"))
        world.take(BOOKMARK)
    for _ in range(3):
        await world.idle()
        world.now += 11.0
        world.server.objects[name] = {"place": "us"}
        world.relist()
    await world.idle()


async def test_a_change_of_one_object_does_not_wait_for_others() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream()
        await world.idle()
        world.sleeps.clear()
        record = DecisionRecord(_target("a"), "u", Decision({"place": "eu"}), 2, "object", "")
        world.take(record)
        world.take(BOOKMARK)
    assert (world.server.patched, world.sleeps) == (["a"], [])


async def test_what_the_budget_holds_goes_when_its_time_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    world = World(ApiServer(a="us", b="us"), limits=Limits(moves=Rate(60, 1)))
    async with world.running():
        world.stream(_decision("a", "eu"), _decision("b", "eu"))
        await world.idle()
        assert len(world.server.patched) == 1
        assert [*world.waits().values()] == ["budget"]
        world.now += 1.5
        timers.fire()
        await world.idle()
        assert len(world.server.patched) == 2


async def test_a_workload_is_only_emptied_where_the_policy_says_so() -> None:
    world = World(ApiServer(a="us", b="us"))
    evicts = Decision({"place": ""}, evict=True)
    async with world.running():
        world.stream(_decision("a", ""), DecisionRecord(_target("b"), "u", evicts, 1, "data", ""))
    assert (world.server.patched, world.waits()) == (["b"], {"a": "empty"})


async def test_a_workload_is_not_placed_where_there_is_no_cluster_until_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    world = World(ApiServer(a="us", b="us", c="us"))
    world.facts.inventory = Inventory(frozenset(["us", "eu-1"]))
    evicts = Decision({"place": "eu"}, evict=True)
    async with world.running():
        world.stream(_decision("a", "eu"), DecisionRecord(_target("b"), "u", evicts, 1, "data", ""))
        await world.idle()
        assert (world.server.patched, world.waits()) == (["b"], {"a": "unseen"})
        world.now += 2.0
        timers.fire()
        await world.idle()
        (wait,) = [wait for _, wait in world.reconciler.waiting]
        assert wait.kind == "nowhere"
        assert wait.reason == (
            "it would run on no cluster: the fleet has no cluster 'eu' (nearest: eu-1, us)"
        )
        assert world.warned == {"b/u": "the fleet has no cluster 'eu' (nearest: eu-1, us)"}
        world.facts.inventory = Inventory(frozenset(["us", "eu"]))
        world.reconciler.weigh()
        await world.idle()
        assert (world.server.patched, world.waits()) == (["b", "a"], {})
    assert world.warned.keys() == {"b/u"}


async def test_a_placement_on_some_unknown_clusters_is_written_and_warned_of() -> None:
    world = World(ApiServer(a="us"))
    world.facts.inventory = Inventory(frozenset(["us", "eu"]))
    async with world.running():
        world.stream(_decision("a", "eu,atlantis"))
    assert world.server.places() == {"a": "eu,atlantis"}
    assert world.warned == {"a/u": "the fleet has no cluster 'atlantis' (nearest: us, eu)"}


async def test_who_keeps_changing_an_object_back_gets_it_until_another_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    world = World(ApiServer(a="us"))
    world.server.objects["a"] = {"other": "theirs"}
    world.relist()
    rivals = _sample("kube_sync_remediation_rivals_total")
    async with world.running():
        world.stream(_decision("a", "ours", key="other"))
        for _ in range(5):
            await world.idle()
            world.server.objects["a"] = {"other": "theirs"}
            world.relist()
        await world.idle()
        assert (world.server.patched, world.waits()) == (["a"] * 3, {"a": "rival"})
        assert timers.seconds == [60.0]
        assert _sample("kube_sync_remediation_rivals_total") == rivals + 1
        world.take(_decision("a", "ours too", key="other"))
        world.take(BOOKMARK)
    assert len(world.server.patched) == 4


async def test_what_is_refused_waits_until_the_object_or_its_decision_changes() -> None:
    world = World(ApiServer(a="us"))
    world.server.failures = [Terminal("422"), Terminal("422")]
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.take(HELD)  # when that ends, all are looked at again
        world.take(RELEASED)
        await world.idle()
        assert (len(world.server.patched), world.waits()) == (1, {"a": "refused"})
        world.take(_decision("a", "asia"))
        world.take(BOOKMARK)
        await world.idle()
        assert len(world.server.patched) == 2
        world.relist()
    assert len(world.server.patched) == 3
    assert world.waits() == {}


async def test_what_was_written_is_not_written_again_before_the_watch_tells() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.take(HELD)
        world.take(RELEASED)
    assert world.server.patched == ["a"]


async def test_an_object_that_is_deleted_is_forgotten_in_every_part() -> None:
    world = World(ApiServer(a="us"), limits=Limits(shrink=0.3))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        assert world.server.patched == ["a"]
        world.relist()
        world.facts.clusters = 1
        world.take(_decision("a", "asia"))
        world.take(BOOKMARK)
        await world.idle()
        assert world.waits() == {"a": "fleet"}
        world.server.objects = {}
        world.relist()
        world.take(DeletedRecord(_target("a"), 2))
        world.take(BOOKMARK)
        await world.idle()
    assert world.waits() == {}
    assert not world.brakes.waiting
    assert remembered(world.reconciler, ObjectKey) == []


async def test_an_object_that_is_recreated_is_weighed_anew() -> None:
    world = World(ApiServer(a="us"), limits=Limits(shrink=0.3))
    world.facts.clusters = 1
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.server.uid = "v"
        world.relist()
        world.take(_decision("a", "eu", uid="v"))
        world.take(BOOKMARK)
        await world.idle()
        assert [wait.uid for _, wait in world.reconciler.waiting] == ["v"]
        world.facts.clusters = 10
        world.reconciler.weigh()
    assert world.server.patched == ["a"]


async def test_what_is_held_is_weighed_again_by_and_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fleet gets stale without anybody telling."""
    monkeypatch.setattr(reconciler, "_RESYNC_SECONDS", 0.001)
    world = World(ApiServer(a="us"), limits=Limits(shrink=0.3))
    world.facts.clusters = 1
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.facts.clusters = 10
        world.now += 1
        await until(lambda: world.server.patched)


def _held(reason: str) -> float:
    return REGISTRY.get_sample_value("kube_sync_remediation_held", {"reason": reason}) or 0


def _sample(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0


def _outcomes(word: str) -> float:
    labels = {"outcome": word}
    return REGISTRY.get_sample_value("kube_sync_remediations_total", labels) or 0
