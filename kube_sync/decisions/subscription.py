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

from kube_sync.decisions.changelog import ChangeLog, Entry, parts_of
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

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings that do not invalidate the decisions."""

    def combined_budget(self, sent: Budget | None, current: Budget | None) -> Budget | None:
        """Return the limits for a reader that was `sent` some and has more decisions to read."""


class Subscription:
    """The state of one reader."""

    def __init__(self, hub: Feed, since: int | None = None) -> None:
        """Begin with all current decisions, or after the number `since`. Raises Expired."""
        self._hub = hub
        # It knows all objects that ended up to this number, or never knew them.
        self._known = hub.log.seq if since is None else since
        self._read = 0 if since is None else since
        self._changed = asyncio.Event()
        self._held: tuple[str, ...] | None = None  # last sent to the reader, None: nothing yet
        self._notes: tuple[str, ...] = ()
        self._stale: StaleSources = ()
        self._budget: Budget | None = None  # last sent to the reader
        self._observed_budget: Budget | None = None  # the hub's at that time
        self._bookmarked: int | None = None
        self._check()

    async def read(self, limit: int, seconds: float) -> list[Record]:
        """Wait for records, for at most so many seconds, and return up to `limit` decisions.

        Without a change it returns a bookmark, as a keep-alive. Raises Expired if the reader is so
        far behind that it could miss the end of an object.
        """
        lines = await self._next(limit, seconds)
        return [line.record if isinstance(line, Entry) else line for line in lines]

    async def read_lines(self, limit: int, seconds: float, *, grouped: bool = False) -> bytes:
        """Do the same as `read`, but return lines; `grouped`: one for objects that agree."""
        return joined(await self._next(limit, seconds), grouped=grouped)

    def snapshot(self, limit: int, *, grouped: bool = False) -> Iterator[bytes]:
        """Yield everything from the reader's position to now, `limit` records at a time.

        It ends with a bookmark; changes during the reading are not included.
        """
        lines = self._take(sys.maxsize)
        for start in range(0, len(lines), limit):
            yield joined(lines[start : start + limit], grouped=grouped)

    async def _next(self, limit: int, seconds: float) -> list[Line]:
        while True:
            self._check()
            if lines := self._take(limit):
                return lines
            self._changed.clear()
            self._hub.waiting.add(self._changed)
            try:
                # Not wait_for: before Python 3.12 it swallows a cancellation that comes with news.
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                # What arrived in this moment goes before the bookmark that covers it.
                return self._take(limit) or [self._bookmark()]
            finally:
                self._hub.waiting.discard(self._changed)

    def _check(self) -> None:
        if max(self._known, self._read) < self._hub.log.forgotten:
            msg = "what ended since then is not known any more: start afresh"
            raise Expired(msg)

    def _take(self, limit: int) -> list[Line]:
        held, notes, sources = self._hub.held, self._hub.notes, self._hub.freshness.sources
        lines: list[Line] = []
        is_new = held != self._held and (held or self._held is None)
        budget = self._limits_ahead()
        page = self._hub.log.after(self._read, self._known, limit)
        self._read = page.upto
        reported = self._sources_to_report(sources)
        # The hub keeps an equal budget: comparing large ones in each iteration would be slow.
        is_sent = notes == self._notes and budget is self._budget
        if is_new or reported != self._stale or not is_sent:
            begins_hold = held or self._held is None
            now = (held or (SENDING,)) if begins_hold else self._held
            if not page.entries:  # then the end of a hold precedes no decision
                reported, budget = sources, self._hub.budget
            lines.append(self._status(now, notes, reported, budget))
        lines += page.entries
        is_reported = (self._held, self._stale) == (
            held,
            sources,
        ) and self._budget is self._hub.budget
        if page.complete and not is_reported:
            lines.append(self._status(held, notes, sources, self._hub.budget))
        if page.complete and self._bookmarked != self._hub.log.seq:
            lines.append(self._bookmark())
        return lines

    def _limits_ahead(self) -> Budget | None:
        """Return the limits until the reader has read all earlier decisions."""
        budget, before = self._hub.budget, self._observed_budget
        self._observed_budget = budget
        if self._held is None:  # it may not act on any decision before the end
            return budget
        return self._budget if budget is before else self._hub.combined_budget(self._budget, budget)

    def _status(
        self,
        held: tuple[str, ...] | None,
        notes: tuple[str, ...],
        sources: StaleSources,
        budget: Budget | None,
    ) -> StatusRecord:
        self._held, self._notes, self._stale = held or (), notes, sources
        self._budget = budget
        stale = stale_records(self._hub.freshness, sources)
        return StatusRecord(self._held, self._hub.instance, notes, stale, self._budget)

    def _sources_to_report(self, sources: StaleSources) -> StaleSources:
        """Return the stale sources to report until the reader has read all decisions."""
        reported = {one.source: one for one in self._stale}
        for one in sources:
            # Even if it was current in between, for the reader it has been stale all the time.
            since = min(one.since, reported.get(one.source, one).since)
            reported[one.source] = replace(one, since=since)
        return tuple(one for _, one in sorted(reported.items()))

    def _bookmark(self) -> BookmarkRecord:
        self._bookmarked = self._hub.log.seq
        return BookmarkRecord(self._bookmarked, self._hub.instance)


def joined(lines: Iterable[Line], *, grouped: bool = False) -> bytes:
    """Return the encoded lines; `grouped`: one for entries in a row that share a verdict."""
    parts: list[bytes] = []
    run: list[Entry] = []
    for line in lines:
        if run and not (isinstance(line, Entry) and run[0].agrees_with(line)):
            parts += parts_of(run)
            run = []
        if not isinstance(line, Entry):
            parts.append(encode(line))
        elif grouped:
            run.append(line)
        else:
            parts += line.parts()
    return b"".join((*parts, *parts_of(run)))
