"""The queue of entries that are not in the ledger's file yet, in the order of their arrival.

Invariant: it is bounded. An entry over the bound, or one that arrives while the file cannot be
written and too many wait already, is counted as lost; a gap takes its place once all entries
before it are in the file. Any thread may add to it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from kube_sync.ledger.entries import Entry, GapNote, Text
from kube_sync.observability import metrics

if TYPE_CHECKING:  # slow, and not needed where nothing is recorded
    from kube_sync.ledger.store import Store

BURST: Final = 1_000_000  # a decision class of all objects arrives in less than a second

EntryWithTexts = tuple[Entry, Sequence[Text]]
# Returns entries when they are written, not when queued: it spares the caller the encoding.
EntrySource = Callable[["Store"], Sequence[EntryWithTexts]]
Queued = tuple[EntrySource, int]  # with its number in the write-ahead file, 0: it is not there


class EntryQueue:
    """The entries to be written, and the count of entries lost after them."""

    def __init__(self, kept: int, clock: Callable[[], float]) -> None:
        """Keep `kept` entries while the file cannot be written; `clock` is Unix seconds."""
        self.failing: str | None = None  # why the file cannot be written, None: it can
        self.accepted = 0  # entries that were accepted
        self.settled = 0  # of these, the entries in the file
        self.alone = 0  # the number of the last accepted entry that is not in the write-ahead file
        self._kept = kept
        self._clock = clock
        self._entries: deque[Queued] = deque()
        self._lost: GapNote | None = None  # after all entries
        self._lock = threading.Lock()

    @property
    def losing(self) -> bool:
        """Whether the queue drops new entries, which become part of a gap."""
        return self._lost is not None

    @property
    def is_empty(self) -> bool:
        """Whether the queue has no entries."""
        return not self._entries

    def put(self, source: EntrySource, number: Callable[[], int] = int) -> bool:
        """Add an entry unless the queue is full; return whether it was added.

        `number` writes it ahead and returns its number there, 0: it is not written ahead.
        """
        now = self._clock()
        with self._lock:
            most = BURST if self.failing is None else self._kept
            if self._lost is not None or len(self._entries) >= most:
                self._lose(now, self.failing or "too many entries at once")
                return False
            self._append(source, number())
        return True

    def put_first(self, note: GapNote) -> None:
        """Insert a gap before all queued entries."""
        metrics.ledger_gaps.inc()
        with self._lock:
            self.accepted += 1
            self._entries.appendleft((gap(note), 0))
            self.alone = max(self.alone, self.settled) + 1

    def group(self, most: int) -> list[Queued]:
        """Return the first entries without removing them."""
        with self._lock:
            return [*islice(self._entries, most)]

    def settle(self, count: int) -> GapNote | None:
        """Remove the first `count` entries, now in the file; return the gap queued behind them."""
        with self._lock:
            for _ in range(count):
                self._entries.popleft()
            self.settled += count
            if self._entries or self._lost is None:
                return None
            lost, self._lost = self._lost, None
            self._append(gap(lost), 0)
            return lost

    def if_settled(self, action: Callable[[], None]) -> None:
        """Run this if the queue is empty, while nothing can be added."""
        with self._lock:
            if not self._entries and self._lost is None:
                action()

    def _append(self, source: EntrySource, number: int) -> None:
        self.accepted += 1
        self._entries.append((source, number))
        if not number:
            self.alone = self.accepted

    def _lose(self, now: float, reason: str) -> None:
        known = self._lost
        if known is None:
            metrics.ledger_gaps.inc()
            known = GapNote(0, now, now, reason)
        self._lost = GapNote(known.entries + 1, known.begin, now, known.reason)
        metrics.ledger_lost_records.inc()


def gap(note: GapNote) -> EntrySource:
    """Return the entry source of a gap."""
    entries: Sequence[EntryWithTexts] = (
        (Entry(kind="gap", note=msgspec.json.encode(note).decode()), ()),
    )
    return lambda _store: entries
