"""The topology as a collection that is listed and watched: what it waits for, and what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

import pytest

from kube_sync.errors import Expired, Terminal
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.observability.readiness import Readiness
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.projection import verbatim
from kube_sync.replicator.projector import Projector
from kube_sync.topology import GroupKind, Locator
from kube_sync.topology.controller.events import ResourceEvent
from kube_sync.topology.controller.live_topology import Step
from kube_sync.topology.controller.record_source import LiveRecords, News
from kube_sync.topology.controller.topology_feed import Notes, Source, TopologyFeed
from tests.fakes.topologies import (
    GATEWAY,
    GROUP,
    NS,
    Object,
    color,
    gateway,
    gateway_class,
    route,
    rules,
    target,
    topology,
)
from tests.unit.async_tools import until

ROUTE = GroupKind(GROUP, "HTTPRoute")
WORLD = [gateway_class(), gateway(), route(), color("gw", target(), rules=rules(sky="blue"))]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Made:
    """A live topology that a test makes: each step is what it has queued."""

    def __init__(self, *objects: Object) -> None:
        self.topology = topology(objects)
        self.waiting: tuple[str, ...] = ()
        self.due: float | None = None
        self.steps: list[Step] = []
        self.advanced = 0

    def change(self, *objects: Object, error: str = "") -> None:
        """Let the next `advance` take these in, or fail with them."""
        events = [_event(one) for one in objects]
        if error:
            self.steps.append(Step(events, error=Terminal(error)))
        else:
            self.steps.append(Step(events, self.topology.update(objects)))

    async def advance(self) -> Step:
        self.advanced += 1
        return self.steps.pop(0) if self.steps else Step([])


def _event(one: Object) -> ResourceEvent:
    group, _, _ = one["apiVersion"].partition("/")
    metadata = one["metadata"]
    kind = GroupKind(group, one["kind"])
    return ResourceEvent(kind, metadata.get("namespace", ""), metadata["name"], one, one)


def place(item: Item) -> tuple[str, str]:
    return item.key.namespace, item.key.name


class Collected:
    """LiveRecords, and what they say."""

    def __init__(self, live: Made) -> None:
        self.live = live
        self.clock = Clock()
        self.news = News(self.clock)
        self.withheld: list[str] = []
        self.said: list[str | None] = []
        self.records = LiveRecords(live, self.news, lambda: self.withheld, self.said.append)

    async def list(self) -> tuple[dict[tuple[str, str], bytes], ResourceVersion]:
        async with aclosing(self.records.list()) as pages:
            found = [page async for page in pages]
        assert len({page.version for page in found}) == 1
        return {place(i): i.body for page in found for i in page.items}, found[0].version


async def told(events: AsyncGenerator[Event]) -> list[Event]:
    """Return what is told up to the next bookmark."""
    found = []
    async for event in events:
        if event.type == "BOOKMARK":
            break
        found.append(event)
    return found


@pytest.fixture
def collected() -> Collected:
    return Collected(Made(*WORLD))


async def test_a_list_has_the_records_of_every_section(collected: Collected) -> None:
    found, _ = await collected.list()
    assert {section for section, _ in found} == {"nodes", "effective", "merged", "targetables"}
    assert ("nodes", GATEWAY) in found
    assert collected.said == [None]


async def test_a_list_of_nothing_has_a_version_too() -> None:
    found, version = await Collected(Made()).list()
    assert not found
    assert version


async def test_nothing_is_listed_while_something_is_withheld(collected: Collected) -> None:
    collected.withheld = ["A", "B"]
    listing = asyncio.create_task(collected.list())
    await until(lambda: bool(collected.said))
    assert collected.said == ["waits for A, B"]
    assert not collected.live.advanced
    collected.withheld = []
    collected.news.wake()
    found, _ = await listing
    assert found
    assert collected.said[-1] is None


async def test_a_topology_that_cannot_be_built_is_not_listed(collected: Collected) -> None:
    collected.live.change(error="loop detected: a -> b -> a")
    listing = asyncio.create_task(collected.list())
    await until(lambda: bool(collected.said))
    assert collected.said == ["stays as it was: loop detected: a -> b -> a"]
    assert not listing.done()
    collected.news.wake()
    assert (await listing)[0]


async def test_a_watch_tells_what_differs_and_when_it_came(collected: Collected) -> None:
    _, version = await collected.list()
    async with aclosing(collected.records.watch(version)) as events:
        assert (await anext(events)).type == "CONNECTED"
        collected.live.change(color("gw", target(), rules=rules(sky="red")))
        collected.news.wake()
        collected.clock.now += 5
        collected.news.wake()  # the first counts
        (event,) = await told(events)
    assert event.item is not None
    assert (event.type, event.item.key.namespace, event.arrived) == ("MODIFIED", "merged", 100.0)
    assert b'"red"' in event.item.body


async def test_what_goes_is_deleted(collected: Collected) -> None:
    listed, version = await collected.list()
    live = collected.live
    async with aclosing(collected.records.watch(version)) as events:
        await anext(events)
        gone = Locator(f"httproute.{GROUP}:{NS}/route")
        live.steps.append(Step([_event(route())], live.topology.update(deleted=[gone])))
        collected.news.wake()
        found = await told(events)
    deleted = {place(e.item) for e in found if e.type == "DELETED" and e.item is not None}
    assert deleted == {k for k in listed if k[0] != "nodes" or "route" in k[1]}


async def test_what_came_with_a_step_that_failed_is_told_with_the_next(
    collected: Collected,
) -> None:
    _, version = await collected.list()
    other = route(hostnames=["other.example.com"])
    async with aclosing(collected.records.watch(version)) as events:
        await anext(events)
        collected.live.change(other, error="loop detected")
        # The next step takes it in, and tells of no event for it.
        collected.live.steps.append(Step([], collected.live.topology.update([other])))
        collected.news.wake()
        waiting = asyncio.create_task(told(events))
        await until(lambda: collected.live.advanced == 2)
        assert collected.said[-1] == "stays as it was: loop detected"
        collected.news.wake()
        (event,) = await waiting
    assert event.item is not None
    assert b"other.example.com" in event.item.body
    assert collected.said[-1] is None


async def test_a_topology_that_was_built_anew_is_told_as_what_differs(
    collected: Collected,
) -> None:
    listed, version = await collected.list()
    async with aclosing(collected.records.watch(version)) as events:
        await anext(events)
        collected.live.topology = topology([*WORLD, route("more")])
        collected.live.steps.append(Step([], anew=True))
        collected.news.wake()
        found = await told(events)
    changed = {place(e.item) for e in found if e.item is not None}
    assert ("nodes", f"{GATEWAY}#http") in changed
    assert ("nodes", GATEWAY) not in changed
    assert {key[0] for key in changed - listed.keys()} == {"nodes", "effective", "targetables"}


async def test_a_change_that_was_not_told_to_its_end_is_listed(collected: Collected) -> None:
    _, version = await collected.list()
    async with aclosing(collected.records.watch(version)) as events:
        await anext(events)
        collected.live.change(route("one"), route("two"))
        collected.news.wake()
        half = await anext(events)
    assert half.version == version
    with pytest.raises(Expired):
        await anext(collected.records.watch(half.version))
    found, again = await collected.list()
    assert ("nodes", f"httproute.{GROUP}:{NS}/two") in found
    assert (await anext(collected.records.watch(again))).type == "CONNECTED"


async def test_a_place_to_go_on_from_is_after_each_change(collected: Collected) -> None:
    _, version = await collected.list()
    async with aclosing(collected.records.watch(version)) as events:
        await anext(events)
        collected.live.change(route("one"))
        collected.news.wake()
        while (event := await anext(events)).type != "BOOKMARK":
            pass
    assert event.version != version
    assert (await anext(collected.records.watch(event.version))).type == "CONNECTED"


async def test_what_is_due_without_news_is_taken_in(collected: Collected) -> None:
    _, version = await collected.list()
    collected.live.due = collected.clock.now
    async with aclosing(collected.records.watch(version)) as events:
        await anext(events)
        collected.live.change(route("one"))
        assert await told(events)


# The feed


class FakeFollowed:
    """Kinds that a test says how they do."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.unseen: Mapping[GroupKind, str] = {}
        self.troubles: Mapping[GroupKind, str] = {}
        self.running = False

    async def run(self) -> None:
        self.running = True
        await asyncio.Event().wait()


