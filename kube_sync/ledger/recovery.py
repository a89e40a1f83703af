"""Recovers the entries that an earlier process wrote ahead and did not get into the ledger.

Invariant: they come first and in their order, none of them twice: those in the file already are
left out. If another process has written since, they may be outdated: then a gap has the number
left out, and until it is recorded the file's position in the write-ahead file is not advanced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import msgspec
import structlog

from kube_sync.errors import NO_JSON
from kube_sync.ledger.entries import GapNote
from kube_sync.ledger.entry_queue import EntryWithTexts, Queued, gap
from kube_sync.ledger.store import IngestPosition, Store
from kube_sync.ledger.write_ahead import Ahead
from kube_sync.observability import metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()

# Returns the entries of an item written ahead (MessagePack); called in order, from the first.
Recall = Callable[[msgspec.Raw], Sequence[EntryWithTexts]]


class Recovery:
    """The items of an earlier process, until they are in the ledger."""

    def __init__(self, ahead: Ahead, recall: Recall | None, now: Callable[[], float]) -> None:
        """Take over the items left in `ahead`; without `recall` there are none."""
        self._generation = ahead.generation
        self._left, ahead.left = ahead.left, ()
        self._recall = recall
        self._now = now
        self._had: IngestPosition | None = None  # the ledger's position when it was first opened
        self._stale: set[int] = set()  # the numbers of items that came too late
        # The entries of the current group, by number.
        self._read: dict[int, Sequence[EntryWithTexts]] = {}
        self._is_over = recall is None  # all items are in the ledger

    def entries(self) -> Iterator[Queued]:
        """Yield the items, and at their end a gap for those that were left out."""
        if self._recall is not None:
            for number, body in self._left:
                yield partial(self._recalled, self._recall, number, body), number
            yield self._gap_of_stale, 0
        self._left = ()

    def opened(self, had: IngestPosition) -> None:
        """Set the ledger's position in the write-ahead file; only the first call counts."""
        self._had = self._had or had

    def is_doubtful(self, group: Iterable[Queued]) -> bool:
        """Return whether items left out are still without a recorded gap after this group.

        Until their gap is recorded, the position must not cover them.
        """
        return self._had is not None and self._had.others and not self._is_over_with(group)

    def settle(self, group: Iterable[Queued]) -> None:
        """Mark this group as recorded in the file."""
        self._is_over = self._is_over_with(group)
        self._read.clear()

    def _is_over_with(self, group: Iterable[Queued]) -> bool:
        return self._is_over or any(late == self._gap_of_stale for late, _ in group)

    def _recalled(
        self, recall: Recall, number: int, body: msgspec.Raw, _store: Store
    ) -> Sequence[EntryWithTexts]:
        """Return the entries of an item that the file does not have.

        Each is read once, in order, also if the write of the group failed and is retried.
        """
        if number not in self._read:
            try:
                self._read[number] = recall(body)
            except NO_JSON:  # an item of another version: unreadable
                self._stale.add(number)
                self._read[number] = ()
        entries, had = self._read[number], self._had
        if (
            had is None
            or not entries
            or (had.generation == self._generation and number <= had.number)
        ):
            return ()
        if had.others:
            self._stale.add(number)  # the entries may be outdated
            return ()
        return entries

    def _gap_of_stale(self, store: Store) -> Sequence[EntryWithTexts]:
        if not self._stale:
            return ()
        reason = "a process that was killed left records, and another one has written since"
        log.error("ledger_gap", entries=len(self._stale), reason=reason)
        metrics.ledger_gaps.inc()
        return gap(GapNote(len(self._stale), 0, self._now(), reason))(store)
