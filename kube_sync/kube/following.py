"""A changing set of Reflectors: which collections are followed is said anew at any time.

Keeps true: from the moment that `want` returns nothing more reaches a Store that it did not name,
however much of an answer is on its way, and a LIST that was under way there is forgotten. One that
is named again as it was goes on undisturbed. It lives as long as `run`.
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
    """Where the objects of a collection go; another Feed means to begin anew."""

    store: Store
    report: Callable[[str | None], None]  # what stands in the way, in words, or None
    failed: Callable[[SyncError], None] = _ignore  # the same as an error, before it is reported


class Following:
    """One Reflector for each collection that is wanted."""

    def __init__(
        self,
        source: Callable[[GroupVersionResource], ListerWatcher],
        purpose: str = "",
        *,
        counted: str | None = None,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        """`purpose` ends the names of the Reflectors in logs, as ` for topology`.

        `counted` does so in metrics, where there may be any number of purposes.
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
        """The collections that are followed, or will be when this runs."""
        return frozenset(self._valves)

    def want(self, feeds: Mapping[GroupVersionResource, Feed]) -> None:
        """Follow exactly these collections from now on."""
        for gvr, valve in list(self._valves.items()):
            if feeds.get(gvr) is not valve.feed:
                del self._valves[gvr]
                self._stop(valve)
        for gvr in feeds.keys() - self._valves.keys():
            self._valves[gvr] = valve = _Valve(feeds[gvr])
            self._start(gvr, valve)

    async def run(self) -> None:
        """Follow what is wanted until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for gvr, valve in self._valves.items():
                    self._start(gvr, valve)
                await asyncio.Event().wait()
            finally:
                # Whoever changes his mind while the group ends must start nothing in it.
                self._group = None

    def _start(self, gvr: GroupVersionResource, valve: _Valve) -> None:
        if self._group is None:
            return
        source = _Heard(self._source(gvr), valve.failed)
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
    """A Feed that can be closed: a cancelled task may still have much to say before it waits."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._open = True

    def close(self) -> None:
        """Let nothing more through, and forget the LIST that this breaks off."""
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


class _Heard:
    """A ListerWatcher whose errors somebody hears of."""

    def __init__(self, source: ListerWatcher, hear: Callable[[SyncError], None]) -> None:
        self._source = source
        self._hear = hear

    async def list(self) -> AsyncGenerator[Page]:
        try:
            async with aclosing(self._source.list()) as pages:
                async for page in pages:
                    yield page
        except SyncError as error:
            self._hear(error)
            raise

    async def watch(self, since: ResourceVersion) -> AsyncGenerator[Event]:
        try:
            async with aclosing(self._source.watch(since)) as events:
                async for event in events:
                    yield event
        except SyncError as error:
            self._hear(error)
            raise
