"""Serves the records of a live topology as a ListerWatcher, for a Reflector.

Invariant: nothing is listed while anything is withheld, or the topology cannot be built; after that
a change is the set of records that differ, referenced records before those that refer to them. A
watch that ended in the middle of a change cannot be resumed (410): the following LIST delivers the
rest. It makes no requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Protocol

from kube_sync.errors import Expired
from kube_sync.kube.collection import Event, Item, Page, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.topology.controller.live_topology import Step
from kube_sync.topology.nodes import Locator
from kube_sync.topology.records import Changes, Key, Record, Records, encoded
from kube_sync.topology.topology import Topology

_PAGE = 500  # records
_VERSION_BYTES = 8


class Live(Protocol):
    """A live topology."""

    @property
    def topology(self) -> Topology:
        """The topology as of the last `advance`."""

    @property
    def due(self) -> float | None:
        """When to call `advance` without news, on the monotonic clock."""

    async def advance(self) -> Step:
        """Apply the changes since the last call."""


class News:
    """A flag that there may be changes, with the time when it was set."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is in seconds."""
        self._clock = clock
        self._event = asyncio.Event()
        self._since = 0.0

    def wake(self) -> None:
        """Set the flag."""
        if not self._event.is_set():
            self._since = self._clock()
            self._event.set()

    def clear(self) -> None:
        """Clear the flag: all changes until now are applied."""
        self._event.clear()

    async def next(self, due: float | None) -> float:
        """Wait for news, until `due` at most; return when they came."""
        seconds = None if due is None else max(0.0, due - self._clock())
        try:
            # Not wait_for: before Python 3.12 it swallows a cancellation that coincides.
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return self._clock()
        self.clear()
        return self._since


class LiveRecords:
    """The ListerWatcher of one epoch."""

    def __init__(
        self,
        live: Live,
        news: News,
        withheld: Callable[[], Collection[str]],
        say: Callable[[str | None], None],
    ) -> None:
        """`withheld` names what blocks a LIST; `say` is called with the reason, or None."""
        self._live = live
        self._news = news
        self._withheld = withheld
        self._say = say
        self._records = Records()
        self._revision = 0
        self._unsaid: set[Locator] = set()  # changed and not delivered, also of failed steps

    async def list(self) -> AsyncGenerator[Page]:
        """Yield all records, as soon as the topology is complete."""
        self._revision += 1
        await self._begin()
        version = self._version
        items = (_item(*found) for found in self._records.all())
        while page := [*islice(items, _PAGE)]:
            yield Page(page, version)
        yield Page([], version)  # the version of an empty LIST, too

    async def watch(self, since: ResourceVersion) -> AsyncGenerator[Event]:
        """Yield the records that differ, for ever. Raises Expired."""
        if since != self._version:
            msg = "a change of the topology was not told to its end"
            raise Expired(msg)
        yield Event("CONNECTED", since)
        while True:
            arrived, before = await self._news.next(self._live.due), self._version
            if (step := await self._step()) is None:
                continue
            self._revision += 1  # until the bookmark no watch can be resumed
            for changes in self._parts(step):
                for key, record in changes.in_order():
                    yield _event(key, record, before, arrived)
                await asyncio.sleep(0)
            yield Event("BOOKMARK", self._version)

    @property
    def _version(self) -> ResourceVersion:
        return ResourceVersion(str(self._revision))

    async def _begin(self) -> None:
        while not await self._is_whole():
            await self._news.next(self._live.due)
        self._unsaid.clear()
        self._records = Records()
        for _ in self._records.replace(self._live.topology):
            await asyncio.sleep(0)

    async def _is_whole(self) -> bool:
        if withheld := self._withheld():
            self._say(f"waits for {', '.join(withheld)}")
            return False
        return await self._step() is not None

    async def _step(self) -> Step | None:
        """Apply the changes; None if the topology would be invalid."""
        step = await self._live.advance()
        self._unsaid.update(event.locator for event in step.events if event.meaning)
        self._say(None if step.error is None else f"stays as it was: {step.error}")
        return step if step.error is None else None

    def _parts(self, step: Step) -> Iterator[Changes]:
        touched, self._unsaid = self._unsaid | step.affected, set()
        if step.anew:
            return self._records.replace(self._live.topology)
        return self._records.update(self._live.topology, touched)


def _item(key: Key, record: Record) -> Item:
    body = encoded(record)
    version = blake2b(body, digest_size=_VERSION_BYTES).hexdigest()
    return Item(ObjectKey(*key), "", ResourceVersion(version), body)


def _event(key: Key, record: Record | None, version: ResourceVersion, arrived: float) -> Event:
    if record is None:
        return Event("DELETED", version, Item(ObjectKey(*key), "", version, b""), arrived)
    return Event("MODIFIED", version, _item(key, record), arrived)
