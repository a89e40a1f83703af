"""A fair queue of moves that wait for tokens, in which no move waits for ever.

A move without a token gets a time to retry, later the more moves wait for the same scope before it.
Namespaces take turns (round robin), so that one with few moves is not delayed by one with many. The
first in the queue is the longest waiting move of the next namespace, and its token is reserved: no
other move takes one that it would miss at its time. So it succeeds on its next try, and the next
namespace follows. A move that does not retry in time, or is not wanted any more, loses its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass

from kube_sync.guard.budget import Budget, Scope

_PATIENCE_SECONDS = 60.0
_SAME = 1e-3  # seconds: the rounding error of floating point


@dataclass(frozen=True, slots=True)
class _Waiting:
    scopes: Collection[Scope]
    until: float
    short_of: Scope
    namespace: str


class TokenQueue:
    """Waiting moves: namespaces in the order of their turns, in each the longest waiting first."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Hashable, _Waiting]] = {}  # by namespace
        self._namespaces: dict[Hashable, str] = {}  # of waiting moves
        self._short: dict[Scope, Counter[str]] = {}  # number of moves by namespace

    def acquire(
        self, budget: Budget, key: Hashable, scopes: Collection[Scope], now: float
    ) -> tuple[float, Scope] | None:
        """Spend a token of each scope; otherwise return when to retry, and the missing scope."""
        namespace = dict(scopes).get("namespace", "")
        until, short_of = budget.earliest(scopes, now)
        ahead = self._ahead(short_of, namespace)
        if until <= now and (first := self._first(key, now)) is not None:
            until, short_of = _after(budget, first, scopes, now)
            ahead = max(0, self._ahead(short_of, namespace) - 1)  # the first is counted already
        if until <= now:
            self.remove(key)
            if (others := self._waiting.pop(namespace, None)) is not None:
                self._waiting[namespace] = others  # after all other namespaces
            budget.spend(scopes, now)
            return None
        if key not in self._namespaces:
            until += ahead * budget.interval(short_of)
        self._add(key, _Waiting(scopes, until, short_of, namespace))
        return until, short_of

    def remove(self, key: Hashable) -> None:
        """Remove a move from the queue."""
        if (namespace := self._namespaces.pop(key, None)) is not None:
            self._count(self._waiting[namespace].pop(key), -1)
            if not self._waiting[namespace]:
                del self._waiting[namespace]

    def _add(self, key: Hashable, waiting: _Waiting) -> None:
        same = self._waiting.setdefault(waiting.namespace, {})
        if (before := same.get(key)) is not None:
            self._count(before, -1)
        self._namespaces[key] = waiting.namespace
        same[key] = waiting  # keeps its place in the order, if it has one
        self._count(waiting, 1)

    def _count(self, waiting: _Waiting, by: int) -> None:
        counts = self._short.setdefault(waiting.short_of, Counter())
        counts[waiting.namespace] += by
        if not counts[waiting.namespace]:
            del counts[waiting.namespace]
        if not counts:
            del self._short[waiting.short_of]

    def _ahead(self, scope: Scope, namespace: str) -> int:
        """Return how many moves are ahead of a new one: its own n, of each other at most n + 1."""
        counts = self._short.get(scope, Counter[str]())
        own = counts[namespace]
        return own + sum(min(n, own + 1) for other, n in counts.items() if other != namespace)

    def _first(self, key: Hashable, now: float) -> _Waiting | None:
        """Return the first move in the queue, unless that is `key` itself."""
        while self._waiting:
            first, waiting = next(iter(next(iter(self._waiting.values())).items()))
            if first == key:
                return None
            if now <= waiting.until + _PATIENCE_SECONDS:
                return waiting
            self.remove(first)
        return None


def _after(
    budget: Budget, first: _Waiting, scopes: Collection[Scope], now: float
) -> tuple[float, Scope]:
    """Return when a move may take `scopes` without a delay of `first`."""
    turn = max(first.until, budget.earliest(first.scopes, now)[0])
    if budget.earliest(first.scopes, now, besides=scopes)[0] <= turn + _SAME:
        return now, first.short_of
    return budget.earliest(scopes, now, besides=first.scopes)
