"""A ring buffer of the latest decision changes, each with the time at which it was seen.

Invariant: memory is bounded by count and by age, and a page says what is missing. A reader of the
hub fills it, so it costs the evaluation nothing; changes within one iteration of the event loop are
coalesced as for every reader. The first decisions after a load are no changes. It ends with its
process: nothing is stored on disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NoReturn

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    Record,
    Source,
    StatusRecord,
    Target,
)
from kube_sync.errors import Expired
from kube_sync.runtime.clock import unix_clock

CAPACITY = 5_000  # changes
SECONDS = 3600.0

_RECORDS_PER_YIELD = 200  # records between two yields to other tasks
_READ_SECONDS = 60.0  # seconds


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change: the decision before and after. `number` grows by one with each.

    With `gone` the object was deleted. `old` is None if nothing was decided before.
    """

    number: int
    time: float  # Unix seconds, when it was seen
    object: Target
    old: Decision | None = None
    new: Decision | None = None
    failure: str | None = None
    gone: bool = False
    cause: str = ""
    source: Source | None = None
    policy: str = ""


class Page(msgspec.Struct, frozen=True):
    """Part of the history; pass `upto` to get the next part."""

    changes: tuple[Change, ...]
    upto: int
    complete_since: float  # Unix seconds: some or all earlier changes are missing
    cut: bool  # the count limit dropped changes within the age limit
    more: bool = False


class History:
    """The decision changes of one replicator process."""

    def __init__(
        self,
        *,
        capacity: int = CAPACITY,
        seconds: float = SECONDS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Keep at most so many changes, for at most so long.

        `clock` returns Unix seconds and never goes back; by default the start time plus the elapsed
        time.
        """
        self._changes: deque[Change] = deque(maxlen=capacity)
        self._seconds = seconds
        self._clock = clock = clock or unix_clock()
        self._started = clock()
        self._dropped_at: float | None = None  # time of the last change dropped by count
        self._number = 0
        self._known: dict[Target, tuple[Decision | None, str | None]] = {}
        self._unconfirmed: set[Target] = set()  # of a reader that has started over

    async def follow(self, hub: DecisionHub) -> NoReturn:
        """Read the hub's records until cancelled."""
        while True:
            reader = hub.open_reader()
            self._unconfirmed = set(self._known)
            try:
                while True:
                    for record in await reader.read(_RECORDS_PER_YIELD, _READ_SECONDS):
                        self.add(record)
                    await asyncio.sleep(0)  # a sweep of the fleet takes many iterations
            except Expired:
                continue  # too far behind: read the present state again, without its history

    def add(self, record: Record) -> None:
        """Add one record."""
        match record:
            case DecisionRecord():
                self._add_decision(record)
            case DeletedRecord(object=target):
                self._add_deletion(target)
            case BookmarkRecord():
                for target in [*self._unconfirmed]:
                    self._add_deletion(target)
                self._unconfirmed = set()
            case StatusRecord():
                pass

    def _add_decision(self, record: DecisionRecord) -> None:
        target, now = record.object, (record.decision, record.failure)
        before = self._known.get(target)
        self._unconfirmed.discard(target)
        if now == (None, None):
            self._known.pop(target, None)
        else:
            self._known[target] = now
        first = before is None and record.cause == "load"
        if before != now and not first:
            self._append(target, old=before[0] if before else None, record=record)

    def _add_deletion(self, target: Target) -> None:
        self._unconfirmed.discard(target)
        if (before := self._known.pop(target, None)) is not None:
            self._append(target, old=before[0])

    def after(self, number: int = 0, limit: int = 1_000) -> Page:
        """Return the changes with a higher number, oldest first, at most `limit`."""
        self._drop_expired()
        # Numbers have no gaps, so the position of the first is known.
        oldest = self._number - len(self._changes)
        start = max(0, number - oldest)
        found = tuple(islice(self._changes, start, start + limit))
        upto = found[-1].number if found else self._number
        return self._page(found, upto, more=upto < self._number)

    def of(self, target: Target) -> Page:
        """Return the changes of one object, oldest first."""
        self._drop_expired()
        found = tuple(change for change in self._changes if change.object == target)
        return self._page(found, self._number, more=False)

    def _page(self, found: Iterable[Change], upto: int, *, more: bool) -> Page:
        since = max(self._started, self._clock() - self._seconds)
        cut = self._dropped_at is not None and self._dropped_at >= since
        return Page(tuple(found), upto, max(since, self._dropped_at or since), cut, more)

    def _append(
        self, target: Target, *, old: Decision | None, record: DecisionRecord | None = None
    ) -> None:
        self._drop_expired()
        if len(self._changes) == self._changes.maxlen:
            self._dropped_at = self._changes[0].time
        self._number += 1
        now = self._clock()
        if record is None:
            change = Change(number=self._number, time=now, object=target, old=old, gone=True)
        else:
            change = Change(
                number=self._number,
                time=now,
                object=target,
                old=old,
                new=record.decision,
                failure=record.failure,
                cause=record.cause,
                source=record.source,
                policy=record.policy,
            )
        self._changes.append(change)

    def _drop_expired(self) -> None:
        """Drop changes that are too old."""
        oldest = self._clock() - self._seconds
        while self._changes and self._changes[0].time < oldest:
            self._changes.popleft()
