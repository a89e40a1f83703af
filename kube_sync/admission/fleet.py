"""Compares a placement decision with the clusters of the fleet: warnings, kept placements. Pure.

A cluster name that the fleet does not have causes a warning in the response. An existing workload
keeps its placement if the new one matches no cluster, as if it were empty: unless the policy says
`evict: true`, an update must not empty what the remediator would not. Without an inventory nothing
is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from kube_sync.admission.review import Review
from kube_sync.decisions.decision import Decision
from kube_sync.guard import Inventory, Placements
from kube_sync.guard.placements import Clusters

Fleet = Callable[[], Inventory | None]


def compared(
    review: Review, decision: Decision, *, placements: Placements, fleet: Fleet
) -> Decision:
    """Return the decision with warnings about the fleet, and with placements that are kept.

    `fleet` returns the inventory of clusters, None if it is not known.
    """
    if (inventory := fleet()) is None:
        return decision
    old = review.old_annotations or {}
    changed = _changed(placements, old, decision.annotations)
    keeps = review.operation == "UPDATE" and not decision.evict
    kept = {k: why for k, c in changed.items() if keeps and (why := inventory.nowhere(c))}
    warned = (*_warnings(changed, kept, inventory),)
    if not warned:
        return decision
    annotations = {k: v for k, v in decision.annotations.items() if k not in kept}
    annotations |= {key: old[key] for key in kept if key in old}
    warnings = (*warned, *decision.warnings)
    return msgspec.structs.replace(decision, annotations=annotations, warnings=warnings)


def _changed(
    placements: Placements, old: Mapping[str, str], decided: Mapping[str, str]
) -> dict[str, Clusters]:
    """Return the decided placements that differ from the present ones."""
    before = placements.read(old) if old else {}
    return {
        key: clusters
        for key, clusters in placements.read(decided).items()
        if clusters is not None and clusters != before.get(key)
    }


def _warnings(
    changed: Mapping[str, Clusters], kept: Mapping[str, str], inventory: Inventory
) -> Iterator[str]:
    for key, clusters in changed.items():
        if key in kept:
            yield f"the policy places this on no cluster, its placement is kept: {kept[key]}"
        elif (why := inventory.nowhere(clusters)) is not None:
            yield f"the policy places this on no cluster: {why}"
        elif unknown := inventory.unknown(clusters):
            text = inventory.description(unknown)
            yield f"the policy places this on clusters that do not exist: {text}"
