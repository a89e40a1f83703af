"""What policies make less of: the limits as the decision stream tells them. Pure.

Keeps true: what cannot be used changes nothing; before anything usable was told, nobody knows how
much may move. It is read here and not believed to be good, whatever engine sends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from kube_sync.decisions.records import Budget
from kube_sync.errors import Undecided
from kube_sync.guard import Tightening, parse_tightening
from kube_sync.runtime.freshness import SETTLE_SECONDS

_TOGETHER_SECONDS = 1.0  # what ends within so long ends at once: there are a few of them at most


@dataclass(frozen=True, slots=True)
class LimitSource:
    """What tightens the limits now, and why that is not what was told last.

    `by` is None while nobody knows.
    """

    by: Tightening | None = None
    trouble: str | None = None

    def told(self, budget: Budget | None) -> LimitSource:
        """Return what is in force once this was told."""
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
    """What limited until a moment ago: it still does, until the decisions of its end are in.

    The end of a limit and the decisions that take moves back may have one reason, as when
    maintenance ends. Our replicator tells the decisions first; another engine may not, and after
    the first of them there may be more. So what is replaced counts for a few seconds more.
    """

    def __init__(self) -> None:
        self._ended: list[tuple[float, float, Tightening]] = []  # first and last end (Unix seconds)

    def end(self, by: Tightening, now: float) -> None:
        """Take note that another one is told in place of `by`."""
        first = now
        if self._ended and now < self._ended[-1][0] + _TOGETHER_SECONDS:
            first, _, before = self._ended.pop()
            by = by.stricter(before)
        self._ended.append((first, now, by))

    def with_(self, by: Tightening, now: float) -> Tightening:
        """Return what is in force while `by` is what was told last."""
        self._ended = [ended for ended in self._ended if now < ended[1] + SETTLE_SECONDS]
        return reduce(lambda tight, ended: tight.stricter(ended[2]), self._ended, by)
