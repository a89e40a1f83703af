from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeAlias

from prometheus_client import REGISTRY

from kube_sync.errors import Expired, NotFound, Refused, Retriable, SyncError
from kube_sync.kube.collection import Event, Item, Page, ResourceVersion
from kube_sync.kube.reflector import Reflector
from kube_sync.objects import ObjectKey
from tests.fakes.listing import Listing
from tests.unit.async_tools import Waits, running, until

# A step of a watch: an event, an error, or something to do before the next one.
Step: TypeAlias = Event | SyncError | Callable[[], None]
_LONG = 6.0  # seconds that a good watch lives


def item(name: str, version: str) -> Item:
    return Item(ObjectKey("default", name), f"uid-{name}", ResourceVersion(version), b"{}")


def listing(version: str, *names: str) -> Listing:
    return Listing([item(name, version) for name in names], ResourceVersion(version))


def event(kind: str, name: str, version: str) -> Event:
    return Event(kind, ResourceVersion(version), item(name, version))


CONNECTED = Event("CONNECTED", ResourceVersion(""))


class Script:
    """Plays back lists and watches; when the watches run out, the last one stays open."""

    def __init__(self, lists: list[Listing | SyncError], watches: list[list[Step]]) -> None:
        self.lists = lists
        self.watches = watches
        self.listed = 0
        self.since: list[str] = []
        self.closed = 0

    async def list(self) -> AsyncGenerator[Page]:
        self.listed += 1
        found = self.lists.pop(0)
        if isinstance(found, SyncError):
            # Not the first page: what broke off has to be forgotten.
            yield Page([item("torn", "1")], ResourceVersion("1"))
            raise found
        yield Page(found.items[:1], found.version)
        yield Page(found.items[1:], found.version)

    async def watch(self, since: ResourceVersion) -> AsyncGenerator[Event]:
        self.since.append(since)
        steps = self.watches.pop(0) if self.watches else None
        try:
            for step in steps or []:
                if isinstance(step, SyncError):
                    raise step
                if isinstance(step, Event):
                    yield step
                else:
                    step()
            if steps is None:
                await asyncio.Event().wait()
        finally:
            self.closed += 1


