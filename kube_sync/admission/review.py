"""AdmissionReview in, AdmissionReview out (admission.k8s.io/v1). Pure.

The patch is a JSON Patch that fits the object as it was sent: it creates the annotations map
where there is none, touches no key that the policy did not name, and is absent when nothing
changes, so that asking twice gives the same as asking once.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.placement import PLACEMENT, empties

_API_VERSION = "admission.k8s.io/v1"


class Malformed(ValueError):
    """The body is not an AdmissionReview that can be answered."""


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


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
    """Who asks."""

    username: str = ""
    groups: list[str] = []


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


class _Review(msgspec.Struct):
    apiVersion: str  # noqa: N815 - as on the wire
    kind: str
    request: msgspec.Raw


class Review(msgspec.Struct, frozen=True):
    """One question of the API server."""

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
    namespace: str = ""  # empty for what is cluster-scoped
    user: User = User()
    dry_run: bool = False
    request: msgspec.Raw = msgspec.Raw(b"null")  # all of it, as it was sent


def parse_review(body: bytes) -> Review:
    """Read an AdmissionReview. Raises Malformed."""
    try:
        review = msgspec.json.decode(body, type=_Review)
        if (review.apiVersion, review.kind) != (_API_VERSION, "AdmissionReview"):
            msg = (
                f"expected {_API_VERSION} AdmissionReview, found {review.apiVersion} {review.kind}"
            )
            raise Malformed(msg)
        request = msgspec.json.decode(review.request, type=_Request)
        metadata, old = _metadata(request.object), _metadata(request.old_object)
    except (msgspec.DecodeError, RecursionError) as error:
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
    )


def _metadata(raw: msgspec.Raw) -> _Metadata:
    # As bytes: a Raw never equals bytes.
    return _Metadata() if bytes(raw) == b"null" else msgspec.json.decode(raw, type=_Object).metadata


def allow(review: Review, decision: Decision) -> bytes:
    """Admit the object with the annotations that the policy wants.

    A workload that is there keeps its placement where the policy would leave it none: whatever
    updates it must not empty it, the remediator's own PATCH least of all.
    """
    response: dict[str, Any] = {"uid": review.uid, "allowed": True}
    wanted = dict(decision.annotations)
    if review.operation == "UPDATE" and empties(wanted, review.annotations or {}):
        del wanted[PLACEMENT]
        response["warnings"] = ["the policy places this on no cluster: its placement is kept"]
    if operations := patch(review.annotations, wanted):
        encoded = base64.b64encode(msgspec.json.encode(operations)).decode()
        response |= {"patchType": "JSONPatch", "patch": encoded}
    return _answer(response)


def deny(review: Review, reason: str, code: int = 403) -> bytes:
    """Refuse the object; `reason` is what its author reads."""
    status = {"code": code, "message": reason, "reason": "Forbidden"}
    return _answer({"uid": review.uid, "allowed": False, "status": status})


def patch(current: Mapping[str, str] | None, wanted: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the JSON Patch (RFC 6902) that gives an object the wanted annotations."""
    missing = {key: value for key, value in wanted.items() if (current or {}).get(key) != value}
    if not missing:
        return []
    if current is None:
        return [{"op": "add", "path": "/metadata/annotations", "value": missing}]
    # `add` replaces a member that is there (RFC 6902, section 4.1).
    return [
        {"op": "add", "path": f"/metadata/annotations/{_escaped(key)}", "value": value}
        for key, value in sorted(missing.items())
    ]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _answer(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode(
        {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}
    )
