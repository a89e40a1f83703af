"""Division of a placement into PlacementDecision slices of at most 100 clusters. Pure.

Consumers remove a workload from a cluster that they no longer find in a decision (KEP-5313,
"Lifecycle"). So a cluster stays in its slice, and the clusters of the last slices are moved to
earlier ones before these are deleted: writes go in order, deletions follow, and a cluster that is
in the placement before and after is in some slice at every moment between.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

from kube_sync.objects import GroupVersionResource

LIMIT = 100  # clusters in a slice (cluster-inventory-api, placementdecision_types.go)

_KEY_LENGTH = 63  # of a label's value, which is shorter than a name may be
_DIGEST_LENGTH = 10
# Where owners of several namespaces share one: nobody finds a name of the same digest.
_SHARED_DIGEST_LENGTH = 20


def mark(gvr: GroupVersionResource, name: str) -> str:
    """Return the name of a resource in its slices, independent of the API version."""
    return f"{marked(gvr)}/{name}"


def marked(gvr: GroupVersionResource) -> str:
    """Return the prefix of the marks of this collection."""
    return f"{gvr.resource}.{gvr.group}" if gvr.group else gvr.resource


def decision_key(gvr: GroupVersionResource, name: str, namespace: str | None = None) -> str:
    """Return the decision key of the slices of a resource: a valid label value and name prefix.

    The digest keeps names apart that are equal once shortened. With a namespace it is unique over
    namespaces.
    """
    whole, plain, length = mark(gvr, name), f"{gvr.resource}-{name}", _DIGEST_LENGTH
    if namespace is not None:
        whole, plain, length = f"{namespace}/{whole}", f"{namespace}-{plain}", _SHARED_DIGEST_LENGTH
    digest = hashlib.sha256(whole.encode()).hexdigest()[:length]
    plain = re.sub(r"[^a-z0-9]+", "-", plain.lower())
    return f"{plain[: _KEY_LENGTH - length - 1].strip('-')}-{digest}"


def divided(clusters: Iterable[str], held: Mapping[int, Sequence[str]]) -> list[list[str]]:
    """Return the clusters of each slice, given those that the slices have now, by index."""
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
