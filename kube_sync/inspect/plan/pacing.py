"""Schedules permitted moves by token buckets: when each one goes. Pure.

The buckets are those of the remediator (`guard.budget`), but scheduled and not polled: there each
waiting move polls again and again, which takes a quarter of an hour for ten thousand moves.
Invariant: each scope gives no more than its rate and burst. The order of two moves may differ from
the real one, which depends on who polls; the time that all of them take does not.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kube_sync.guard.budget import Scope
from kube_sync.guard.budget import scopes as scopes_of
from kube_sync.guard.history import LENGTH, History
from kube_sync.guard.limits import Limits, Rate

_NEVER = float("-inf")
_SAME = 1e-9  # seconds

Spent = tuple[float, tuple[Scope, ...] | None]  # when, and from which scopes; None: unknown


@dataclass(slots=True)
class _Bucket:
    """A token bucket by the time when it is full again (the generic cell rate algorithm)."""

    interval: float  # seconds for one token
    depth: float  # seconds for all tokens but one
    full_at: float = _NEVER
    waiting: deque[_Group] = field(default_factory=deque)

    @property
    def free_at(self) -> float:
        """When a token is available."""
        return self.full_at - self.depth

    def take(self, at: float) -> None:
        """Take a token."""
        self.full_at = max(self.full_at, at) + self.interval

    def exhaust(self, at: float) -> None:
        """Take all tokens at this time, as far as is known."""
        self.full_at = max(self.full_at, at + self.depth + self.interval)


@dataclass(slots=True)
class _Group:
    """Moves with the same buckets, each with the time when it is ready."""

    buckets: Sequence[_Bucket]
    keys: deque[tuple[float, str]] = field(default_factory=deque)

    @property
    def free_at(self) -> tuple[float, _Bucket | None]:
        """Return when the first may go, and the bucket it waits for; None: for none."""
        at, last = self.keys[0][0], None
        for bucket in self.buckets:
            free = bucket.full_at - bucket.depth
            if free > at:
                at, last = free, bucket
        return at, last


class Buckets:
    """The buckets of all scopes, created on demand."""

    def __init__(self, limits: Limits) -> None:
        self._rates: dict[str, Rate | None] = {
            "moves": limits.moves,
            "namespace": limits.namespace,
            "cluster": limits.cluster,
        }
        self._known: dict[Scope, _Bucket] = {}
        self._exhausted_at = _NEVER

    def replay(self, spent: Iterable[Spent]) -> None:
        """Take the tokens of earlier moves."""
        for at, scopes in sorted(spent, key=lambda found: found[0]):
            if scopes is None:
                self._exhausted_at = at
                for bucket in self._known.values():
                    bucket.exhaust(at)
                continue
            for bucket in self.of(scopes):
                bucket.take(at)
                # Its limits may have been others, but it cannot owe more than that.
                bucket.full_at = min(bucket.full_at, at + bucket.depth + bucket.interval)

    def of(self, scopes: Iterable[Scope]) -> list[_Bucket]:
        """Return the buckets of the limited scopes."""
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
    """Return when each of `ready` goes, first come first served."""
    groups: dict[tuple[Scope, ...], _Group] = {}
    for key in sorted(ready, key=lambda key: (ready[key], key)):
        of = scopes[key]
        group = groups.setdefault(of, _Group(buckets.of(of)))
        group.keys.append((ready[key], key))
    return _Schedule().run(groups.values())


class _Schedule:
    """A queue of groups: by their own time, else by the bucket that they wait for.

    Of groups that wait for one bucket only the first is checked when it has a token, so that a
    move costs the same however many wait.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, int, _Group | _Bucket]] = []
        self._number = 0

    def run(self, groups: Iterable[_Group]) -> dict[str, float]:
        """Schedule all moves, at times that never go back."""
        found: dict[str, float] = {}
        for group in groups:
            self._wait(group)
        while self._due:
            now, _, one = heapq.heappop(self._due)
            if isinstance(one, _Bucket):
                if one.free_at > now + _SAME:  # others have taken its token since
                    self._push(one.free_at, one)
                    continue
                group = one.waiting.popleft()
                if one.waiting:
                    self._push(now, one)
            else:
                group = one
            if group.free_at[0] <= now + _SAME:
                found[group.keys.popleft()[1]] = now
                for bucket in group.buckets:
                    bucket.take(now)
            if group.keys:
                self._wait(group)
        return found

    def _wait(self, group: _Group) -> None:
        at, bucket = group.free_at
        if bucket is None:
            self._push(at, group)
            return
        bucket.waiting.append(group)
        if len(bucket.waiting) == 1:
            self._push(at, bucket)

    def _push(self, at: float, one: _Group | _Bucket) -> None:
        self._number += 1  # ties go to the first that was added; groups are never compared
        heapq.heappush(self._due, (at, self._number, one))


def spent(namespace: str, history: History, now: float) -> Iterable[Spent]:
    """Yield the tokens that an object's moves have taken so far."""
    for entry in history:
        if entry.left:
            yield min(entry.at, now), scopes_of(namespace, entry.left)
    if len(history) == LENGTH and history[0].at:
        # It may have moved before that too, but its clusters are unknown.
        yield min(history[0].at, now), None
