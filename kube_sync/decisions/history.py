"""A ring buffer of the latest decision changes, each with the time at which it was made.

Invariant: memory is bounded by count and by age, whatever the number of objects, and a page says
what is missing. The hub calls it with each change and the verdict before, so it keeps no decisions
of its own. The first decisions after a load are no changes. It ends with its process: nothing is
stored on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

import msgspec

from kube_sync.decisions.changelog import EncodedVerdict, Entry, Replaced
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import Source, Target
from kube_sync.runtime.clock import unix_clock

CAPACITY = 5_000  # changes
SECONDS = 3600.0


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change: the decision before and after. `number` grows by one with each.

    With `gone` the object was deleted. `old` is None if nothing was decided before.
    """

    number: int
    time: float  # Unix seconds, when it was made
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


class _Step(msgspec.Struct, frozen=True, gc=False):
    """A change as the hub reports it; what a reader gets of it is made when it is read."""

    number: int
    time: float
    entry: Entry
    before: EncodedVerdict | None


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
        self._changes: deque[_Step] = deque(maxlen=capacity)
        self._seconds = seconds
        self._clock = clock = clock or unix_clock()
        self._started = clock()
        self._dropped_at: float | None = None  # time of the last change dropped by count
        self._number = 0
        self._same: tuple[EncodedVerdict | None, EncodedVerdict | None, bool] = None, None, True

    def add(self, changes: Iterable[Replaced]) -> None:
        """Add changes of the hub.

        A decision or failure that is the same as before is no change.
        """
        kept, now = self._changes, self._clock()
        for entry, before in changes:
            if self._is_change(entry.encoded, before):
                if len(kept) == kept.maxlen:
                    self._dropped_at = kept[0].time
                self._number += 1
                kept.append(_Step(self._number, now, entry, before))

    def _is_change(self, now: EncodedVerdict | None, before: EncodedVerdict | None) -> bool:
        # Objects of one class change alike, one after the other.
        if self._same[0] is not now or self._same[1] is not before:
            self._same = now, before, _is_same(now, before)
        return not self._same[2]

    def after(self, number: int = 0, limit: int = 1_000) -> Page:
        """Return the changes with a higher number, oldest first, at most `limit`."""
        self._drop_expired()
        # Numbers have no gaps, so the position of the first is known.
        oldest = self._number - len(self._changes)
        start = max(0, number - oldest)
        found = tuple(_change(one) for one in islice(self._changes, start, start + limit))
        upto = found[-1].number if found else self._number
        return self._page(found, upto, more=upto < self._number)

    def of(self, target: Target) -> Page:
        """Return the changes of one object, oldest first."""
        self._drop_expired()
        found = tuple(_change(one) for one in self._changes if one.entry.target == target)
        return self._page(found, self._number, more=False)

    def _page(self, found: Iterable[Change], upto: int, *, more: bool) -> Page:
        since = max(self._started, self._clock() - self._seconds)
        cut = self._dropped_at is not None and self._dropped_at >= since
        return Page(tuple(found), upto, max(since, self._dropped_at or since), cut, more)

    def _drop_expired(self) -> None:
        """Drop changes that are too old."""
        oldest = self._clock() - self._seconds
        while self._changes and self._changes[0].time < oldest:
            self._changes.popleft()


def _is_same(now: EncodedVerdict | None, before: EncodedVerdict | None) -> bool:
    if now is None or before is None:  # deleted, or not known before
        return before is None and (now is None or now.verdict.cause == "load")
    one, other = now.verdict, before.verdict
    return (one.decision, one.failure) == (other.decision, other.failure)


def _change(step: _Step) -> Change:
    old = None if step.before is None else step.before.verdict.decision
    number, when, target = step.number, step.time, step.entry.target
    if step.entry.encoded is None:
        return Change(number=number, time=when, object=target, old=old, gone=True)
    verdict = step.entry.encoded.verdict
    return Change(
        number=number,
        time=when,
        object=target,
        old=old,
        new=verdict.decision,
        failure=verdict.failure,
        cause=verdict.cause,
        source=verdict.source,
        policy=verdict.policy,
    )
