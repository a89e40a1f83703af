from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.errors import Refused, Retriable, SyncError
from kube_sync.kube.collection import Event, Item, Page, ResourceVersion
from kube_sync.kube.following import Feed, Following
from kube_sync.objects import GroupVersionResource, ObjectKey
from tests.unit.async_tools import Waits, running, until

V1 = GroupVersionResource("shop.example", "v1", "shops")
V2 = GroupVersionResource("shop.example", "v2", "shops")
_VERSION = ResourceVersion("7")


def item(name: str) -> Item:
    return Item(ObjectKey("", name), f"uid-{name}", _VERSION, b"{}")


def event(name: str) -> Event:
    return Event("ADDED", _VERSION, item(name))


class Source:
    """A collection whose LIST has one page before a gate, and whose WATCH reads a queue."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.paged = 0
        self.open = 0
        self.error: SyncError | None = None
        self.coming: asyncio.Queue[list[Event | SyncError]] = asyncio.Queue()

    async def list(self) -> AsyncGenerator[Page]:
        self.open += 1
        try:
            yield Page([item("listed")], _VERSION)
            self.paged += 1
            await self.gate.wait()
            if self.error is not None:
                raise self.error
            yield Page([], _VERSION)
        finally:
            self.open -= 1

    async def watch(self, _since: ResourceVersion) -> AsyncGenerator[Event]:
        self.open += 1
        try:
            while True:
                for one in await self.coming.get():
                    if isinstance(one, SyncError):
                        raise one
                    yield one
        finally:
            self.open -= 1


class Memory:
    """A Store of names, that says what happened to it."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.said: list[str] = []

    async def page(self, items: Sequence[Item]) -> None:
        self.said.append(f"page {len(items)}")

    def finish(self, *, known: bool) -> None:
        self.said.append(f"finish {known}")

    def abandon(self) -> None:
        self.said.append("abandon")

    def apply(self, event: Event) -> None:
        assert event.item is not None
        self.names.append(event.item.key.name)


class Bench:
    """What is followed, and what came of it."""

    def __init__(self) -> None:
        self.sources: dict[GroupVersionResource, list[Source]] = {}
        self.prepared: Source | None = None  # what is listed and watched next
        self.waits = Waits()
        self.reports: list[str | None] = []
        self.errors: list[SyncError] = []
        self.following = Following(self.source, " for tests", backoff=self.waits.backoff)

    def source(self, gvr: GroupVersionResource) -> Source:
        found, self.prepared = self.prepared or Source(), None
        self.sources.setdefault(gvr, []).append(found)
        return found

    def feed(self, store: Memory) -> Feed:
        return Feed(store, self.reports.append, self.errors.append)

    def last(self, gvr: GroupVersionResource) -> Source:
        return self.sources[gvr][-1]

    async def until_listed(self, gvr: GroupVersionResource, store: Memory) -> Source:
        await until(lambda: gvr in self.sources)
        source = self.last(gvr)
        source.gate.set()
        await until(lambda: "finish True" in store.said)
        return source


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_what_is_wanted_before_the_start_is_followed(bench: Bench) -> None:
    store = Memory()
    bench.following.want({V1: bench.feed(store)})
    assert bench.sources == {}
    async with running(bench.following.run()):
        source = await bench.until_listed(V1, store)
        source.coming.put_nowait([event("a")])
        await until(lambda: store.names == ["a"])
    assert store.said == ["page 1", "page 0", "finish True"]
    assert source.open == 0


async def test_what_is_wanted_later_is_followed_and_the_rest_goes_on(bench: Bench) -> None:
    first, second = Memory(), Memory()
    feed = bench.feed(first)
    bench.following.want({V1: feed})
    async with running(bench.following.run()):
        await bench.until_listed(V1, first)
        bench.following.want({V1: feed, V2: bench.feed(second)})
        await bench.until_listed(V2, second)
        bench.last(V1).coming.put_nowait([event("a")])
        await until(lambda: first.names == ["a"])
        assert bench.following.wanted == {V1, V2}
    assert len(bench.sources[V1]) == 1


async def test_what_is_wanted_no_more_ends_at_once(bench: Bench) -> None:
    store = Memory()
    bench.following.want({V1: bench.feed(store)})
    async with running(bench.following.run()):
        source = await bench.until_listed(V1, store)
        bench.following.want({})
        await until(lambda: source.open == 0)
        assert bench.following.wanted == frozenset()


async def test_a_list_that_ends_halfway_is_forgotten(bench: Bench) -> None:
    store = Memory()
    bench.following.want({V1: bench.feed(store)})
    async with running(bench.following.run()):
        await until(lambda: V1 in bench.sources and bench.last(V1).paged)
        bench.following.want({})
        assert store.said == ["page 1", "abandon"]
        bench.last(V1).gate.set()
        await until(lambda: not bench.last(V1).open)
    assert store.said == ["page 1", "abandon"]


