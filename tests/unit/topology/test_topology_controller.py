from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from kube_sync.errors import Refused, Retriable, SyncError
from kube_sync.topology.controller.controller import Controller
from kube_sync.topology.controller.events import ResourceEvent
from kube_sync.topology.controller.live_topology import LiveTopology
from kube_sync.topology.controller.workflow import Reconciliation
from kube_sync.topology.controller.world import World
from kube_sync.topology.gateway import GATEWAY, ROUTES
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.nodes import Locator
from tests.fakes.topologies import (
    API,
    FRUIT_KINDS,
    FRUIT_LINKS,
    Object,
    fruit,
    gateway,
    gateway_class,
    route,
)
from tests.fakes.topologies import GATEWAY as GW
from tests.fakes.worlds import Feed, Kinds
from tests.unit.async_tools import Waits, running, until


class Leader:
    def __init__(self) -> None:
        self.held = True


class Held(Waits):
    """Waits that do not end, from so many seconds on."""

    def __init__(self, from_: float = 0.0) -> None:
        super().__init__()
        self._from = from_

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if seconds >= self._from:
            await asyncio.Event().wait()


class Bed:
    """A controller of one live topology, and all that goes into it and comes out of it."""

    def __init__(self, *, fruits: bool = False, gone_after: float = 30.0) -> None:
        self.news = asyncio.Event()
        self.world = World(self.news.set, gone_after=gone_after)
        self.kinds = Kinds(() if fruits else (COLOR_POLICY,))
        self.feed = Feed(self.world, FRUIT_KINDS) if fruits else Feed(self.world)
        kinds, links = (FRUIT_KINDS, FRUIT_LINKS) if fruits else (API.kinds, API.links)
        self.live = LiveTopology(self.world, self.kinds, kinds, links)
        self.leader = Leader()
        self.notes: list[str | None] = []
        self.settling, self.waits = Waits(), Waits()
        self.calls: list[Reconciliation] = []
        self.failures: list[Exception] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.withheld: list[str] = []
        self.heeds: Callable[[ResourceEvent], bool] = lambda event: event.meaning
        self.done = 0

    @property
    def controller(self) -> Controller:
        return Controller(
            self.live,
            self.news,
            self.reconcile,
            self.leader,
            self.notes.append,
            heeds=self.heeds,
            withheld=lambda: self.withheld,
            backoff=self.waits.backoff(0.5),
            sleep=self.settling.sleep,
        )

    async def reconcile(self, reconciliation: Reconciliation) -> None:
        assert self.done == len(self.calls), "two at a time"
        self.calls.append(reconciliation)
        try:
            await asyncio.sleep(0)
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
            if self.failures:
                raise self.failures.pop(0)
        finally:
            self.done += 1

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[Controller]:
        controller = self.controller
        async with running(controller.run()):
            yield controller

    async def happened(self, times: int) -> None:
        """Wait until it was reconciled so many times, and nothing is left to do."""
        await until(lambda: self.done >= times)
        await self.settled()
        assert self.done == times

    async def settled(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await until(lambda: not self.news.is_set())

    async def settled_with_news(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        assert self.news.is_set()

    def names(self, call: int = -1) -> list[str]:
        return [f"{event.type} {event.name}" for event in self.calls[call].events]


@pytest.fixture
async def bed() -> Bed:
    return Bed()


def count(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"kube_sync_topology_{name}", labels) or 0.0


async def test_all_that_was_listed_is_one_reconcile(bed: Bed) -> None:
    bed.feed.load(gateway_class(), gateway(), route())
    async with bed.run():
        await bed.happened(1)
    assert bed.names() == ["create my-gateway", "create my-gateway-class", "create route"]
    assert bed.calls[0].topology.paths_to(GW)
    assert bed.calls[0].error is None
    assert GW in bed.calls[0].affected
    assert bed.notes[-1] is None


async def test_nothing_is_reconciled_before_every_kind_was_listed(bed: Bed) -> None:
    bed.kinds.waiting = ["customresourcedefinitions"]
    async with bed.run():
        for kind in bed.feed.stores.keys() - {GATEWAY}:
            bed.feed.list(kind)
        await until(
            lambda: bed.notes[-1:] == [f"not listed yet: customresourcedefinitions, {GATEWAY}"]
        )
        bed.kinds.waiting = []
        bed.feed.load(gateway())
        await bed.happened(1)
    assert bed.names() == ["create my-gateway"]
    assert bed.notes[-1] is None


async def test_nothing_is_reconciled_while_something_is_withheld(bed: Bed) -> None:
    """A kind that may not be listed counts as empty, and is not."""
    bed.withheld = ["HTTPRoute (403 no)"]
    bed.feed.load(gateway())
    async with bed.run():
        await until(
            lambda: (
                bed.notes[-1:] == ["nothing is written before this is known: HTTPRoute (403 no)"]
            )
        )
        bed.feed.put(gateway("other"))
        await bed.settled()
        assert not bed.calls
        bed.withheld = []
        bed.feed.list(next(iter(ROUTES)))
        await bed.happened(1)
    assert bed.names() == ["create my-gateway", "create other"]
    assert bed.notes[-1] is None


async def test_what_is_withheld_later_ends_reconciles_until_it_is_known(bed: Bed) -> None:
    bed.feed.load()
    async with bed.run() as controller:
        await bed.happened(1)
        bed.withheld = ["HTTPRoute"]
        controller.wake()
        await until(lambda: "HTTPRoute" in str(bed.notes[-1]))
        await bed.happened(1)
        bed.withheld = []
        bed.news.set()
        await bed.happened(2)


async def test_news_is_looked_at_soon_after_a_failure(bed: Bed) -> None:
    """The trouble of one object delays no other by more than a second."""
    bed.feed.load()
    bed.failures = [SyncError("down")]
    held = Held()
    bed.waits = held
    async with bed.run():
        await until(lambda: held.seconds)
        await bed.settled()
        assert bed.done == 1
        bed.feed.put(gateway())
        await bed.happened(2)
    assert bed.settling.seconds.count(1.0) == 1
    assert bed.names() == ["create my-gateway"]


async def test_after_a_failure_news_is_no_reason_to_come_back_at_once(bed: Bed) -> None:
    bed.feed.load()
    bed.failures = [Retriable("busy", 7.0)]
    bed.waits, bed.settling = Held(), Held(from_=1.0)
    async with bed.run():
        await until(lambda: 7.0 in bed.settling.seconds)
        bed.feed.put(gateway())
        await bed.settled_with_news()
        assert bed.done == 1


async def test_the_error_within_a_group_is_told(bed: Bed) -> None:
    bed.feed.load()
    bed.failures = [ExceptionGroup("unhandled errors in a TaskGroup", [KeyError("spec")])]
    with capture_logs() as logs:
        async with bed.run():
            await bed.happened(2)
    assert [e["error"] for e in logs if e["event"] == "reconcile_failed"] == ["'spec'"]


async def test_a_cluster_without_any_objects_is_reconciled_once(bed: Bed) -> None:
    """What was written before of objects that are gone by now is to be removed."""
    bed.feed.load()
    async with bed.run():
        await bed.happened(1)
    assert bed.names() == []


async def test_a_graph_without_any_policies_and_objects_is_reconciled_once() -> None:
    bed = Bed(fruits=True)
    bed.feed.load()
    async with bed.run():
        await bed.happened(1)


async def test_what_is_waited_for_is_told_before_anything_happens(bed: Bed) -> None:
    bed.news.clear()
    async with bed.run():
        await until(lambda: bed.notes)
    assert str(GATEWAY) in str(bed.notes[0])


async def test_a_change_is_a_reconcile(bed: Bed) -> None:
    bed.feed.load(gateway())
    async with bed.run():
        await bed.happened(1)
        bed.feed.put(gateway("my-gateway", {"name": "other"}))
        bed.feed.put(gateway("another"))
        bed.feed.delete(gateway("another"))
        await bed.happened(2)
    assert bed.names() == ["update my-gateway"]
    assert Locator(f"{GW}#other") in bed.calls[-1].topology


async def test_what_happens_during_a_reconcile_is_the_next_one(bed: Bed) -> None:
    bed.feed.load()

    def meanwhile() -> None:
        bed.feed.put(gateway("a"))
        bed.feed.put(gateway("b"))

    bed.meanwhile = meanwhile
    async with bed.run():
        await bed.happened(2)
    assert bed.names(0) == []
    assert bed.names(1) == ["create a", "create b"]


async def test_a_status_that_was_written_leads_to_nothing(bed: Bed) -> None:
    bed.feed.load(gateway())
    bed.meanwhile = lambda: bed.feed.put(gateway() | {"status": {"n": 1}})
    async with bed.run():
        await bed.happened(1)
        held = bed.world.get(GW)
        assert held is not None
        assert held["status"] == {"n": 1}


async def test_who_heeds_statuses_is_told_of_them(bed: Bed) -> None:
    bed.feed.load(gateway())
    bed.heeds = lambda _event: True
    async with bed.run():
        await bed.happened(1)
        bed.feed.put(gateway() | {"status": {"n": 1}})
        await bed.happened(2)
    assert [event.meaning for event in bed.calls[-1].events] == [False]


async def test_events_that_are_not_heeded_are_not_shown_among_others(bed: Bed) -> None:
    bed.feed.load(gateway())
    async with bed.run():
        await bed.happened(1)
        bed.feed.put(gateway() | {"status": {"n": 1}})
        bed.feed.put(gateway("other"))
        await bed.happened(2)
    assert bed.names() == ["create other"]


async def test_after_failures_the_last_state_is_reached_with_all_events(bed: Bed) -> None:
    bed.feed.load(gateway("a"))
    bed.failures = [SyncError("down"), SyncError("still down")]

    def meanwhile() -> None:
        bed.feed.put(gateway("b"))
        bed.feed.delete(gateway("a"))

    bed.meanwhile = meanwhile
    async with bed.run():
        await bed.happened(3)
    assert [bed.names(n) for n in range(3)] == [
        ["create a"],
        ["delete a", "create b"],  # what the first one did of `a` is to be undone
        ["delete a", "create b"],
    ]
    assert [node.name for node in bed.calls[-1].topology.nodes() if node.kind == GATEWAY] == ["b"]
    assert bed.waits.seconds == [0.5, 1.0]
    assert bed.notes[-2:] == ["reconcile failed: still down", None]


async def test_what_was_affected_before_a_failure_is_affected_still(bed: Bed) -> None:
    bed.feed.load(gateway_class(), gateway(), route("a"), route("b"))
    async with bed.run():
        await bed.happened(1)
        bed.failures = [SyncError("down")]
        bed.meanwhile = lambda: bed.feed.delete(route("b"))
        bed.feed.delete(route("a"))
        await bed.happened(3)
        affected = [{name.rpartition("/")[2] for name in call.affected} for call in bed.calls]
    assert affected[1] == {"a", "a#rule-1"}
    assert affected[2] == {"a", "a#rule-1", "b", "b#rule-1"}


async def test_a_success_ends_the_waits_of_failures(bed: Bed) -> None:
    bed.feed.load()
    bed.failures = [SyncError("down")]
    async with bed.run():
        await bed.happened(2)
        bed.failures = [SyncError("down")]
        bed.feed.put(gateway())
        await bed.happened(4)
    assert bed.waits.seconds == [0.5, 0.5]
    assert bed.names() == ["create my-gateway"]


async def test_a_server_that_asks_to_be_left_alone_is_left_alone(bed: Bed) -> None:
    bed.feed.load()
    bed.failures = [Retriable("busy", 7.0)]
    async with bed.run():
        await bed.happened(2)
    assert bed.waits.seconds == [7.0]


async def test_whatever_a_reconcile_raises_it_is_tried_again(bed: Bed) -> None:
    bed.feed.load()
    bed.failures = [KeyError("spec"), RuntimeError(), Refused("no")]
    with capture_logs() as logs:
        async with bed.run():
            await bed.happened(4)
    failed = [entry for entry in logs if entry["event"] == "reconcile_failed"]
    assert [entry["error"] for entry in failed] == ["'spec'", "RuntimeError", "no"]
    # Where it came from is told of what nobody has foreseen.
    assert [entry["exc_info"] is None for entry in failed] == [False, False, True]


async def test_a_cancellation_is_not_swallowed(bed: Bed) -> None:
    bed.feed.load()
    begun = asyncio.Event()

    async def endless(_: Reconciliation) -> None:
        begun.set()
        await asyncio.Event().wait()

    controller = Controller(bed.live, bed.news, endless, bed.leader, bed.notes.append)
    task = asyncio.create_task(controller.run())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_does_not_hold_the_lease_keeps_the_graph_and_does_nothing(bed: Bed) -> None:
    bed.leader.held = False
    bed.feed.load(gateway("a"))
    async with bed.run() as controller:
        await until(lambda: bed.notes[-1:] == [None])
        await bed.settled()
        bed.feed.put(gateway("b"))
        bed.feed.delete(gateway("a"))
        await bed.settled()
        assert Locator(GW.replace("my-gateway", "b")) in bed.live.topology
        assert not bed.calls
        bed.leader.held = True
        controller.wake()
        await bed.happened(1)
    assert bed.names() == ["create b"]


async def test_who_holds_the_lease_again_reconciles_what_has_not_changed(bed: Bed) -> None:
    """Somebody else may have written meanwhile."""
    bed.feed.load(gateway())
    async with bed.run() as controller:
        await bed.happened(1)
        controller.wake()
        await bed.happened(2)
    assert bed.names() == []


async def test_a_lease_that_comes_during_a_reconcile_is_another_one(bed: Bed) -> None:
    """It may have been lost and found within it, and what it wrote may have been refused."""
    bed.feed.load()
    controller = bed.controller
    bed.meanwhile = controller.wake
    async with running(controller.run()):
        await bed.happened(2)


async def test_a_failure_is_not_tried_again_without_the_lease(bed: Bed) -> None:
    bed.feed.load(gateway())
    bed.failures = [SyncError("fenced")]

    def lose() -> None:
        bed.leader.held = False

    bed.meanwhile = lose
    async with bed.run() as controller:
        await until(lambda: bed.waits.seconds)
        await bed.happened(1)
        bed.leader.held = True
        controller.wake()
        await bed.happened(2)
    assert bed.names() == ["create my-gateway"]


async def test_other_kinds_of_policies_are_a_reconcile(bed: Bed) -> None:
    bed.feed.load()
    async with bed.run():
        await bed.happened(1)
        bed.kinds.policies = [replace(COLOR_POLICY, level=frozenset({GATEWAY}))]
        bed.news.set()
        await bed.happened(2)
    assert bed.calls[0].topology is not bed.calls[1].topology


async def test_a_graph_that_cannot_be_is_told_and_the_one_before_it_stands() -> None:
    bed = Bed(fruits=True)
    bed.feed.load(fruit("Apple", "1"), fruit("Orange", "1", "apple:1"))
    async with bed.run():
        await bed.happened(1)
        plant(bed, fruit("Apple", "1", "peach:1"), fruit("Peach", "1", "banana:1"))
        plant(bed, fruit("Banana", "1", "orange:1"))
        await bed.happened(2)
        assert "loop detected" in str(bed.calls[-1].error)
        assert len(list(bed.calls[-1].topology.nodes())) == 2
        assert len(bed.calls[-1].events) == 3
        assert str(bed.notes[-1]).startswith("the graph is as it was before: loop detected")
        bed.feed.put(fruit("Apple", "1"))
        await bed.happened(3)
    assert bed.calls[-1].error is None
    assert len(list(bed.calls[-1].topology.nodes())) == 4
    # With the state of the graph that they are in, for the first time.
    assert [event.locator for event in bed.calls[-1].events] == ["apple:1", "banana:1", "peach:1"]
    assert bed.notes[-1] is None


async def test_who_waits_for_the_lease_tells_of_a_graph_that_cannot_be_too() -> None:
    bed = Bed(fruits=True)
    bed.leader.held = False
    bed.feed.load(fruit("Apple", "1", "peach:1"), fruit("Orange", "1", "apple:1"))
    plant(bed, fruit("Banana", "1", "orange:1"), fruit("Peach", "1", "banana:1"))
    async with bed.run():
        await until(lambda: "loop detected" in str(bed.notes[-1:]))
        bed.feed.put(fruit("Apple", "1"))
        await until(lambda: bed.notes[-1] is None)
    assert not bed.calls


def plant(bed: Bed, *fruits: Object) -> None:
    for one in fruits:
        bed.feed.put(one)


async def test_a_kind_that_stays_away_is_reconciled_without_further_news() -> None:
    bed = Bed(gone_after=0.02)
    bed.feed.load(gateway())
    async with bed.run():
        await bed.happened(1)
        bed.feed.list(GATEWAY, known=False)
        await bed.happened(2)
    assert bed.names() == ["delete my-gateway"]


class Time:
    """A clock that goes while somebody sleeps."""

    def __init__(self, bed: Bed, *, until: float) -> None:
        self.now, self.slept = 100.0, list[float]()
        self._bed, self._until = bed, until

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Sleep, with news every 20 ms."""
        self.slept.append(seconds)
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 0.02, end)
            if self.now < self._until:
                self._bed.feed.put(gateway(f"gw-{self.now:.2f}"))
        await asyncio.sleep(0)


async def _settled(bed: Bed, time: Time) -> None:
    controller = Controller(
        bed.live,
        bed.news,
        bed.reconcile,
        bed.leader,
        bed.notes.append,
        sleep=time.sleep,
        clock=time,
        quiet=0.05,
        longest=0.5,
    )
    async with running(controller.run()):
        await until(lambda: bed.calls)


async def test_a_batch_ends_when_it_is_quiet(bed: Bed) -> None:
    bed.feed.load()
    time = Time(bed, until=100.13)
    await _settled(bed, time)
    assert time.slept == [0.05] * 4
    assert len(bed.calls[0].events) == 7


async def test_a_batch_does_not_last_for_ever(bed: Bed) -> None:
    bed.feed.load()
    time = Time(bed, until=1000.0)
    await _settled(bed, time)
    assert sum(time.slept) == pytest.approx(0.5)


async def test_reconciles_and_events_are_counted(bed: Bed) -> None:
    bed.feed.load(gateway(), route())
    bed.failures = [SyncError("down")]
    before = [
        count("reconciles_total", outcome="ok"),
        count("reconciles_total", outcome="failed"),
        count("events_total"),
        count("reconcile_seconds_count"),
    ]
    async with bed.run():
        await bed.happened(2)
    after = [
        count("reconciles_total", outcome="ok"),
        count("reconciles_total", outcome="failed"),
        count("events_total"),
        count("reconcile_seconds_count"),
    ]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 2, 1]
