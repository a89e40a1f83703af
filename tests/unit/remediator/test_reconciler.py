from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from structlog.testing import capture_logs

from kube_sync.decisions.decision import REQUESTED, Decision
from kube_sync.decisions.placement import PLACEMENT
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    Record,
    StatusRecord,
    Target,
)
from kube_sync.errors import Conflict, NotFound, Refused, Retriable, SyncError, Terminal
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediator.plan import Apply, Forget
from kube_sync.remediator.reconciler import Mode, Reconciler
from kube_sync.remediator.streamclient import StreamClient
from tests.fakes.listing import Listing, listed
from tests.unit.async_tools import Timers, running

REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
VERSION = ResourceVersion("1")
HELD = StatusRecord(("loading",), "me")
RELEASED = StatusRecord((), "me")
BOOKMARK = BookmarkRecord(1, "me")


def _key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def _target(name: str) -> Target:
    return Target("apps", "v1", "replicasets", name, "ns")


def _decision(name: str, text: str, uid: str = "u", key: str = "place") -> DecisionRecord:
    return DecisionRecord(_target(name), uid, Decision({key: text}), 1, "data", "")


class ApiServer:
    """What is stored, and how PATCHes are answered; the reconciler's Store follows it."""

    def __init__(self, **annotations: str) -> None:
        self.objects = {name: {"place": text} for name, text in annotations.items()}
        self.patched: list[str] = []
        self.failures: list[SyncError] = []

    async def patch(self, gvr: GroupVersionResource, key: ObjectKey, step: Apply | Forget) -> None:
        assert (gvr, step.version) == (REPLICASETS, VERSION)
        self.patched.append(key.name)
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        if isinstance(step, Forget):
            del self.objects[key.name][REQUESTED]
            return
        assert step.uid == "u"
        self.objects[key.name] |= step.annotations

    def places(self) -> dict[str, str]:
        return {name: found["place"] for name, found in self.objects.items()}

    def item(self, name: str) -> Item:
        body = {"metadata": {"name": name, "annotations": self.objects[name]}}
        return Item(_key(name), "u", VERSION, json.dumps(body).encode())

    def listing(self) -> Listing:
        return Listing([self.item(name) for name in self.objects], VERSION)


class World:
    def __init__(self, server: ApiServer, mode: Mode = "enforce") -> None:
        self.server = server
        self.reconciler = Reconciler(server.patch, mode)
        self.take = self.reconciler.take
        self.relist()

    def relist(self) -> None:
        listed(self.reconciler.targets(REPLICASETS), self.server.listing())

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with running(self.reconciler.run(), self.reconciler.run()):
            yield
            await self.idle()

    async def idle(self) -> None:
        """Wait until every worker waits."""
        for _ in range(50):
            await asyncio.sleep(0)

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


async def test_a_patched_object_that_comes_back_by_the_watch_is_not_patched_again() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        store = world.reconciler.targets(REPLICASETS)
        store.apply(Event("MODIFIED", VERSION, world.server.item("a")))
    assert world.server.patched == ["a"]


async def test_a_note_is_taken_off_once_what_was_asked_for_is_there() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        assert world.server.objects["a"] == {"place": "eu", REQUESTED: '{"place":"us"}'}
        world.relist()
        world.take(_decision("a", "us"))
        await world.idle()
        assert world.server.places() == {"a": "us"}
        world.relist()
    assert world.server.patched == ["a", "a", "a"]
    assert world.server.objects["a"] == {"place": "us"}


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
    assert said["ns/b"]["forgotten"] == [REQUESTED]


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


async def test_an_object_of_a_collection_that_is_not_watched_is_left_alone() -> None:
    server = ApiServer(a="us")
    reconciler = Reconciler(server.patch, "enforce")
    async with running(reconciler.run()):
        for record in (_decision("a", "eu"), RELEASED, BOOKMARK):
            reconciler.take(record)
        for _ in range(20):
            await asyncio.sleep(0)
    assert server.patched == []


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
        (Refused("403"), 0.5, 1.0),
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
    assert world.reconciler._backoffs == {}


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
    async with world.running(), running(world.reconciler.follow(cast("StreamClient", stream))):
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