class Fed:
    """A feed into a Mirror."""

    def __init__(self) -> None:
        self.readiness = Readiness()
        self.late: dict[str, str | None] = {}
        self.live = Made(*WORLD)
        self.feed = TopologyFeed(self._follow, self.readiness, currency=self.late.__setitem__)
        projector = Projector("topology", verbatim, versioned=False)
        self.mirror = Mirror("topology", ("k",), lambda: None, projector=projector)
        self.wake: Callable[[], None] = lambda: None

    def _follow(self, notes: Notes, wake: Callable[[], None]) -> Source:
        self.wake, self.followed = wake, FakeFollowed(notes)
        return Source(self.followed, self.live)

    async def load(self) -> Sequence[bytes]:
        """Read the first LIST, as the Writer does."""
        _, first = await self.mirror.first_load()
        chunks = [chunk async for chunk in first.chunks()]
        self.mirror.first_written(first)
        return chunks


@pytest.fixture
async def fed() -> AsyncGenerator[Fed]:
    found = Fed()
    task = asyncio.create_task(found.feed.run(found.mirror))
    await until(lambda: hasattr(found, "followed") and found.followed.running)
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_kind_that_counts_as_empty_since_it_was_denied_withholds_it() -> None:
    found = Fed()
    found.live.waiting = ("CustomResourceDefinitions",)
    task = asyncio.create_task(found.feed.run(found.mirror))
    await until(lambda: "topology" in found.readiness.reasons)
    found.live.waiting = ()
    found.followed.unseen = found.followed.troubles = {ROUTE: "403 Forbidden"}
    found.followed.notes.noted("topology of HTTPRoute", "403 Forbidden")
    said = f"waits for {ROUTE}; cannot follow {ROUTE}: 403 Forbidden"
    await until(lambda: found.readiness.reasons.get("topology") == said)
    assert found.late["topology"] == said
    assert not found.live.advanced
    found.followed.unseen = found.followed.troubles = {}
    found.followed.notes.noted("topology of HTTPRoute", "ok")
    assert b'"targetables"' in b"".join(await found.load())
    assert found.readiness.reasons == {}
    assert found.late == {"topology": None}
    task.cancel()
    await asyncio.wait([task])


