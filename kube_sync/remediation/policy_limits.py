"""The limits that policies tighten, from the status records of the decision stream. Pure.

Invariant: an invalid document changes nothing; before the first valid one the limits are unknown.
It is validated here whichever engine sends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from kube_sync.decisions.records import Budget
from kube_sync.errors import Undecided
from kube_sync.guard import Tightening, parse_tightening
from kube_sync.runtime.freshness import SETTLE_SECONDS

_TOGETHER_SECONDS = 1.0  # those that end within this time end together: a short list


@dataclass(frozen=True, slots=True)
class LimitSource:
    """The tightening in force, and why it is not the latest one.

    `by` is None while it is unknown.
    """

    by: Tightening | None = None
    trouble: str | None = None

    def updated(self, budget: Budget | None) -> LimitSource:
        """Return the tightening in force after this record."""
        if budget is None:
            return LimitSource(Tightening())
        if budget.failure is not None and not budget.last_good:
            return LimitSource(self.by, budget.failure)
        try:
            document = {} if budget.document is None else budget.document
            return LimitSource(parse_tightening(document), budget.failure)
        except Undecided as error:
            return LimitSource(self.by, str(error))


class Easing:
    """Keeps ended limits in force for a few seconds, until the decisions that follow arrive.

    The end of a limit and the decisions that take moves back may have one cause, such as the end of
    maintenance. Our replicator sends the decisions first; another engine may not, and more may
    follow the first of them.
    """

    def __init__(self) -> None:
        self._ended: list[tuple[float, float, Tightening]] = []  # first and last end (Unix seconds)

    def end(self, by: Tightening, now: float) -> None:
        """Record that another tightening replaced `by`."""
        first = now
        if self._ended and now < self._ended[-1][0] + _TOGETHER_SECONDS:
            first, _, before = self._ended.pop()
            by = by.stricter(before)
        self._ended.append((first, now, by))

    def with_(self, by: Tightening, now: float) -> Tightening:
        """Return the strictest of `by` and the tightenings that ended lately."""
        self._ended = [ended for ended in self._ended if now < ended[1] + SETTLE_SECONDS]
        return reduce(lambda tight, ended: tight.stricter(ended[2]), self._ended, by)
