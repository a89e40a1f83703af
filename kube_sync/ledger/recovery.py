"""What an earlier process wrote ahead of the ledger and did not get into it any more.

Keeps true: it comes first and in its order, and nothing of it twice: what the file has already is
left out. Where another process has written since, it may not be so any more: then a gap says how
much was left out, and until then the file is not said to have what this process writes ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import msgspec
import structlog

from kube_sync.errors import NO_JSON
from kube_sync.ledger.entries import GapNote
from kube_sync.ledger.entry_queue import Queued, Said, gap
from kube_sync.ledger.store import IngestPosition, Store
from kube_sync.ledger.write_ahead import Ahead
from kube_sync.observability import metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()

# What reads what an earlier process wrote ahead (MessagePack): all of it in order, from the first.
Recall = Callable[[msgspec.Raw], Sequence[Said]]


class Recovery:
    """The records of an earlier process, until they are in the file."""

    def __init__(self, ahead: Ahead, recall: Recall | None, now: Callable[[], float]) -> None:
        """Take over what is left in `ahead`; without `recall` there is nothing to be read."""
        self._generation = ahead.generation
        self._left, ahead.left = ahead.left, ()
        self._recall = recall
        self._now = now
        self._had: IngestPosition | None = None  # how far the file had it when it was opened first
        self._stale: set[int] = set()  # what came too late, by number
        self._read: dict[int, Sequence[Said]] = {}  # of the group that is tried, by number
        self._is_over = recall is None  # all that was left is in the file

    def entries(self) -> Iterator[Queued]:
        """Yield what was left, and at its end what is said of what is not believed."""
        if self._recall is not None:
            for number, body in self._left:
                yield partial(self._recalled, self._recall, number, body), number
            yield self._gap_of_stale, 0
        self._left = ()

    def opened(self, had: IngestPosition) -> None:
        """Take note of how far a file has what was written ahead of it; the first one counts."""
        self._had = self._had or had

    def is_doubtful(self, group: Iterable[Queued]) -> bool:
        """Tell whether, with this group in the file, it is not told what is not believed.

        Until it is told how many these are, nobody may take them for our own.
        """
        return self._had is not None and self._had.others and not self._is_over_with(group)

    def settle(self, group: Iterable[Queued]) -> None:
        """Take note that this group is in the file."""
        self._is_over = self._is_over_with(group)
        self._read.clear()

    def _is_over_with(self, group: Iterable[Queued]) -> bool:
        return self._is_over or any(late == self._gap_of_stale for late, _ in group)

    def _recalled(
        self, recall: Recall, number: int, body: msgspec.Raw, _store: Store
    ) -> Sequence[Said]:
        """Return what was written under a number, as far as the file does not have it.

        Read once, in order, also where the file did not take the group and it is tried again.
        """
        if number not in self._read:
            try:
                self._read[number] = recall(body)
            except NO_JSON:  # of another version: what it says is not known
                self._stale.add(number)
                self._read[number] = ()
        said, had = self._read[number], self._had
        if had is None or not said or (had.generation == self._generation and number <= had.number):
            return ()
        if had.others:
            self._stale.add(number)  # what it says may not be so any more
            return ()
        return said

    def _gap_of_stale(self, store: Store) -> Sequence[Said]:
        if not self._stale:
            return ()
        reason = "a process that was killed left records, and another one has written since"
        log.error("ledger_gap", entries=len(self._stale), reason=reason)
        metrics.ledger_gaps.inc()
        return gap(GapNote(len(self._stale), 0, self._now(), reason))(store)
