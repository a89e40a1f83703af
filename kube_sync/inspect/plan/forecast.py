"""Forecasts when each move would go, by the remediator's own guard on a simulated clock. Pure.

The guard determines which moves may go and from when on, the buckets (`pacing`) how fast they go.
Invariant: the guard's verdict is not changed. A move that needs an approval gets it at once, and
its time counts from the approval: how long people take is unknown. A move that no approval
releases is held for good.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from kube_sync.guard import (
    HISTORY,
    Allowed,
    Change,
    Fleet,
    Guard,
    Limits,
    Tightening,
    Withheld,
    parse_tightening,
    read_history,
)
from kube_sync.guard.budget import scopes_of
from kube_sync.guard.history import History
from kube_sync.inspect.plan.pacing import Buckets, paced, spent

_QUERIES, _APPROVED = 20, 5  # queries for each move, and rounds of approvals
_RATES = [
    f"{of}moves_{what}" for of in ("", "namespace_", "cluster_") for what in ("per_minute", "burst")
]

Wanted = Mapping[str, tuple[Change, History]]


@dataclass(frozen=True, slots=True)
class Workload:
    """What the guard has to know of one object: its namespace, and its earlier placements."""

    namespace: str
    history: History


@dataclass(frozen=True, slots=True)
class Forecast:
    """The seconds until each move goes, the holds of the others, and the needed approvals."""

    seconds: Mapping[str, float]
    held: Mapping[str, Withheld]
    holds: tuple[Withheld, ...] = ()

    @property
    def lasts(self) -> float:
        """Seconds until the last move."""
        return max(self.seconds.values(), default=0.0)


def workload(namespace: str, annotations: Mapping[str, str], now: float) -> Workload | None:
    """Return an object's placements by its annotations, None if it has none."""
    if HISTORY not in annotations:
        return None
    return Workload(namespace, read_history(annotations, now))


def forecast(
    wanted: Wanted,
    workloads: Mapping[str, Workload],
    numbers: Mapping[str, int],
    fleet: Fleet,
    limits: Limits,
    *,
    by: Tightening,
    not_before: Mapping[str, float],
    now: float,
) -> Forecast:
    """Return the times of the changes in `wanted`, from `now` on.

    `numbers`: the workloads of each namespace, idle ones excluded.
    """
    tight = limits.tightened(by)
    # Without buckets of its own: they apply to permitted moves.
    guard: Guard[str] = Guard(replace(tight, moves=None, namespace=None, cluster=None))
    others = dict.fromkeys(_RATES)
    guard.tighten(msgspec.structs.replace(by, **others), not_before, now)
    guard.recall({key: (w.namespace, w.history) for key, w in workloads.items()}, now)
    found = _Simulation(guard, dict(wanted), fleet, numbers).run(now)
    buckets = Buckets(tight)
    buckets.replay(one for w in workloads.values() for one in spent(w.namespace, w.history, now))
    scopes = {k: scopes_of(change) if change.is_move else () for k, (change, _) in wanted.items()}
    ready = {key: now + seconds for key, seconds in found.seconds.items()}
    times = paced(ready, scopes, buckets)
    return replace(found, seconds={key: time - now for key, time in times.items()})


class _Simulation:
    """One run of the guard's clock."""

    def __init__(
        self,
        guard: Guard[str],
        wanted: dict[str, tuple[Change, History]],
        fleet: Fleet,
        numbers: Mapping[str, int],
    ) -> None:
        self._guard = guard
        self._wanted = wanted
        self._fleet = fleet
        self._numbers = numbers
        self._approvals: set[str] = set()
        self._holds: list[Withheld] = []

    def run(self, start: float) -> Forecast:
        """Run until no further move goes."""
        self._consider(start)
        seconds, held = dict[str, float](), dict[str, Withheld]()
        due: list[tuple[float, int, str]] = [
            (start, n, k) for n, k in enumerate(sorted(self._wanted))
        ]
        queries = _QUERIES * len(due)
        while due and queries:
            queries -= 1
            now, number, key = heapq.heappop(due)
            found = self._guard.admit(key, *self._wanted[key], now)
            if isinstance(found, Allowed):
                self._guard.moved(key)
                del self._wanted[key]
                seconds[key] = now - start
            elif found.until is not None and (found.approve is None or found.kind != "oscillation"):
                if found.kind == "unseen":
                    self._consider(now)
                heapq.heappush(due, (max(found.until, now + 0.001), number, key))
            else:
                held[key] = found
        held |= {key: self._guard.held[key].held for _, _, key in due if key in self._guard.held}
        return Forecast(seconds, held, tuple(self._holds))

    def _consider(self, now: float) -> None:
        """Weigh the remaining moves, and give the approvals that they need."""
        for _ in range(_APPROVED):
            found = self._guard.consider(
                self._wanted, self._fleet, self._numbers, self._approvals, now
            )
            names = {hold.approve for hold in found.holds if hold.approve} - self._approvals
            known = {(hold.kind, hold.namespace) for hold in self._holds}
            self._holds += [h for h in found.holds if (h.kind, h.namespace) not in known]
            if not names:
                return
            self._approvals |= names


def tightening(document: Any) -> Tightening:  # noqa: ANN401 - any JSON
    """Return the limits that policies tighten. Raises Undecided if they are invalid."""
    return Tightening() if document is None else parse_tightening(document)
