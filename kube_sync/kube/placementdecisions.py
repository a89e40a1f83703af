"""The shape of PlacementDecisions of SIG Multicluster.

It is that of `multicluster.x-k8s.io/v1alpha1` in kubernetes-sigs/cluster-inventory-api, its
meaning that of KEP-5313: data only, at most 100 clusters in one object (a slice), slices of one
decision tied together by labels. Not the kind of the same name of Open Cluster Management
(`ocmdecisions`).

Ours are those with our label, our schedulerName and our annotation that names the placed resource.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.kube.meta import ObjectMeta
from kube_sync.kube.slices import (
    MANAGED_BY,
    OURS,
    PLACED,
    Choice,
    Published,
    Shape,
    Slice,
    heading,
    records_of,
)
from kube_sync.objects import GroupVersionResource, ObjectKey

_GROUP, _VERSION = "multicluster.x-k8s.io", "v1alpha1"
PLACEMENT_DECISIONS: Final = GroupVersionResource(_GROUP, _VERSION, "placementdecisions")
CLUSTER_PROFILES: Final = GroupVersionResource(_GROUP, _VERSION, "clusterprofiles")

# KEP-5313, "API Definition"; PLACEMENT_KEY: cluster-inventory-api, placementdecision_types.go.
DECISION_KEY: Final = f"{_GROUP}/decision-key"
DECISION_INDEX: Final = f"{_GROUP}/decision-index"
PLACEMENT_KEY: Final = f"{_GROUP}/placement-key"

_SCHEDULER = "kube-sync"


class _Reference(msgspec.Struct):
    name: str
    namespace: str = ""


class _Decision(msgspec.Struct):
    clusterProfileRef: _Reference  # noqa: N815 - as on the wire
    reason: str = ""


class _Object(msgspec.Struct):
    metadata: ObjectMeta
    decisions: list[_Decision] | None = None
    schedulerName: str = ""  # noqa: N815


_objects = msgspec.json.Decoder(_Object)


def published(body: bytes) -> Published | None:
    """Parse a PlacementDecision; None if it is not ours, or has an unknown shape."""
    try:
        found = _objects.decode(body)
    except NO_JSON:
        return None
    metadata = found.metadata
    labels, annotations = metadata.labels or {}, metadata.annotations or {}
    placed = annotations.get(PLACED)
    if placed is None or (found.schedulerName, labels.get(MANAGED_BY)) != (_SCHEDULER, OURS):
        return None
    return Published(
        ObjectKey(metadata.namespace, metadata.name),
        metadata.uid,
        metadata.resource_version,
        placed,
        {key: text for key, text in labels.items() if key.startswith(f"{_GROUP}/")},
        tuple(metadata.owner_references or ()),
        tuple(
            Choice(one.clusterProfileRef.name, one.clusterProfileRef.namespace, one.reason)
            for one in found.decisions or ()
        ),
        records=records_of(annotations),
    )


def _document(wanted: Slice) -> dict[str, Any]:
    document = heading(PLACEMENT_DECISIONS, wanted)
    document["metadata"]["ownerReferences"] = [msgspec.to_builtins(wanted.owner)]
    return document | {
        "schedulerName": _SCHEDULER,
        "decisions": [
            {
                "clusterProfileRef": {"name": one.cluster, "namespace": one.namespace},
                "reason": one.reason,
            }
            for one in wanted.choices
        ],
    }


SIG: Final = Shape(PLACEMENT_DECISIONS, published, _document)
