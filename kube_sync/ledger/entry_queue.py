"""What was said to the ledger and is not in its file yet, in the order in which it came.

Keeps true: it is bounded. What is more than that, or comes while the file cannot be written and
too much waits already, is counted, and becomes a gap where it would have been once all before it is
in the file. Any thread may add to it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import msgspec

from kube_sync.ledger.entries import Entry, GapNote, Text
from kube_sync.ledger.store import Store
from kube_sync.observability import metrics

BURST: Final = 1_000_000  # a class of all objects is said in less than a second

Said = tuple[Entry, Sequence[Text]]
# What gives entries when they are written, and not before: to spare whoever says it the time.
Late = Callable[[Store], Sequence[Said]]
Queued = tuple[Late, int]  # with its number in what was written ahead, 0: it was not


class EntryQueue:
    """Entries to be written, and the count of those that were lost after them."""

    def __init__(self, kept: int, clock: Callable[[], float]) -> None:
        """Keep `kept` entries while the file cannot be written; `clock` is Unix seconds."""
        self.failing: str | None = None  # why the file cannot be written, None: it can
        self.said = 0  # entries that were taken in
        self.settled = 0  # of these, that are in the file
        self.alone = 0  # the last entry that was taken in and is not written ahead
        self._kept = kept
        self._clock = clock
        self._entries: deque[Queued] = deque()
        self._lost: GapNote | None = None  # after all entries
        self._lock = threading.Lock()

    @property
    def losing(self) -> bool:
        """Whether what is put in now is lost: it becomes a part of a gap."""
        return self._lost is not None

    @property
    def is_empty(self) -> bool:
        """Whether no entry waits."""
        return not self._entries

    def put(self, late: Late, number: Callable[[], int] = int) -> bool:
        """Put one in, unless there is no room; returns whether it is in.

        `number` writes it ahead, and returns its number there, 0: it is not written.
        """
        now = self._clock()
        with self._lock:
            most = BURST if self.failing is None else self._kept
            if self._lost is not None or len(self._entries) >= most:
                self._lose(now, self.failing or "too many entries at once")
                return False
            self._append(late, number())
        return True

    def put_first(self, note: GapNote) -> None:
        """Put a gap before all that is to be written."""
        metrics.ledger_gaps.inc()
        with self._lock:
            self.said += 1
            self._entries.appendleft((gap(note), 0))
            self.alone = max(self.alone, self.settled) + 1

    def group(self, most: int) -> list[Queued]:
        """Return the first ones, which stay where they are."""
        with self._lock:
            return [*islice(self._entries, most)]

    def settle(self, count: int) -> GapNote | None:
        """Take so many out, which are in the file; returns the gap that is put in behind them."""
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
        """Do this if nothing is to be written, while nothing can be put in."""
        with self._lock:
            if not self._entries and self._lost is None:
                action()

    def _append(self, late: Late, number: int) -> None:
        self.said += 1
        self._entries.append((late, number))
        if not number:
            self.alone = self.said

    def _lose(self, now: float, reason: str) -> None:
        known = self._lost
        if known is None:
            metrics.ledger_gaps.inc()
            known = GapNote(0, now, now, reason)
        self._lost = GapNote(known.entries + 1, known.begin, now, known.reason)
        metrics.ledger_lost_records.inc()


def gap(note: GapNote) -> Late:
    """Return what says that something is missing."""
    said: Sequence[Said] = ((Entry(kind="gap", note=msgspec.json.encode(note).decode()), ()),)
    return lambda _store: said
