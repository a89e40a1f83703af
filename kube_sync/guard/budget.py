"""Token buckets of moves: one for all, one for each namespace, one for each cluster that is left.

Moves of idle workloads, which are cheap to create in thousands, take no tokens of clusters and
share a bucket as large as the one for all others, so they delay only each other.

Invariant: in any period no scope gives more tokens than its rate times the period plus its burst,
also when limits change within it and across restarts, provided that spent tokens are replayed. A
scope that no token was taken from is full and takes no memory.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kube_sync.guard.limits import Limits, Rate
from kube_sync.guard.moves import Change

# ("moves", ""), ("idle", ""), ("namespace", its name) or ("cluster", its name)
Scope = tuple[str, str]
IDLE: Final[Scope] = ("idle", "")

_MANY = 1024
# Seconds, and fractions of a token: the rounding error of floating point.
_NOTHING = 1e-6


def scopes_of(change: Change) -> tuple[Scope, ...]:
    """Return the scopes that a move takes a token from."""
    if change.idle:
        return (IDLE, ("namespace", change.namespace))
    return scopes(change.namespace, change.left)


def scopes(namespace: str, left: Collection[str]) -> tuple[Scope, ...]:
    """Return the scopes of a move in `namespace` away from the clusters `left`."""
    clusters = (("cluster", name) for name in sorted(left))
    return (("moves", ""), ("namespace", namespace), *clusters)


class Budget:
    """Tokens of each scope that are spent and not refilled yet."""

    def __init__(self, limits: Limits) -> None:
        self._rates: dict[str, Rate | None] = {}
        self._first = _rates(limits)
        self._used: dict[Scope, tuple[float, float]] = {}  # tokens, at
        self._exhausted_at: float | None = None
        self._many = _MANY
        self.limit(limits, 0)

    def limit(self, limits: Limits, now: float) -> None:
        """Replace the limits from `now` on; spent tokens stay spent."""
        # Tokens until now were refilled at the old rate.
        self._used = {scope: (self._used_of(scope, now), now) for scope in self._used}
        self._rates = _rates(limits)

    @property
    def fills_within(self) -> float:
        """Seconds until every bucket is full again, whatever was spent."""
        rates = (rate for rate in self._rates.values() if rate is not None)
        return max((rate.burst / rate.per_second for rate in rates), default=0.0)

    def interval(self, scope: Scope) -> float:
        """Return the seconds until one token is refilled, 0 without a limit."""
        rate = self._rates[scope[0]]
        return 1 / rate.per_second if rate else 0

    def earliest(
        self, wanted: Collection[Scope], now: float, besides: Collection[Scope] = ()
    ) -> tuple[float, Scope]:
        """Return when every scope has a token, and which scope has one last.

        `besides`: scopes that another move takes a token from first.
        """
        return max((self._free_at(scope, now, scope in besides), scope) for scope in wanted)

    def spend(self, wanted: Collection[Scope], now: float) -> None:
        """Take a token from each scope."""
        for scope in wanted:
            if self._rates[scope[0]] is not None:
                at = max(now, self._used.get(scope, (0, now))[1])
                self._used[scope] = (self._used_of(scope, now) + 1, at)
        self._prune(now)

    def replay(self, spent: Collection[Scope], at: float) -> None:
        """Spend tokens that an earlier process took, at most the burst: its limits may differ."""
        self.spend(spent, at)
        for scope in spent:
            if (rate := self._rates[scope[0]]) is not None:
                self._used[scope] = (min(self._used[scope][0], rate.burst), at)

    def refund(self, spent: Collection[Scope], at: float, now: float) -> None:
        """Give back tokens that were taken `at`, less what has been refilled since."""
        for scope in spent:
            if (rate := self._rates[scope[0]]) is not None:
                back = max(0.0, 1 - (now - at) * rate.per_second)
                self._used[scope] = (max(0.0, self._used_of(scope, now) - back), now)

    def at_least(self, other: Budget, now: float) -> None:
        """Count as spent what `other` does, where that is more."""
        for scope in {*self._used, *other._used}:
            spent = max(self._used_of(scope, now), other._used_of(scope, now))
            self._used[scope] = (spent, now)

    def exhaust(self, at: float) -> None:
        """Count every scope as empty `at` this time: what was spent before is not known."""
        self._used.clear()
        self._exhausted_at = at

    def _free_at(self, scope: Scope, now: float, besides: bool) -> float:  # noqa: FBT001 - in one place
        rate = self._rates[scope[0]]
        if rate is None:
            return now
        missing = self._used_of(scope, now) + besides + 1 - rate.burst
        if missing <= max(_NOTHING, _NOTHING * rate.per_second):
            return now
        # At least a moment later, so that a caller that retries then does not spin.
        return now + max(missing / rate.per_second, 0.001)

    def _used_of(self, scope: Scope, now: float) -> float:
        rate = self._rates[scope[0]]
        if rate is None:
            return 0
        if scope not in self._used and self._exhausted_at is not None:
            # Also at the first limits: lower limits that have ended must not have refilled it.
            rates = (rate, self._first[scope[0]] or rate)
            return max(_left(one, one.burst, self._exhausted_at, now) for one in rates)
        used, at = self._used.get(scope, (0.0, now))
        return _left(rate, used, at, now)

    def _prune(self, now: float) -> None:
        """Drop full buckets: namespaces and clusters come and go."""
        if len(self._used) >= self._many:
            used = {scope: (self._used_of(scope, now), now) for scope in self._used}
            self._used = {scope: spent for scope, spent in used.items() if spent[0]}
            self._many = max(_MANY, 2 * len(self._used))


def _rates(limits: Limits) -> dict[str, Rate | None]:
    rates = {"namespace": limits.namespace, "cluster": limits.cluster}
    return {"moves": limits.moves, "idle": limits.moves, **rates}


def _left(rate: Rate, used: float, at: float, now: float) -> float:
    """Return what is not refilled yet of what was used `at`."""
    return max(0.0, used - max(0.0, now - at) * rate.per_second)