class Memory:
    """A Store of names."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.listing: set[str] = set()
        self.known: list[bool] = []
        self.replaced: list[set[str]] = []

    async def page(self, items: Sequence[Item]) -> None:
        self.listing |= {found.key.name for found in items}

    def abandon(self) -> None:
        self.listing = set()

    def finish(self, *, known: bool) -> None:
        self.names, self.listing = self.listing, set()
        self.known.append(known)
        self.replaced.append(set(self.names))

    def apply(self, event: Event) -> None:
        assert event.item is not None
        if event.type == "DELETED":
            self.names.discard(event.item.key.name)
        else:
            self.names.add(event.item.key.name)


class Bench:
    """A Reflector with everything that it stands on."""

    def __init__(self, lists: list[Listing | SyncError], watches: list[list[Step]]) -> None:
        self.source = Script(lists, watches)
        self.store = Memory()
        self.reports: list[str | None] = []
        self.told: list[str | None] = []  # those, and what the store is behind by
        self.names_then: list[set[str]] = []  # what it held at each report
        self.waits = Waits()
        self.now = 0.0
        self.reflector = Reflector(
            "things",
            self.source,
            self.store,
            self._report,
            behind=self.told.append,
            backoff=self.waits.backoff(),
            clock=lambda: self.now,
        )

    def _report(self, reason: str | None) -> None:
        self.reports.append(reason)
        self.told.append(reason)
        self.names_then.append(set(self.store.names))

    def pass_time(self) -> None:
        self.now += _LONG

    async def until_watches(self, count: int) -> None:
        async with running(self.reflector.run()):
            await until(lambda: len(self.source.since) == count)


async def test_first_list_fills_the_store_and_watches_from_there() -> None:
    bench = Bench([listing("7", "a", "b")], [])
    await bench.until_watches(1)
    assert bench.store.names == {"a", "b"}
    assert bench.store.known == [True]
    assert bench.source.since == ["7"]
    assert bench.reports == [None]


async def test_watch_events_are_applied_in_order() -> None:
    steps: list[Step] = [event("ADDED", "b", "8"), event("DELETED", "a", "9")]
    bench = Bench([listing("7", "a")], [steps])
    await bench.until_watches(2)
    assert bench.store.names == {"b"}


async def test_connection_cut_resumes_from_the_last_seen_resource_version() -> None:
    """Listing again would cost the API server a whole collection for each lost connection."""
    bench = Bench([listing("7")], [[event("ADDED", "a", "8"), Retriable("cut")]])
    await bench.until_watches(2)
    assert bench.source.since == ["7", "8"]
    assert bench.source.listed == 1
    assert bench.store.names == {"a"}


async def test_bookmark_advances_where_the_next_watch_begins() -> None:
    bench = Bench([listing("7", "a")], [[Event("BOOKMARK", ResourceVersion("42"))]])
    await bench.until_watches(2)
    assert bench.source.since == ["7", "42"]
    assert bench.store.names == {"a"}


async def test_expired_watch_relists() -> None:
    """A watch from the same resourceVersion would be told 410 for ever."""
    bench = Bench([listing("7", "a", "b"), listing("90", "a")], [[Expired("410 too old")]])
    await bench.until_watches(2)
    assert bench.store.names == {"a"}  # nobody told of the deletion of b
    assert bench.source.since == ["7", "90"]


async def test_expired_inside_the_stream_relists() -> None:
    steps: list[Step] = [CONNECTED, event("ADDED", "c", "8"), Expired("410")]
    bench = Bench([listing("7", "a"), listing("90", "b")], [steps])
    await bench.until_watches(2)
    assert bench.store.names == {"b"}


async def test_expired_page_of_a_list_lists_from_the_start() -> None:
    bench = Bench([Expired("410 continue"), listing("9", "a")], [])
    await bench.until_watches(1)
    assert bench.source.listed == 2
    assert bench.store.names == {"a"}
    assert bench.reports == [None]


async def test_expired_alone_is_not_reported_as_a_failure() -> None:
    bench = Bench([listing("7"), listing("9")], [[Expired("410")]])
    await bench.until_watches(2)
    assert bench.reports == [None, None]


async def test_expired_watch_leaves_the_store_behind_until_it_is_listed() -> None:
    bench = Bench([listing("7"), listing("9")], [[Expired("410")]])
    await bench.until_watches(2)
    assert bench.told == [None, "it has to be listed again", None]


async def test_missing_kind_counts_as_known_to_be_missing() -> None:
    bench = Bench([NotFound("404")], [])
    bench.source.lists += [NotFound("404"), listing("1")]
    await bench.until_watches(1)
    assert bench.store.known == [False, False, True]
    missing = "things: the API server does not know this resource (is its CRD there?)"
    assert bench.reports == [missing, missing, None]


async def test_kind_that_appears_is_listed_and_watched() -> None:
    bench = Bench([NotFound("404"), listing("9", "a")], [])
    await bench.until_watches(1)
    assert bench.store.names == {"a"}
    assert bench.source.since == ["9"]


async def test_kind_that_vanishes_empties_the_store_and_is_listed_when_it_is_back() -> None:
    bench = Bench([listing("7", "a"), listing("9", "b")], [[NotFound("404")], []])
    await bench.until_watches(2)
    assert bench.store.replaced == [{"a"}, set(), {"b"}]
    assert bench.store.known == [True, False, True]


async def test_watch_that_closes_at_once_waits_each_turn_longer() -> None:
    """An API server that ends every watch must not be asked in a tight loop."""
    bench = Bench([listing("7")], [[], [], [], []])
    await bench.until_watches(5)
    assert bench.waits.seconds == [0.1, 0.2, 0.4, 0.8]
    assert bench.source.listed == 1


async def test_failing_list_waits_each_turn_longer() -> None:
    bench = Bench([Retriable("503"), Retriable("503"), Refused("403"), listing("1")], [])
    await bench.until_watches(1)
    assert bench.waits.seconds == [0.1, 0.2, 0.4]


async def test_watch_that_lived_long_resets_the_wait() -> None:
    bench = Bench([listing("7")], [])
    bench.source.watches = [[], [], [bench.pass_time], []]
    await bench.until_watches(5)
    assert bench.waits.seconds == [0.1, 0.2, 0.1, 0.2]


async def test_long_watch_that_ends_with_an_error_resets_the_wait_too() -> None:
    bench = Bench([listing("7")], [])
    bench.source.watches = [[], [], [bench.pass_time, Retriable("cut")]]
    await bench.until_watches(4)
    assert bench.waits.seconds == [0.1, 0.2, 0.1]


async def test_event_resets_the_wait() -> None:
    bench = Bench([listing("7")], [[], [], [event("ADDED", "a", "8")], []])
    await bench.until_watches(5)
    assert bench.waits.seconds == [0.1, 0.2, 0.1, 0.2]


async def test_accepted_watch_alone_does_not_reset_the_wait() -> None:
    """A server that accepts and closes at once is the one that would make the loop spin."""
    bench = Bench([listing("7")], [[CONNECTED], [CONNECTED], [CONNECTED]])
    await bench.until_watches(4)
    assert bench.waits.seconds == [0.1, 0.2, 0.4]


async def test_retry_after_is_honoured() -> None:
    bench = Bench([Retriable("429", 17.0), listing("7")], [[Retriable("503", 11.0)]])
    await bench.until_watches(2)
    assert bench.waits.seconds == [17.0, 11.0]


async def test_retry_after_below_the_own_wait_does_not_shorten_it() -> None:
    bench = Bench([Retriable("429", 0.01), listing("7")], [])
    await bench.until_watches(1)
    assert bench.waits.seconds == [0.1]


async def test_failure_is_reported_in_words_until_a_watch_is_accepted() -> None:
    steps: list[list[Step]] = [[Retriable("connection refused")], [Refused("403 no")], [CONNECTED]]
    bench = Bench([listing("7")], steps)
    await bench.until_watches(4)
    assert bench.reports == [None, "connection refused", "403 no", None]


async def test_failed_list_keeps_what_the_store_holds() -> None:
    bench = Bench([listing("7", "a"), Retriable("500"), listing("9", "b")], [[Expired("410")]])
    await bench.until_watches(2)
    assert bench.names_then == [{"a"}, {"a"}, {"b"}]


async def test_every_watch_is_closed_before_the_next_begins() -> None:
    bench = Bench([listing("7")], [[event("ADDED", "a", "8"), Retriable("cut")], []])
    await bench.until_watches(3)
    assert bench.source.closed == 3  # the last one by the cancellation


async def test_cancellation_ends_the_reflector() -> None:
    bench = Bench([listing("7")], [])
    task = asyncio.create_task(bench.reflector.run())
    await until(lambda: bench.source.since)
    task.cancel()
    await asyncio.wait([task], timeout=1)
    assert task.cancelled()


async def test_metrics_tell_why_it_listed() -> None:
    def count(why: str) -> float:
        labels = {"resource": "things", "reason": why}
        return REGISTRY.get_sample_value("kube_sync_reflector_lists_total", labels) or 0.0

    before = [count(why) for why in ("start", "expired", "missing")]
    bench = Bench([listing("1"), NotFound("404"), listing("2")], [[Expired("410")]])
    await bench.until_watches(2)
    after = [count(why) for why in ("start", "expired", "missing")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 1]
