"""A placement as slices of at most 100 clusters, named and divided so that nothing jumps. Pure.

Consumers remove a workload from a cluster that they no longer find in a decision (KEP-5313,
"Lifecycle"). So a cluster stays in the slice that it is in, and where the last slices are given
up, their clusters are in earlier ones before they go: written in order, and deleted afterwards, a
cluster that is in the placement before and after is in it at every moment between.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

from kube_sync.guard.placements import read_preferences
from kube_sync.objects import GroupVersionResource

LIMIT = 100  # clusters in a slice (cluster-inventory-api, placementdecision_types.go)

_KEY_LENGTH = 63  # of a label's value, which is shorter than a name may be
_DIGEST_LENGTH = 10


def clusters_of(preferences: str) -> frozenset[str] | None:
    """Return the clusters that replica-set-preferences select; None where that cannot be said.

    One that can get no replica is not selected: the brakes read a placement the same way. `*`
    stands for clusters that come and go without a decision, so it names none.
    """
    read = read_preferences(preferences)
    return None if read is None or read.open else read.names


def mark(gvr: GroupVersionResource, name: str) -> str:
    """Return how a slice names the resource that it is for, in whatever version that is served."""
    return f"{marked(gvr)}/{name}"


def marked(gvr: GroupVersionResource) -> str:
    """Return how a mark begins for resources of this collection."""
    return f"{gvr.resource}.{gvr.group}" if gvr.group else gvr.resource


def decision_key(gvr: GroupVersionResource, name: str) -> str:
    """Return what ties slices together, as text that is a label's value and begins a name.

    The digest keeps apart what looks alike once it is shortened.
    """
    digest = hashlib.sha256(mark(gvr, name).encode()).hexdigest()[:_DIGEST_LENGTH]
    plain = re.sub(r"[^a-z0-9]+", "-", f"{gvr.resource}-{name}".lower())
    return f"{plain[: _KEY_LENGTH - _DIGEST_LENGTH - 1].strip('-')}-{digest}"


def divided(clusters: Iterable[str], held: Mapping[int, Sequence[str]]) -> list[list[str]]:
    """Return the clusters of each slice, given those that the slices hold now, by index."""
    missing = set(clusters)
    slices: list[list[str]] = []
    for index in range(max(1, -(-len(missing) // LIMIT))):
        kept = sorted(missing.intersection(held.get(index, ())))[:LIMIT]
        missing.difference_update(kept)
        slices.append(kept)
    rest = sorted(missing, reverse=True)
    for found in slices:
        while rest and len(found) < LIMIT:
            found.append(rest.pop())
        found.sort()
    return slices
