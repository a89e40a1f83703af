"""What decisions stand on and is not current, as the decision stream names it.

Decisions stand on what OPA holds. While a collection cannot be watched or listed, or OPA takes
nothing, they are made on the state before, and the stream goes on. So it names every stale source
at once and for how long; how much of that is too much, readers decide.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import TypeAlias

from kube_sync.decisions.records import Stale, Target, Unreadable
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.runtime.freshness import Freshness, StaleSource

_NAMED = 100  # objects of a collection that cannot be read: who makes many fills no stream

DecisionFreshness: TypeAlias = Freshness[Unreadable]
StaleSources: TypeAlias = tuple[StaleSource[Unreadable], ...]


def report_unreadable(
    freshness: DecisionFreshness,
    name: str,
    gvr: GroupVersionResource | None,
    found: Mapping[ObjectKey, tuple[str, str]],
) -> None:
    """Report what cannot be read of a collection: the uid of each object, and why."""
    source, keys = f"{name} that cannot be read", heapq.nsmallest(_NAMED, found)
    if not keys:
        freshness.report(source, None)
        return
    more = f"; {len(found) - 1} more" if len(found) > 1 else ""
    named = () if gvr is None else tuple(Unreadable(Target.of(gvr, k), *found[k]) for k in keys)
    freshness.report(source, f"{keys[0]}: {found[keys[0]][1]}{more}", named)


def stale_records(freshness: DecisionFreshness, sources: StaleSources) -> tuple[Stale, ...]:
    """Return stale sources as the stream sends them now."""
    return tuple(Stale(one.source, freshness.age(one), one.reason, one.details) for one in sources)
