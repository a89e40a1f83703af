"""What changed lately: a ring of the last changes of decisions, each with when it was seen.

Keeps true: memory is bounded by count and by age, whatever happens; what is no longer there is
said. It is fed by a reader of the hub, so it costs a decision nothing; steps that come and go
between two turns of the event loop are coalesced as for every reader. What was decided first of
all, when OPA was loaded, is no change. It ends with its process: nothing is kept on disk.
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

KEPT = 5_000  # changes
SECONDS = 3600.0

_TURN = 200  # records between two chances for others
_SILENCE = 60.0  # seconds


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change: what was decided before and after. `number` grows by one with each.

    With `gone` the object is no more, and of `old` nothing is known where nothing was decided.
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
    """A part of the history; `upto` is the number to ask for the next part with."""

    changes: tuple[Change, ...]
    upto: int
    complete_since: float  # Unix seconds: of what was before, some or all is not there
    cut: bool  # there were more than are kept, so it goes back less than it could
    more: bool = False


class History:
    """The changes of one replicator process."""

    def __init__(
        self,
        *,
        kept: int = KEPT,
        seconds: float = SECONDS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Keep at most so many changes, for at most so long.

        `clock` tells Unix seconds and never goes back; by default those of the start, and what has
        gone by since.
        """
        self._changes: deque[Change] = deque(maxlen=kept)
        self._seconds = seconds
        self._clock = clock = clock or unix_clock()
        self._began = clock()
        self._dropped_at: float | None = None  # the time of the last that was pushed out by others
        self._number = 0
        self._known: dict[Target, tuple[Decision | None, str | None]] = {}
        self._unconfirmed: set[Target] = set()  # of a reader that began afresh

    async def follow(self, hub: DecisionHub) -> NoReturn:
        """Take in what the hub tells, for ever."""
        while True:
            reader = hub.reader()
            self._unconfirmed = set(self._known)
            try:
                while True:
                    for record in await reader.read(_TURN, _SILENCE):
                        self.take(record)
                    await asyncio.sleep(0)  # a sweep of the fleet is many turns
            except Expired:
                continue  # too far behind: what is now is known again, what was between is not

    def take(self, record: Record) -> None:
        """Take one record in."""
        match record:
            case DecisionRecord():
                self._decided(record)
            case DeletedRecord(object=target):
                self._ended(target)
            case BookmarkRecord():
                for target in [*self._unconfirmed]:
                    self._ended(target)
                self._unconfirmed = set()
            case StatusRecord():
                pass

    def _decided(self, record: DecisionRecord) -> None:
        target, now = record.object, (record.decision, record.failure)
        before = self._known.get(target)
        self._unconfirmed.discard(target)
        if now == (None, None):
            self._known.pop(target, None)
        else:
            self._known[target] = now
        first = before is None and record.cause == "load"
        if before != now and not first:
            self._add(target, old=before[0] if before else None, record=record)

    def _ended(self, target: Target) -> None:
        self._unconfirmed.discard(target)
        if (before := self._known.pop(target, None)) is not None:
            self._add(target, old=before[0])

    def after(self, number: int = 0, limit: int = 1_000) -> Page:
        """Return the changes with a higher number, oldest first, `limit` of them at most."""
        self._forget()
        # Numbers are without gaps, so the place of the first is known.
        oldest = self._number - len(self._changes)
        start = max(0, number - oldest)
        found = tuple(islice(self._changes, start, start + limit))
        upto = found[-1].number if found else self._number
        return self._page(found, upto, more=upto < self._number)

    def of(self, target: Target) -> Page:
        """Return the changes of one object, oldest first."""
        self._forget()
        found = tuple(change for change in self._changes if change.object == target)
        return self._page(found, self._number, more=False)

    def _page(self, found: Iterable[Change], upto: int, *, more: bool) -> Page:
        since = max(self._began, self._clock() - self._seconds)
        cut = self._dropped_at is not None and self._dropped_at >= since
        return Page(tuple(found), upto, max(since, self._dropped_at or since), cut, more)

    def _add(
        self, target: Target, *, old: Decision | None, record: DecisionRecord | None = None
    ) -> None:
        self._forget()
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

    def _forget(self) -> None:
        """Let go what is too old."""
        oldest = self._clock() - self._seconds
        while self._changes and self._changes[0].time < oldest:
            self._changes.popleft()
