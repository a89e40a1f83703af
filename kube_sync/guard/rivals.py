"""Detection of another writer that keeps reverting our PATCHes. Pure.

Fighting it would never end. An object on which the same decision was written three times within a
minute is not written again until the decision changes or a truce ends: a minute, twice as long each
time it happens again, ten minutes at most. The other writer may be our own webhook, which decides
by newer data while decisions arrive late: that ends within the first minute.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

WRITES = 3
_WINDOW = 60.0  # seconds
_FIRST_TRUCE, _TRUCE = 60.0, 600.0  # seconds


@dataclass(frozen=True, slots=True)
class _Record:
    decision: object
    at: tuple[float, ...]
    truce: float  # seconds, the next one


class Rivals:
    """The latest writes of each object, with their decision."""

    def __init__(self, first: float = _FIRST_TRUCE) -> None:
        """`first`: seconds of the first truce."""
        self._first = first
        self._records: dict[Hashable, _Record] = {}

    def wrote(self, key: Hashable, decision: object, now: float) -> None:
        """Record that a decision was written."""
        known = self._records.get(key)
        if known is None or known.decision != decision:
            known = _Record(decision, (), self._first)
        self._records[key] = replace(known, at=(*known.at, now)[-WRITES:])

    def truce(self, key: Hashable, decision: object, now: float) -> float | None:
        """Return when an object may be written again for this decision, None: now."""
        known = self._records.get(key)
        if known is None or known.decision != decision or len(known.at) < WRITES:
            return None
        if known.at[-1] - known.at[0] > _WINDOW:
            return None
        until = known.at[-1] + known.truce
        if until <= now:
            longer = min(2 * known.truce, _TRUCE)
            self._records[key] = _Record(decision, known.at[-1:], longer)
            return None
        return until

    def forget(self, key: Hashable) -> None:
        """Forget a deleted object."""
        self._records.pop(key, None)

    def tidy(self, now: float) -> None:
        """Drop expired records."""
        old = [key for key, known in self._records.items() if known.at[-1] + _TRUCE <= now]
        for key in old:
            del self._records[key]
