"""When moves go that may go as far as all else is concerned: as fast as the buckets give. Pure.

The same buckets as the remediator's (`safety.budget`), scheduled and not asked: there whoever has
to wait asks again and again, which takes a quarter of an hour for ten thousand moves. Keeps true:
each scope gives no more than its rate and burst. Which of two goes first may differ from what
happens, since there it depends on who asks; how long all of them take does not.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kube_sync.safety.budget import Scope
from kube_sync.safety.budget import scopes as scopes_of
from kube_sync.safety.history import LENGTH, History
from kube_sync.safety.limits import Limits, Rate

_NEVER = float("-inf")
_SAME = 1e-9  # seconds

Spent = tuple[float, tuple[Scope, ...] | None]  # when, and of what; None: nobody knows


@dataclass(slots=True)
class _Bucket:
    """A token bucket by when it is full again (the generic cell rate algorithm)."""

    interval: float  # seconds in which a token comes back
    depth: float  # seconds in which all but one come back
    full_at: float = _NEVER

    def take(self, at: float) -> None:
        """Take a token."""
        self.full_at = max(self.full_at, at) + self.interval

    def exhaust(self, at: float) -> None:
        """Have no token left at this time, as far as is known."""
        self.full_at = max(self.full_at, at + self.depth + self.interval)


class Buckets:
    """The buckets of all scopes, made as they are needed."""

    def __init__(self, limits: Limits) -> None:
        self._rates: dict[str, Rate | None] = {
            "moves": limits.moves,
            "namespace": limits.namespace,
            "cluster": limits.cluster,
        }
        self._known: dict[Scope, _Bucket] = {}
        self._exhausted_at = _NEVER

    def replay(self, spent: Iterable[Spent]) -> None:
        """Take what was spent before."""
        for at, scopes in sorted(spent, key=lambda found: found[0]):
            if scopes is None:
                self._exhausted_at = at
                for bucket in self._known.values():
                    bucket.exhaust(at)
                continue
            for bucket in self.of(scopes):
                bucket.take(at)
                # It may have had other limits, but no more is due.
                bucket.full_at = min(bucket.full_at, at + bucket.depth + bucket.interval)

    def of(self, scopes: Iterable[Scope]) -> list[_Bucket]:
        """Return the buckets of scopes that are limited."""
        found = []
        for scope in scopes:
            if scope in self._known:
                found.append(self._known[scope])
            elif (rate := self._rates[scope[0]]) is not None:
                interval = 1 / rate.per_second
                bucket = _Bucket(interval, (rate.burst - 1) * interval)
                if self._exhausted_at != _NEVER:
                    bucket.exhaust(self._exhausted_at)
                self._known[scope] = bucket
                found.append(bucket)
        return found


def paced(
    ready: Mapping[str, float], scopes: Mapping[str, tuple[Scope, ...]], buckets: Buckets
) -> dict[str, float]:
    """Return when each of `ready` goes that may go from then on; who is ready first goes first."""
    waiting: dict[tuple[Scope, ...], deque[tuple[float, str]]] = {}
    for key in sorted(ready, key=lambda key: (ready[key], key)):
        waiting.setdefault(scopes[key], deque()).append((ready[key], key))
    groups = [(buckets.of(of), keys) for of, keys in waiting.items()]
    due = [(keys[0][0], number) for number, (_, keys) in enumerate(groups)]
    heapq.heapify(due)
    found: dict[str, float] = {}
    while due:
        _, number = due[0]
        taken, keys = groups[number]
        at = _free_at(taken, keys[0][0])
        # What others have taken since makes it later; who is due first is seen again then.
        if at > due[0][0] + _SAME:
            heapq.heapreplace(due, (at, number))
            continue
        found[keys.popleft()[1]] = at
        for bucket in taken:
            bucket.take(at)
        if keys:
            heapq.heapreplace(due, (_free_at(taken, keys[0][0]), number))
        else:
            heapq.heappop(due)
    return found


def spent(namespace: str, history: History, now: float) -> Iterable[Spent]:
    """Yield what an object's moves have taken so far."""
    for entry in history:
        if entry.left:
            yield min(entry.at, now), scopes_of(namespace, entry.left)
    if len(history) == LENGTH and history[0].at:
        # It may have moved before that too, from which clusters nobody knows.
        yield min(history[0].at, now), None


def _free_at(taken: Sequence[_Bucket], ready: float) -> float:
    for bucket in taken:  # spelt out: it is asked for each group at each move
        free = bucket.full_at - bucket.depth
        ready = max(ready, free)
    return ready
