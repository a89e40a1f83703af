"""Which annotations a request names although it leaves them as they are. Pure.

Who asks for exactly what the policy decided changes nothing that could be seen in the value, but
asks for it nevertheless. `kubectl apply` leaves its manifest in an annotation, and server-side
apply makes its field manager own what it names; of any other update nothing of the kind is known.
What cannot be read names nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kube_sync.admission.review import Review
from kube_sync.decisions.requested import FIELD_MANAGER
from kube_sync.errors import NO_JSON

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


# Not kube.meta: a client wrote this text, and no other field of it may matter.
class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Manifest(msgspec.Struct):
    metadata: _Metadata


# Kubernetes, FieldsV1: a tree of keys with a prefix.
class _Keys(msgspec.Struct, rename={"annotations": "f:annotations"}):
    annotations: dict[str, msgspec.Raw] = {}


class _Fields(msgspec.Struct, rename={"metadata": "f:metadata"}):
    metadata: _Keys = msgspec.field(default_factory=_Keys)


class _Entry(msgspec.Struct):
    manager: str = ""
    operation: str = ""
    fieldsV1: _Fields = msgspec.field(default_factory=_Fields)  # noqa: N815 - as on the wire


class _Managed(msgspec.Struct, rename="camel"):
    managed_fields: list[_Entry] = []


class _Object(msgspec.Struct):
    metadata: _Managed


_manifests = msgspec.json.Decoder(_Manifest)
_objects = msgspec.json.Decoder(_Object)


def named(review: Review) -> frozenset[str]:
    """Return the annotations that an update names and did not name before."""
    old, new = review.old_annotations or {}, review.annotations or {}
    applied = _applied(new).items() - _applied(old).items()
    # What stands there may be something else by now, and then the change itself counts.
    said = {key for key, value in applied if new.get(key) == value}
    return frozenset(said | (_owned(review.object) - _owned(review.old_object)))


def _applied(annotations: Mapping[str, str]) -> dict[str, str]:
    if (text := annotations.get(_LAST_APPLIED)) is None:
        return {}
    try:
        return _manifests.decode(text).metadata.annotations or {}
    except NO_JSON:
        return {}


def _owned(body: msgspec.Raw) -> set[str]:
    try:
        entries = _objects.decode(body).metadata.managed_fields
    except NO_JSON:
        return set()
    return {
        key.removeprefix("f:")
        for entry in entries
        if entry.operation == "Apply" and entry.manager != FIELD_MANAGER
        for key in entry.fieldsV1.metadata.annotations
    }
