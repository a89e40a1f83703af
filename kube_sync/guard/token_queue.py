"""Who goes first when there is not enough for all: nobody waits for ever.

A move that finds no token is told when to ask again, the later the more wait for the same before
it. Namespaces take turns, so that one with many moves costs one with few no more than one with as
few. Of the namespace whose turn it is the one that has waited longest is safe: no other takes a
token that it would miss at its time. So it goes the next time it asks, and then it is the turn of
another namespace. One that does not ask when it said, or is not wanted any more, is not waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass

from kube_sync.guard.budget import Budget, Scope

_PATIENCE_SECONDS = 60.0
_SAME = 1e-3  # seconds: what floating point loses


@dataclass(frozen=True, slots=True)
class _Waiting:
    scopes: Collection[Scope]
    until: float
    short_of: Scope
    namespace: str


class TokenQueue:
    """Those that wait for a token: of each namespace longest first, and whose turn it is first."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Hashable, _Waiting]] = {}  # by namespace
        self._namespaces: dict[Hashable, str] = {}  # of those that wait
        self._short: dict[Scope, Counter[str]] = {}  # how many of each namespace

    def take(
        self, budget: Budget, key: Hashable, scopes: Collection[Scope], now: float
    ) -> tuple[float, Scope] | None:
        """Spend a token of each scope; otherwise return when to ask again, and for which."""
        namespace = dict(scopes).get("namespace", "")
        until, short_of = budget.earliest(scopes, now)
        ahead = self._ahead(short_of, namespace)
        if until <= now and (first := self._first(key, now)) is not None:
            until, short_of = _after(budget, first, scopes, now)
            ahead = max(0, self._ahead(short_of, namespace) - 1)  # the first is counted already
        if until <= now:
            self.leave(key)
            if (others := self._waiting.pop(namespace, None)) is not None:
                self._waiting[namespace] = others  # whose turn it is again after all others
            budget.spend(scopes, now)
            return None
        if key not in self._namespaces:
            until += ahead * budget.interval(short_of)
        self._wait(key, _Waiting(scopes, until, short_of, namespace))
        return until, short_of

    def leave(self, key: Hashable) -> None:
        """Wait no longer."""
        if (namespace := self._namespaces.pop(key, None)) is not None:
            self._count(self._waiting[namespace].pop(key), -1)
            if not self._waiting[namespace]:
                del self._waiting[namespace]

    def _wait(self, key: Hashable, waiting: _Waiting) -> None:
        same = self._waiting.setdefault(waiting.namespace, {})
        if (before := same.get(key)) is not None:
            self._count(before, -1)
        self._namespaces[key] = waiting.namespace
        same[key] = waiting  # where it was, if it was there
        self._count(waiting, 1)

    def _count(self, waiting: _Waiting, by: int) -> None:
        counts = self._short.setdefault(waiting.short_of, Counter())
        counts[waiting.namespace] += by
        if not counts[waiting.namespace]:
            del counts[waiting.namespace]
        if not counts:
            del self._short[waiting.short_of]

    def _ahead(self, scope: Scope, namespace: str) -> int:
        """Return how many go before one that comes now: no more of others than of its own."""
        counts = self._short.get(scope, Counter[str]())
        own = counts[namespace]
        return own + sum(min(n, own + 1) for other, n in counts.items() if other != namespace)

    def _first(self, key: Hashable, now: float) -> _Waiting | None:
        """Return the one whose turn it is, unless that is `key` itself."""
        while self._waiting:
            first, waiting = next(iter(next(iter(self._waiting.values())).items()))
            if first == key:
                return None
            if now <= waiting.until + _PATIENCE_SECONDS:
                return waiting
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
