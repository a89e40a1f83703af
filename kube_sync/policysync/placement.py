"""The clusters that a Gateway of the hub is placed on, as Open Cluster Management has decided.

A Gateway names its placement by a label; the decisions are all PlacementDecisions of its namespace
with the same label, of which there is one for every 100 clusters.

Keeps true: no label is no cluster, and that is known. A label that nothing was decided of yet, and
a decision that cannot be read, are no answer: nobody concludes from them that clusters are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.spelling import is_label
from kube_sync.topology.shapes import UNREADABLE, Malformed, items, reason, text

_GROUP: Final = "cluster.open-cluster-management.io"
PLACEMENT_DECISIONS: Final = GroupVersionResource(_GROUP, "v1beta1", "placementdecisions")
PLACEMENT: Final = f"{_GROUP}/placement"  # label of the Gateway, and of its decisions


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a Gateway is; with a problem, nobody knows."""

    clusters: frozenset[str] = frozenset()
    problem: str = ""


def placement(gateway: Mapping[str, Any], decisions: Iterable[Mapping[str, Any]]) -> Placement:
    """Return where a Gateway is placed by the PlacementDecisions of its namespace."""
    try:
        wanted = text(gateway, "metadata", "labels", PLACEMENT)
        if not wanted:
            return Placement()
        found = [one for one in decisions if _is_of(one, wanted)]
        if not found:
            return Placement(problem=f'there is no PlacementDecision of placement "{wanted}"')
        return Placement(frozenset(name for one in found for name in _names(one)))
    except UNREADABLE as error:
        return Placement(problem=f"its placement cannot be read: {reason(error)}")


def _is_of(decision: Mapping[str, Any], wanted: str) -> bool:
    try:
        return text(decision, "metadata", "labels", PLACEMENT) == wanted
    except Malformed:
        return False


def _names(decision: Mapping[str, Any]) -> Iterator[str]:
    for one in items(decision, "status", "decisions"):
        name = text(one, "clusterName")
        # It becomes a namespace in a URL.
        if not is_label(name):
            msg = f'status.decisions: "{name}" is the name of no cluster'
            raise Malformed(msg)
        yield name
