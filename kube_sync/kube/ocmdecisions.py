"""The shape of PlacementDecisions of Open Cluster Management.

It is that of `cluster.open-cluster-management.io/v1beta1` in open-cluster-management.io/api
(types_placementdecision.go): at most 100 clusters in the status of one object, the objects of one
placement tied together by a label. Every value of a decision is a string, as Argo CD's
clusterDecisionResource generator requires.

Slices lie beside the placed resource, which then owns them, or all in one namespace. Nothing owns
an object across namespaces (Kubernetes, "Owners and Dependents": the garbage collector would delete
it), so there the source namespace and the owner are annotations, and the sink deletes what is of a
resource that is gone.

Ours are those with our label, our annotation that names the placed resource, and the annotations
of that arrangement, so a change of the arrangement takes nothing away. Others belong to another
writer, as those of OCM's own Placements do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.kube.meta import ObjectMeta, OwnerReference
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

_GROUP = "cluster.open-cluster-management.io"
OCM_PLACEMENT_DECISIONS: Final = GroupVersionResource(_GROUP, "v1beta1", "placementdecisions")
OCM_PLACEMENT: Final = f"{_GROUP}/placement"
# OCM writes both on every slice; without decisionStrategy there is one group, without a name.
OCM_GROUP_INDEX: Final = f"{_GROUP}/decision-group-index"
OCM_GROUP_NAME: Final = f"{_GROUP}/decision-group-name"

_SOURCE = "kube-sync.io/placed-namespace"  # annotations of slices that lie in one namespace
_OWNER = "kube-sync.io/placed-owner"


class _Decision(msgspec.Struct):
    clusterName: str  # noqa: N815 - as on the wire
    reason: str = ""


class _Status(msgspec.Struct):
    decisions: list[_Decision] | None = None


class _Object(msgspec.Struct):
    metadata: ObjectMeta
    status: _Status = msgspec.field(default_factory=_Status)


_objects = msgspec.json.Decoder(_Object)
_references = msgspec.json.Decoder(OwnerReference)


def ocm_shape(namespace: str | None) -> Shape:
    """Return the shape of slices in one namespace, or beside the placed resources (None)."""
    together = namespace is not None
    return Shape(
        OCM_PLACEMENT_DECISIONS,
        partial(_published, together=together),
        partial(_document, together=together),
    )


def _published(body: bytes, *, together: bool) -> Published | None:
    try:
        found = _objects.decode(body)
        metadata = found.metadata
        annotations, labels = metadata.annotations or {}, metadata.labels or {}
        owners = _owners(metadata, annotations, together=together)
    except NO_JSON:
        return None
    placed, source = annotations.get(PLACED), annotations.get(_SOURCE)
    if owners is None or placed is None or labels.get(MANAGED_BY) != OURS:
        return None
    if together != (source is not None):
        return None
    decisions = found.status.decisions
    return Published(
        ObjectKey(metadata.namespace, metadata.name),
        metadata.uid,
        metadata.resource_version,
        placed,
        {key: text for key, text in labels.items() if key.startswith(f"{_GROUP}/")},
        owners,
        tuple(Choice(one.clusterName, "", one.reason) for one in decisions or ()),
        source,
        complete=decisions is not None,
        records=records_of(annotations),
    )


def _owners(
    metadata: ObjectMeta, annotations: Mapping[str, str], *, together: bool
) -> tuple[OwnerReference, ...] | None:
    """Return the owners; None if the annotation names none. Raises the errors in NO_JSON."""
    if not together:
        return tuple(metadata.owner_references or ())
    if (text := annotations.get(_OWNER)) is None:
        return None
    owner = _references.decode(text)
    return None if "" in msgspec.structs.astuple(owner) else (owner,)


def _document(wanted: Slice, *, together: bool) -> dict[str, Any]:
    document = heading(OCM_PLACEMENT_DECISIONS, wanted)
    metadata = document["metadata"]
    if together:
        metadata["annotations"] |= {
            _SOURCE: wanted.source or "",
            _OWNER: msgspec.json.encode(wanted.owner).decode(),
        }
    else:
        metadata["ownerReferences"] = [msgspec.to_builtins(wanted.owner)]
    decisions = [{"clusterName": one.cluster, "reason": one.reason} for one in wanted.choices]
    return document | {"status": {"decisions": decisions}}
