"""One reader of the hub: its position, and the holds, notes and limits that it was sent.

Invariant: a hold, and a stale source, is sent before anything else; its end only after all
decisions that came before it. Stricter limits are sent before all later decisions, looser ones
after all earlier decisions. A reader has no queue: unread entries are in the ChangeLog, once for
all readers, and coalesced to the latest of each object.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from kube_sync.decisions.changelog import ChangeLog, Entry
from kube_sync.decisions.records import (
    BookmarkRecord,
    Budget,
    DecisionFreshness,
    Record,
    StaleSources,
    StatusRecord,
    encode,
    stale_records,
)
from kube_sync.errors import Expired

SENDING = "the decisions are being sent"

Line = Entry | StatusRecord | BookmarkRecord


class Feed(Protocol):
    """The source of a reader, the DecisionHub."""

    instance: str
    log: ChangeLog
    freshness: DecisionFreshness
    budget: Budget | None
    waiting: set[asyncio.Event]

    @property
    def held(self) -> tuple[str, ...]:
        """Why readers must not act now."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings that do not invalidate the decisions."""
        ...

    def both(self, told: Budget | None, now: Budget | None) -> Budget | None:
        """Return the limits for a reader that was `told` some and has more decisions to read."""
        ...


class Subscription:
    """The state of one reader."""

    def __init__(self, hub: Feed, since: int | None = None) -> None:
        """Begin with all current decisions, or after the number `since`. Raises Expired."""
        self._hub = hub
        # It knows all objects that ended up to this number, or never knew them.
        self._known = hub.log.seq if since is None else since
        self._read = 0 if since is None else since
        self._news = asyncio.Event()
        self._held: tuple[str, ...] | None = None  # last sent to the reader, None: nothing yet
        self._notes: tuple[str, ...] = ()
        self._late: StaleSources = ()
        self._budget: Budget | None = None  # last sent to the reader
        self._looked_at: Budget | None = None  # the hub's at that time
        self._marked: int | None = None
        self._check()

    async def read(self, limit: int, silence: float) -> list[Record]:
        """Wait for records, at most `silence` seconds, and return up to `limit` decisions.

        Without a change it returns a bookmark, as a keep-alive. Raises Expired if the reader is so
        far behind that it could miss the end of an object.
        """
        lines = await self._next(limit, silence)
        return [line.record if isinstance(line, Entry) else line for line in lines]

    async def read_lines(self, limit: int, silence: float) -> bytes:
        """Do the same as `read`, but return encoded lines."""
        return joined(await self._next(limit, silence))

    def snapshot(self, limit: int) -> Iterator[bytes]:
        """Yield everything from the reader's position to now, `limit` records at a time.

        It ends with a bookmark; changes during the reading are not included.
        """
        lines = self._take(sys.maxsize)
        for start in range(0, len(lines), limit):
            yield joined(lines[start : start + limit])

    async def _next(self, limit: int, silence: float) -> list[Line]:
        while True:
            self._check()
            if lines := self._take(limit):
                return lines
            self._news.clear()
            self._hub.waiting.add(self._news)
            try:
                # Not wait_for: before Python 3.12 it swallows a cancellation that comes with news.
                async with asyncio.timeout(silence):
                    await self._news.wait()
            except TimeoutError:
                # What arrived in this moment goes before the bookmark that covers it.
                return self._take(limit) or [self._bookmark()]
            finally:
                self._hub.waiting.discard(self._news)

    def _check(self) -> None:
        if max(self._known, self._read) < self._hub.log.forgotten:
            msg = "what ended since then is not known any more: start afresh"
            raise Expired(msg)

    def _take(self, limit: int) -> list[Line]:
        held, notes, late = self._hub.held, self._hub.notes, self._hub.freshness.sources
        lines: list[Line] = []
        news = held != self._held and (held or self._held is None)
        budget = self._limits_ahead()
        page = self._hub.log.after(self._read, self._known, limit)
        self._read = page.upto
        so_far = self._not_current(late)
        # The hub keeps an equal budget: comparing large ones in each iteration would be slow.
        said = notes == self._notes and budget is self._budget
        if news or so_far != self._late or not said:
            begins = held or self._held is None
            now = (held or (SENDING,)) if begins else self._held
            if not page.entries:  # then the end of a hold precedes no decision
                so_far, budget = late, self._hub.budget
            lines.append(self._status(now, notes, so_far, budget))
        lines += page.entries
        known = (self._held, self._late) == (held, late) and self._budget is self._hub.budget
        if page.complete and not known:
            lines.append(self._status(held, notes, late, self._hub.budget))
        if page.complete and self._marked != self._hub.log.seq:
            lines.append(self._bookmark())
        return lines

    def _limits_ahead(self) -> Budget | None:
        """Return the limits until the reader has read all earlier decisions."""
        budget, before = self._hub.budget, self._looked_at
        self._looked_at = budget
        if self._held is None:  # it may not act on any decision before the end
            return budget
        return self._budget if budget is before else self._hub.both(self._budget, budget)

    def _status(
        self,
        held: tuple[str, ...] | None,
        notes: tuple[str, ...],
        late: StaleSources,
        budget: Budget | None,
    ) -> StatusRecord:
        self._held, self._notes, self._late = held or (), notes, late
        self._budget = budget
        stale = stale_records(self._hub.freshness, late)
        return StatusRecord(self._held, self._hub.instance, notes, stale, self._budget)

    def _not_current(self, late: StaleSources) -> StaleSources:
        """Return the stale sources to report until the reader has read all decisions."""
        known = {one.source: one for one in self._late}
        for one in late:
            # Even if it was current in between, for the reader it has been stale all the time.
            since = min(one.since, known.get(one.source, one).since)
            known[one.source] = replace(one, since=since)
        return tuple(one for _, one in sorted(known.items()))

    def _bookmark(self) -> BookmarkRecord:
        self._marked = self._hub.log.seq
        return BookmarkRecord(self._marked, self._hub.instance)


def joined(lines: Iterable[Line]) -> bytes:
    """Return the encoded lines."""
    parts: list[bytes] = []
    for line in lines:
        if isinstance(line, Entry):
            parts += line.parts()
        else:
            parts.append(encode(line))
    return b"".join(parts)
