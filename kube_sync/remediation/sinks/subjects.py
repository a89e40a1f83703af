"""Decode the placement of a resource from its metadata.

A placement is a policy's if the requested value is recorded beside it, or if only the remediator
owns it (Kubernetes, "Server-Side Apply": managedFields).
"""

from __future__ import annotations

import msgspec

from kube_sync.decisions.decision import PLACEMENT
from kube_sync.decisions.requested import FIELD_MANAGER, requests
from kube_sync.errors import NO_JSON
from kube_sync.kube.collection import Item
from kube_sync.kube.placementdecisions import PLACEMENT_KEY
from kube_sync.remediation.sinks.publication import Placed


class _OwnedMetadata(msgspec.Struct, frozen=True):
    annotations: dict[str, msgspec.Raw] = msgspec.field(name="f:annotations", default={})


class _Owned(msgspec.Struct, frozen=True):
    metadata: _OwnedMetadata = msgspec.field(name="f:metadata", default=_OwnedMetadata())


class _Manager(msgspec.Struct):
    manager: str = ""
    operation: str = ""
    fieldsV1: _Owned = msgspec.field(default=_Owned())  # noqa: N815 - as on the wire


# Not kube.meta: decoded for every object of a collection, where each field costs.
class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    managedFields: msgspec.Raw = msgspec.Raw()  # noqa: N815


class _Object(msgspec.Struct):
    metadata: _Metadata


_objects = msgspec.json.Decoder(_Object)
_managers = msgspec.json.Decoder(list[_Manager])
_OURS = FIELD_MANAGER.encode()


def placed(item: Item) -> Placed:
    """Decode the placement of an object."""
    metadata = _objects.decode(item.body).metadata
    annotations = metadata.annotations or {}
    placement = annotations.get(PLACEMENT)
    noted = PLACEMENT in requests(annotations)
    return Placed(
        item.uid,
        placement,
        noted or (placement is not None and _only_ours(metadata.managedFields)),
        # On the workload too (KEP-5313, "Placement key"), by whoever requested the placement.
        (metadata.labels or {}).get(PLACEMENT_KEY),
    )


def _only_ours(raw: msgspec.Raw) -> bool:
    # Fast path: we never wrote most objects, and their managedFields are long.
    if _OURS not in bytes(raw):
        return False
    try:
        managers = _managers.decode(raw)
    except NO_JSON:
        return True  # unknown: what is published is not taken away on a guess
    owners = {
        (found.manager, found.operation)
        for found in managers
        if f"f:{PLACEMENT}" in found.fieldsV1.metadata.annotations
    }
    return owners == {(FIELD_MANAGER, "Apply")}