async def test_what_cannot_be_followed_later_is_told_and_holds_nothing_up(fed: Fed) -> None:
    await fed.load()
    fed.followed.unseen = fed.followed.troubles = {ROUTE: "the API server is away"}
    fed.followed.notes.noted("topology of HTTPRoute", "the API server is away")
    assert fed.late["topology"] == f"cannot follow {ROUTE}: the API server is away"
    fed.live.change(route("more"))
    fed.wake()
    await until(lambda: fed.mirror.pending > 0)
    assert fed.late["topology"] == f"cannot follow {ROUTE}: the API server is away"


async def test_kinds_that_fail_are_named_and_one_reason_is_given(fed: Fed) -> None:
    grpc = GroupKind(GROUP, "GRPCRoute")
    fed.followed.troubles = {ROUTE: "403 here", grpc: "403 there"}
    fed.followed.notes.noted("topology of HTTPRoute", "403 here")
    assert fed.readiness.reasons["topology"] == f"cannot follow {grpc}, {ROUTE}: 403 there"


async def test_a_topology_that_cannot_be_updated_is_not_current(fed: Fed) -> None:
    await fed.load()
    fed.live.change(error="loop detected")
    fed.wake()
    await until(lambda: fed.late.get("topology") == "stays as it was: loop detected")
    fed.wake()
    await until(lambda: fed.late["topology"] is None)


async def test_what_is_not_wanted_any_more_says_nothing(fed: Fed) -> None:
    await fed.load()
    fed.followed.notes.noted("topology of HTTPRoute", "ok")
    fed.followed.notes.noted("topology of Gateway", "ok")
    fed.followed.notes.forget("topology of Gateway")
    fed.feed.forget()
    fed.feed.release()
    assert fed.readiness.conditions == {}
    assert fed.late["topology"] is None


async def test_records_have_no_version_in_opa(fed: Fed) -> None:
    """The audit asks for what is there, and would miss one that is not."""
    await fed.load()
    await fed.feed.list_classes(fed.mirror)
    assert {fed.mirror.holds(key) for key in list(fed.mirror.keys())} == {""}
