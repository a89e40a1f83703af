"""Parses an AdmissionReview request (admission.k8s.io/v1). Pure.

Only metadata are decoded; the objects themselves stay the bytes that were sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kube_sync.decisions.sealing import Place
from kube_sync.errors import NO_JSON
from kube_sync.kube.nesting import is_cut, is_deep, shallow, unmanaged

API_VERSION: Final = "admission.k8s.io/v1"


class Malformed(ValueError):
    """The body is not an AdmissionReview that can be answered."""


# Not kube.meta: no API server has validated what is reviewed.
class _Metadata(msgspec.Struct, rename="camel"):
    generate_name: str | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata | None = None  # with a rule for `*`, some objects have none


class Kind(msgspec.Struct, frozen=True):
    """Group, version and kind of an object as the API server names them."""

    group: str = ""
    version: str = ""
    kind: str = ""

    @property
    def api_version(self) -> str:
        """As in an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version


class Resource(msgspec.Struct, frozen=True):
    """The collection that the request is made to."""

    group: str = ""
    version: str = ""
    resource: str = ""


class User(msgspec.Struct, frozen=True):
    """The user of the request."""

    username: str = ""
    groups: list[str] = []


class _Options(msgspec.Struct, rename="camel"):
    field_manager: str = ""


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    object: msgspec.Raw
    operation: str = ""
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    kind: Kind = Kind()
    resource: Resource = Resource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: User = User()
    dry_run: bool | None = None
    options: _Options | None = None


class _Review(msgspec.Struct):
    apiVersion: str  # noqa: N815 - as on the wire
    kind: str
    request: msgspec.Raw


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_objects = msgspec.json.Decoder(_Object)
_requests = msgspec.json.Decoder(_Request)
_reviews = msgspec.json.Decoder(_Review)
_NOTHING: Final = _Metadata()


class Review(msgspec.Struct, frozen=True):
    """One admission request."""

    uid: str
    operation: str
    object: msgspec.Raw  # the resource as JSON; `null` for a DELETE
    annotations: Mapping[str, str] | None  # None: the object has no such map
    labels: Mapping[str, str] | None = None
    old_object: msgspec.Raw = msgspec.Raw(b"null")  # what an UPDATE or DELETE replaces
    old_annotations: Mapping[str, str] | None = None
    kind: Kind = Kind()
    resource: Resource = Resource()
    subresource: str = ""
    name: str = ""  # empty for a create with generateName
    namespace: str = ""  # empty if cluster-scoped
    user: User = User()
    dry_run: bool = False
    request: msgspec.Raw = msgspec.Raw(b"null")  # all of it, as it was sent
    old_labels: Mapping[str, str] | None = None
    manager: str = ""  # the field manager that is to own what is written
    generate_name: str = ""
    unproven: bool = False  # a record without a valid seal was removed from `annotations`

    @property
    def place(self) -> Place:
        """The place of the object, which its seal covers."""
        kind = self.resource
        return Place(kind.group, kind.resource, self.namespace, self.name, self.generate_name)


def parse_review(body: bytes) -> Review:
    """Parse an AdmissionReview. Raises Malformed."""
    try:
        # The whole body, since Raw is not validated, and would fail later elsewhere.
        body.decode()
        body = _unmanaged(body) if is_deep(body) else body
        review = _reviews.decode(body)
        if (review.apiVersion, review.kind) != (API_VERSION, "AdmissionReview"):
            msg = f"expected {API_VERSION} AdmissionReview, found {review.apiVersion} {review.kind}"
            raise Malformed(msg)
        request = _requests.decode(review.request)
        metadata, old = _metadata(request.object), _metadata(request.old_object)
    except (*NO_JSON, KeyError) as error:
        msg = f"not an AdmissionReview: {error}"
        raise Malformed(msg) from error
    return Review(
        request.uid,
        request.operation,
        request.object,
        metadata.annotations,
        metadata.labels,
        request.old_object,
        old.annotations,
        request.kind,
        request.resource,
        request.sub_resource,
        request.name,
        request.namespace,
        request.user_info,
        bool(request.dry_run),
        review.request,
        old.labels,
        request.options.field_manager if request.options is not None else "",
        metadata.generate_name or "",
    )


def _unmanaged(body: bytes) -> bytes:
    """Return a review whose objects have no managedFields, if only these are nested too deeply."""
    review = _fields.decode(shallow(body))
    request = _fields.decode(review["request"])
    for name in ("object", "oldObject"):
        if (found := unmanaged(bytes(request.get(name, b"")))) is not None:
            request[name] = msgspec.Raw(found)
    review["request"] = msgspec.Raw(msgspec.json.encode(request))
    found = msgspec.json.encode(review)
    if is_cut(found):
        msg = "not an AdmissionReview: nested too deeply"
        raise Malformed(msg)
    return found


def _metadata(raw: msgspec.Raw) -> _Metadata:
    # As bytes: a Raw never equals bytes.
    found = None if bytes(raw) == b"null" else _objects.decode(raw).metadata
    return found or _NOTHING