async def test_nothing_reaches_a_store_that_is_wanted_no_more(bench: Bench) -> None:
    class Once(Memory):
        """A Store whose first event makes it unwanted, with more events behind that."""

        def apply(self, event: Event) -> None:
            super().apply(event)
            bench.following.want({})

    store = Once()
    bench.following.want({V1: bench.feed(store)})
    async with running(bench.following.run()):
        source = await bench.until_listed(V1, store)
        told = list(bench.reports)
        # Read without a pause in between, in which the task could be cancelled.
        source.coming.put_nowait([event("a"), event("b"), Retriable("broken")])
        await until(lambda: source.open == 0)
    assert store.names == ["a"]
    assert (bench.reports, bench.errors) == (told, [])


async def test_a_list_that_ends_on_the_way_is_told_to_nobody(bench: Bench) -> None:
    class Once(Memory):
        """A Store that is unwanted while it takes its first page."""

        async def page(self, items: Sequence[Item]) -> None:
            await super().page(items)
            bench.following.want({})

    store = Once()
    bench.following.want({V1: bench.feed(store)})
    source = Source()
    source.gate.set()
    bench.prepared = source
    async with running(bench.following.run()):
        await until(lambda: not source.open and source.paged)
    assert store.said == ["page 1", "abandon"]
    assert bench.reports == []


async def test_a_failing_list_is_told_to_nobody_when_it_is_wanted_no_more(bench: Bench) -> None:
    store = Memory()
    source = Source()
    source.error = Retriable("broken")

    class Leaving(Memory):
        """A Store that is unwanted by the time that its LIST fails."""

        async def page(self, items: Sequence[Item]) -> None:
            await super().page(items)
            bench.following.want({})
            source.gate.set()

    store = Leaving()
    bench.prepared = source
    bench.following.want({V1: bench.feed(store)})
    async with running(bench.following.run()):
        await until(lambda: not source.open and source.paged)
    assert store.said == ["page 1", "abandon"]
    assert (bench.reports, bench.errors) == ([], [])


async def test_another_feed_begins_anew(bench: Bench) -> None:
    old, new = Memory(), Memory()
    bench.following.want({V1: bench.feed(old)})
    async with running(bench.following.run()):
        before = await bench.until_listed(V1, old)
        bench.following.want({V1: bench.feed(new)})
        await until(lambda: len(bench.sources[V1]) == 2)
        await bench.until_listed(V1, new)
        before.coming.put_nowait([event("late")])
        await until(lambda: before.open == 0)
    assert (old.names, new.names) == ([], [])


async def test_errors_of_lists_and_watches_are_told_before_their_words(bench: Bench) -> None:
    store = Memory()
    bench.following.want({V1: bench.feed(store)})
    async with running(bench.following.run()):
        await until(lambda: V1 in bench.sources)
        source = bench.last(V1)
        source.error = Refused("403 not yours")
        source.gate.set()
        await until(lambda: bench.reports)
        assert (bench.reports[0], [type(e) for e in bench.errors[:1]]) == (
            "403 not yours",
            [Refused],
        )
        assert store.said[:2] == ["page 1", "abandon"]
        source.error = None
        await until(lambda: "finish True" in store.said)
        source.coming.put_nowait([Retriable("cut")])
        await until(lambda: bench.reports[-1] == "cut")
        assert str(bench.errors[-1]) == "cut"


async def test_the_errors_may_be_of_no_interest(bench: Bench) -> None:
    store, reports = Memory(), list[str | None]()
    bench.following.want({V1: Feed(store, reports.append)})
    async with running(bench.following.run()):
        await until(lambda: V1 in bench.sources)
        bench.last(V1).error = Refused("403")
        bench.last(V1).gate.set()
        await until(lambda: "403" in reports)


async def test_all_end_with_the_run(bench: Bench) -> None:
    store = Memory()
    bench.following.want({V1: bench.feed(store), V2: bench.feed(Memory())})
    async with running(bench.following.run()):
        await until(lambda: bench.sources.keys() == {V1, V2})
        await until(lambda: bench.last(V1).open and bench.last(V2).open)
    assert bench.last(V1).open == bench.last(V2).open == 0
    bench.following.want({})  # nothing is left that could end
    assert "abandon" in store.said


async def test_what_is_wanted_after_the_end_is_not_started(bench: Bench) -> None:
    async with running(bench.following.run()):
        await asyncio.sleep(0)
    bench.following.want({V1: bench.feed(Memory())})
    assert bench.sources == {}


@given(st.lists(st.dictionaries(st.sampled_from([V1, V2]), st.sampled_from("ab")), max_size=6))
def test_whoever_changes_his_mind_gets_what_he_said_last(
    wants: list[dict[GroupVersionResource, str]],
) -> None:
    async def play() -> None:
        bench, store = Bench(), Memory()
        feeds = {name: bench.feed(store) for name in "ab"}
        bench.following.want(
            {gvr: feeds[name] for gvr, name in (wants[0] if wants else {}).items()}
        )
        async with running(bench.following.run()):
            for want in wants:
                await asyncio.sleep(0)
                bench.following.want({gvr: feeds[name] for gvr, name in want.items()})
            wanted = dict.fromkeys(wants[-1] if wants else {}, 1)
            await until(lambda: opened(bench) == wanted)
            assert bench.following.wanted == wanted.keys()
        assert opened(bench) == {}

    asyncio.run(play())


def opened(bench: Bench) -> dict[GroupVersionResource, int]:
    counts = {gvr: sum(one.open for one in found) for gvr, found in bench.sources.items()}
    return {gvr: count for gvr, count in counts.items() if count}
