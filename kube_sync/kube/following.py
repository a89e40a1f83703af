"""A dynamic set of Reflectors, one for each collection that is wanted.

Invariant: after `want` returns, a Store that it did not name receives nothing more, even if an
answer is being read, and the LIST in progress there is discarded. A collection that is named again
with the same Feed continues undisturbed. The Reflectors live as long as `run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from kube_sync.errors import SyncError
from kube_sync.kube.collection import Event, Item, Page, ResourceVersion
from kube_sync.kube.reflector import ListerWatcher, Reflector, Store
from kube_sync.objects import GroupVersionResource
from kube_sync.runtime.backoff import Backoff


def _ignore(_error: SyncError) -> None:
    return


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """The Store of a collection and its error callbacks; a new Feed restarts the Reflector."""

    store: Store
    report: Callable[[str | None], None]  # why the Store is not current, None if it is
    failed: Callable[[SyncError], None] = _ignore  # receives the error before `report` is called


class Following:
    """Runs one Reflector for each wanted collection."""

    def __init__(
        self,
        source: Callable[[GroupVersionResource], ListerWatcher],
        purpose: str = "",
        *,
        counted: str | None = None,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        """`purpose` ends the names of the Reflectors in logs, as ` for topology`.

        `counted` ends their names in metrics, where the number of purposes must be bounded.
        """
        self._source = source
        self._purpose = purpose
        self._counted = purpose if counted is None else counted
        self._backoff = backoff
        self._valves: dict[GroupVersionResource, _Valve] = {}
        self._tasks: dict[_Valve, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    @property
    def wanted(self) -> frozenset[GroupVersionResource]:
        """The collections that are reflected, or will be when `run` is called."""
        return frozenset(self._valves)

    def want(self, feeds: Mapping[GroupVersionResource, Feed]) -> None:
        """Reflect exactly these collections from now on."""
        for gvr, valve in list(self._valves.items()):
            if feeds.get(gvr) is not valve.feed:
                del self._valves[gvr]
                self._stop(valve)
        for gvr in feeds.keys() - self._valves.keys():
            self._valves[gvr] = valve = _Valve(feeds[gvr])
            self._start(gvr, valve)

    async def run(self) -> None:
        """Run the Reflectors until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for gvr, valve in self._valves.items():
                    self._start(gvr, valve)
                await asyncio.Event().wait()
            finally:
                # A call of `want` while the group ends must start no task in it.
                self._group = None

    def _start(self, gvr: GroupVersionResource, valve: _Valve) -> None:
        if self._group is None:
            return
        source = _ErrorReporting(self._source(gvr), valve.failed)
        name = f"{gvr}{self._purpose}"
        reflector = Reflector(
            name,
            source,
            valve,
            valve.report,
            counted=f"{gvr}{self._counted}",
            backoff=self._backoff(),
        )
        task = self._tasks[valve] = self._group.create_task(reflector.run())
        task.add_done_callback(lambda _task: self._tasks.pop(valve, None))

    def _stop(self, valve: _Valve) -> None:
        valve.close()
        if (task := self._tasks.get(valve)) is not None:
            task.cancel()


class _Valve:
    """A Feed that can be closed: a cancelled task may still call its Store before it awaits."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._open = True

    def close(self) -> None:
        """Pass nothing more on, and discard the LIST in progress."""
        self._open = False
        self.feed.store.abandon()

    async def page(self, items: Sequence[Item]) -> None:
        if self._open:
            await self.feed.store.page(items)

    def finish(self, *, known: bool) -> None:
        if self._open:
            self.feed.store.finish(known=known)

    def abandon(self) -> None:
        if self._open:
            self.feed.store.abandon()

    def apply(self, event: Event) -> None:
        if self._open:
            self.feed.store.apply(event)

    def report(self, reason: str | None) -> None:
        if self._open:
            self.feed.report(reason)

    def failed(self, error: SyncError) -> None:
        if self._open:
            self.feed.failed(error)


class _ErrorReporting:
    """A ListerWatcher that passes its errors to a callback."""

    def __init__(self, source: ListerWatcher, on_error: Callable[[SyncError], None]) -> None:
        self._source = source
        self._on_error = on_error

    async def list(self) -> AsyncGenerator[Page]:
        try:
            async with aclosing(self._source.list()) as pages:
                async for page in pages:
                    yield page
        except SyncError as error:
            self._on_error(error)
            raise

    async def watch(self, since: ResourceVersion) -> AsyncGenerator[Event]:
        try:
            async with aclosing(self._source.watch(since)) as events:
                async for event in events:
                    yield event
        except SyncError as error:
            self._on_error(error)
            raise
