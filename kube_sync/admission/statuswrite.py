"""Writes of the status subresource that change labels or annotations. Pure.

Most built-in kinds store the labels, annotations and finalizers of such a write (ReplicaSets, Pods
and Services do; custom resources, `scale`, `resize` and `ephemeralcontainers` do not). Only those
that change labels or annotations are sent here (`exemptions`). The spec in such a request is what
the client wrote: the API server restores the stored one after the mutating webhooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kube_sync.admission.review import Malformed, Review
from kube_sync.decisions.decision import PLACEMENT, REQUESTED
from kube_sync.decisions.requested import requests, with_annotations
from kube_sync.errors import NO_JSON
from kube_sync.guard import ADDITION, HISTORY

STATUS: Final = "status"
_MAPS: Final = ("labels", "annotations")

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode


def changed(review: Review) -> dict[str, str | None]:
    """Return the annotations of placement that the write changes, with their stored values.

    Placement, record of requested values and what it names, history, record of an addition; None:
    absent.
    """
    new, old = review.annotations or {}, review.old_annotations or {}
    ours = {PLACEMENT, REQUESTED, HISTORY, ADDITION, *requests(old)}
    return {key: old.get(key) for key in sorted(ours) if new.get(key) != old.get(key)}


def restored(review: Review) -> Review:
    """Return the write with the stored annotations of placement in place of its own."""
    if not (found := changed(review)):
        return review
    annotations = {**(review.annotations or {}), **found}
    kept = {key: value for key, value in annotations.items() if value is not None}
    try:
        body = with_annotations(review.object, kept)
    except (*NO_JSON, KeyError) as error:
        raise _unreadable(error) from error
    return msgspec.structs.replace(review, object=body, annotations=kept)


def as_update(review: Review) -> Review:
    """Return a status write as the equivalent update of labels and annotations.

    All else is as stored: that is what stays, whatever the request contains. Raises Malformed.
    """
    if review.subresource != STATUS:
        return review
    try:
        request = _fields.decode(review.request)
        whole, new = _fields.decode(review.old_object), _fields.decode(review.object)
        stored = _fields.decode(whole["metadata"])
        written = _fields.decode(new["metadata"])
    except (*NO_JSON, KeyError) as error:
        raise _unreadable(error) from error
    kept = {name: value for name, value in stored.items() if name not in _MAPS}
    whole["metadata"] = _raw(kept | {name: written[name] for name in _MAPS if name in written})
    found = _raw(whole)
    request = {name: value for name, value in request.items() if name != "subResource"}
    return msgspec.structs.replace(
        review, object=found, subresource="", request=_raw(request | {"object": found})
    )


def _unreadable(error: Exception) -> Malformed:
    return Malformed(f"a write of the status without the object that it is about: {error}")


def _raw(fields: Mapping[str, msgspec.Raw]) -> msgspec.Raw:
    return msgspec.Raw(_encode(fields))
