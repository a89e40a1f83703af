"""Who goes first when there is not enough for all: nobody waits for ever.

A move that finds no token is told when to ask again, the later the more wait for the same before
it. The one that has waited longest is safe: no other takes a token that it would miss at its time.
So it goes the next time it asks, and then another has waited longest. One that does not ask when
it said, or is not wanted any more, is not waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass

from kube_sync.safety.budget import Budget, Scope

_PATIENCE_SECONDS = 60.0
_SAME = 1e-3  # seconds: what floating point loses


@dataclass(frozen=True, slots=True)
class _Waiting:
    scopes: Collection[Scope]
    until: float
    short_of: Scope


class Turns:
    """Those that wait for a token, longest first."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, _Waiting] = {}
        self._short: Counter[Scope] = Counter()

    def take(
        self, budget: Budget, key: Hashable, scopes: Collection[Scope], now: float
    ) -> tuple[float, Scope] | None:
        """Spend a token of each scope; otherwise return when to ask again, and for which."""
        until, short_of = budget.earliest(scopes, now)
        ahead = self._short[short_of]
        if until <= now and (first := self._first(key, now)) is not None:
            until, short_of = _after(budget, first, scopes, now)
            ahead = max(0, self._short[short_of] - 1)  # the first is counted already
        if until <= now:
            self.leave(key)
            budget.spend(scopes, now)
            return None
        if key not in self._waiting:
            until += ahead * budget.interval(short_of)
        self._wait(key, _Waiting(scopes, until, short_of))
        return until, short_of

    def leave(self, key: Hashable) -> None:
        """Wait no longer."""
        if (waiting := self._waiting.pop(key, None)) is not None:
            self._count(waiting.short_of, -1)

    def _wait(self, key: Hashable, waiting: _Waiting) -> None:
        if (before := self._waiting.get(key)) is not None:
            self._count(before.short_of, -1)
        self._waiting[key] = waiting  # where it was, if it was there
        self._count(waiting.short_of, 1)

    def _count(self, scope: Scope, by: int) -> None:
        self._short[scope] += by
        if not self._short[scope]:
            del self._short[scope]

    def _first(self, key: Hashable, now: float) -> _Waiting | None:
        """Return the one that has waited longest, unless that is `key` itself."""
        while self._waiting:
            first = next(iter(self._waiting))
            if first == key:
                return None
            if now <= self._waiting[first].until + _PATIENCE_SECONDS:
                return self._waiting[first]
            self.leave(first)
        return None


def _after(
    budget: Budget, first: _Waiting, scopes: Collection[Scope], now: float
) -> tuple[float, Scope]:
    """Return when one may take of `scopes` so that `first` does not have to wait for it."""
    turn = max(first.until, budget.earliest(first.scopes, now)[0])
    if budget.earliest(first.scopes, now, besides=scopes)[0] <= turn + _SAME:
        return now, first.short_of
    return budget.earliest(scopes, now, besides=first.scopes)
