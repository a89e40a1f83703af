"""The values that a request asks for, as opposed to those that a policy wrote before. Pure.

A client that changes an annotation, or names it anew, requests its value; for an unchanged one, or
one that the remediator wrote, the request recorded beside it counts. Nobody may change the record
itself: of an update the old one counts, and of a create (a manifest copied from a cluster) it
counts for the keys that the policy decides now. So nobody can show the policy one value and have
another one stored.

A request for exactly the decided value does not change it, but is a request nevertheless. It shows
in the annotation of `kubectl apply`, or in the fields that server-side apply makes its manager own;
other updates leave no trace of it. Where these cannot be decoded, they name nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kube_sync.admission.review import Review
from kube_sync.decisions.decision import REQUESTED
from kube_sync.decisions.requested import (
    FIELD_MANAGER,
    requested_annotations,
    requests,
    restore,
    with_annotations,
)
from kube_sync.decisions.sealing import Seals, without_note
from kube_sync.errors import NO_JSON


class RequestedValues(msgspec.Struct, frozen=True):
    """Annotations as requested, and the recorded requests among them."""

    annotations: Mapping[str, str]
    noted: Mapping[str, str | None]
    # Those of `noted` that were recorded before; the present value is an earlier decision.
    earlier: Mapping[str, str | None]


def asked(review: Review, remediator: str) -> RequestedValues:
    """Return what the object's owner requests; `remediator` is the user that requests nothing."""
    new, old = review.annotations or {}, review.old_annotations or {}
    if REQUESTED not in new and REQUESTED not in old:  # as of most: nothing is recorded
        return RequestedValues(new, {}, {})
    before = {k: v for k, v in requests(old).items() if new.get(k) == old.get(k)}
    if review.operation == "UPDATE" and not by_remediator(review, remediator):
        again = named(review) if before else ()
        noted: Mapping[str, str | None] = {k: v for k, v in before.items() if k not in again}
    else:
        noted = requests(new)
    earlier = {key: value for key, value in before.items() if noted.get(key, ...) == value}
    return RequestedValues(restore(new, noted), noted, earlier)


def by_remediator(review: Review, remediator: str) -> bool:
    """Return whether a request is remediation.

    By its user, or by its field manager, which anybody may claim: that does not get anything stored
    that the policy did not see, and a remediator that runs as another user does not request what it
    writes.
    """
    return review.user.username == remediator or review.manager == FIELD_MANAGER


def proven(review: Review, seals: Seals) -> Review:
    """Return the review without records that have no valid seal, before the request and in it.

    A create may contain one: it counts as a request, and is stored as the policy saw it.
    """
    if not seals.is_required:
        return review
    changes, request = dict[str, Any](), dict[str, msgspec.Raw]()
    for name, body, found in (
        ("object", review.object, review.annotations),
        ("oldObject", review.old_object, review.old_annotations),
    ):
        annotations = found or {}
        if name == "object" and review.operation == "CREATE":
            continue
        if REQUESTED in annotations and not seals.has_valid_seal(annotations, review.place):
            kept, field = without_note(annotations), "old_" if name == "oldObject" else ""
            request[name] = with_annotations(body, kept)
            changes |= {f"{field}annotations": kept, f"{field}object": request[name]}
    if not changes:
        return review
    whole = msgspec.json.decode(review.request, type=dict[str, msgspec.Raw]) | request
    sent = msgspec.Raw(msgspec.json.encode(whole))
    return msgspec.structs.replace(review, **changes, request=sent, unproven="object" in request)


def as_remediated(review: Review) -> Review:
    """Return the review as a request by the remediator: its record contains what was requested.

    So it is at the validating webhook, after the mutating one.
    """
    return msgspec.structs.replace(review, manager=FIELD_MANAGER)


def view(review: Review, remediator: str) -> msgspec.Raw:
    """Return the object as the policy's input: with the requested values."""
    sent = review.annotations or {}
    found = asked(review, remediator).annotations
    return review.object if found == sent else with_annotations(review.object, found)


def old_view(review: Review) -> msgspec.Raw:
    """Return the object before the request as the policy's input."""
    old = review.old_annotations or {}
    if REQUESTED not in old:
        return review.old_object
    return with_annotations(review.old_object, requested_annotations(old))


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
    # If the value has changed since, the change itself counts.
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
