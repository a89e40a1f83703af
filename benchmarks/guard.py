"""What the guard takes to weigh one decision on a large fleet, beside the same without one.

No server is needed: the guard is pure. Each workload is moved from ten clusters to ten others, and
every tenth to one more, which the fleet does not have; all are weighed together, and then each is
asked for. Both guards take turns, and of the CPU time of each the least counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Final

from kube_sync.guard import Change, Fleet, Guard, Inventory, Limits, Placements, compare
from kube_sync.guard.placements import PREFERENCES

CLUSTERS: Final = 1_000
WORKLOADS: Final = 2_000
_NAMED: Final = 10  # clusters of one placement
_PLACEMENTS: Final = 100  # that differ: most workloads share theirs with others
_UNKNOWN: Final = 10  # of so many placements one names a cluster that is not there
_NOW: Final = 1e9


def measure_guard(runs: int) -> dict[str, float]:
    """Measure guards that compare with no fleet and with one of 1,000 clusters."""
    names = [f"cluster-{number:04}" for number in range(CLUSTERS)]
    known = Inventory(frozenset(names), tuple({"region": "eu"} for _ in names))
    alone, compared = _fleet(None), _fleet(known)
    moves = _moves(names)
    took: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(max(5, 3 * runs)):
        took[False].append(_weighed(alone, moves))
        took[True].append(_weighed(compared, moves))
    floor, own = min(took[False]), min(took[True])
    return {
        "guard, one decision weighed without a fleet (µs)": floor * 1e6,
        f"guard, one decision weighed, {CLUSTERS} clusters (µs)": own * 1e6,
        f"guard, {CLUSTERS} clusters, ratio": own / floor,
    }


def _fleet(known: Inventory | None) -> Fleet:
    return Fleet(0.0, CLUSTERS, CLUSTERS, epoch_matches=True, inventory=known)


def _moves(names: Sequence[str]) -> list[tuple[str, Mapping[str, str], Mapping[str, str]]]:
    found: list[tuple[str, Mapping[str, str], Mapping[str, str]]] = []
    for number in range(WORKLOADS):
        first = _NAMED * (number % _PLACEMENTS)
        before = {PREFERENCES: _preferences(names[first : first + _NAMED])}
        others = [*names[-first - _NAMED : len(names) - first]]
        if number % _UNKNOWN == 0:
            others.append(f"gone-{number % _PLACEMENTS}")
        found.append((f"shop/web-{number}", before, {PREFERENCES: _preferences(others)}))
    return found


def _preferences(names: Sequence[str]) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in names}})


def _weighed(
    fleet: Fleet, moves: Sequence[tuple[str, Mapping[str, str], Mapping[str, str]]]
) -> float:
    """Return the CPU seconds that one decision takes, of many that are weighed together."""
    placements, guard = Placements(), Guard[str](Limits())
    begun = time.process_time()
    wanted = {key: (_change(placements, before, after), ()) for key, before, after in moves}
    guard.consider(wanted, fleet, {"shop": len(moves)}, (), _NOW)
    for key, (change, history) in wanted.items():
        guard.admit(key, change, history, _NOW)
        guard.moved(key)
    return (time.process_time() - begun) / len(moves)


def _change(placements: Placements, before: Mapping[str, str], after: Mapping[str, str]) -> Change:
    change = compare(placements, "shop", before, after)
    if change is None:
        raise AssertionError
    return change
