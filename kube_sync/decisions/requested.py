"""Restore the annotations that an object's owner requested, where a policy has overwritten them.

Pure. A policy may read the annotation that it decides. After a write its input would be its own
output, and a placement that was narrowed once could never widen. So the requested value is kept in
one annotation (the note), a JSON object by key (null: the key was absent), and is restored in the
input of every evaluation. Invariant: the annotations written for a decision give the same result if
the decision is applied to them again, so writing twice is writing once.

The seal (`sealing`) distinguishes our notes from forged ones. Without a key there is none, and a
note on a key that the policy does not decide counts only if it was there before (see `admission`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Final

import msgspec

from kube_sync.decisions.decision import REQUESTED
from kube_sync.errors import NO_JSON
from kube_sync.opa.analysis.paths import EACH, Path, covers, minimal
from kube_sync.opa.analysis.result import Ask, FieldRead, Reads, order

FIELD_MANAGER: Final = "kube-sync-remediator"  # the field manager of decisions

_ANNOTATIONS: Final[Path] = ("metadata", "annotations")
NOTE: Final[Path] = (*_ANNOTATIONS, REQUESTED)

_requests = msgspec.json.Decoder(dict[str, str | None])
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode


# Not kube.meta: decoded for every object of a class, where each field costs.
class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


_objects = msgspec.json.Decoder(_Object)


def requests(annotations: Mapping[str, str]) -> dict[str, str | None]:
    """Return the requested values by key, None: absent; an unreadable note has none."""
    if (text := annotations.get(REQUESTED)) is None:
        return {}
    try:
        found = _requests.decode(text)
    except NO_JSON:
        return {}
    found.pop(REQUESTED, None)
    return found


def restore(annotations: Mapping[str, str], requested: Mapping[str, str | None]) -> dict[str, str]:
    """Return annotations with these requested values restored, and without the note."""
    return {
        key: value
        for key, value in {**annotations, **requested}.items()
        if value is not None and key != REQUESTED
    }


def requested_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return annotations as their owner requested them."""
    return restore(annotations, requests(annotations))


def requests_to_note(
    requested: Mapping[str, str], decided: Mapping[str, str], earlier: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return the requested values to note beside a decision.

    `earlier` requests are kept for keys that still have the value of an earlier policy.
    """
    found = {
        key: requested.get(key) for key, value in decided.items() if requested.get(key) != value
    }
    unchanged = {key: value for key, value in earlier.items() if key not in decided}
    return unchanged | found if unchanged else found


def with_annotations(body: bytes | msgspec.Raw, annotations: Mapping[str, str]) -> msgspec.Raw:
    """Return the JSON of an object with other annotations, the rest unchanged."""
    whole = _fields.decode(body)
    metadata = _fields.decode(whole["metadata"])
    # An empty map stays: other annotations may have been omitted by a projection.
    metadata["annotations"] = msgspec.Raw(_encode(annotations))
    whole["metadata"] = msgspec.Raw(_encode(metadata))
    return msgspec.Raw(_encode(whole))


def as_requested(body: bytes) -> bytes:
    """Return the JSON of an object as its owner requested it. Raises msgspec.DecodeError."""
    try:
        annotations = _objects.decode(body).metadata.annotations or {}
    except msgspec.ValidationError:
        return body  # not valid metadata
    if REQUESTED not in annotations:
        return body
    return bytes(with_annotations(body, requested_annotations(annotations)))


def requested_classifier(
    classify: Callable[[bytes], bytes], paths: Iterable[Path]
) -> Callable[[bytes], bytes]:
    """Return a classifier of objects as requested, if these paths lead to annotations.

    The note itself does not count, so requests that no policy reads make no classes. An unreadable
    note does: OPA may be able to read it (half a surrogate pair, a duplicate key), and would then
    decide for all objects that seem to be of the class without it.
    """
    if not any(map(_meets_annotations, paths)):
        return classify

    def classify_requested(body: bytes) -> bytes:
        requested = as_requested(body)
        digest = classify(requested)
        if requested is body or (text := _unreadable_note(body)) is None:
            return digest
        return blake2b(digest + text.encode(), digest_size=len(digest)).digest()

    return classify_requested


def _unreadable_note(body: bytes) -> str | None:
    text = (_objects.decode(body).metadata.annotations or {})[REQUESTED]
    try:
        _requests.decode(text)
    except NO_JSON:
        return text
    return None


def with_note(reads: Reads) -> Reads:
    """Return the reads with the note added, if any annotation is read."""
    paths = reads.input.paths
    if not any(map(_meets_annotations, paths)) or any(covers(path, NOTE) for path in paths):
        return reads
    ask = Ask("", "", None, "what was asked for is put back")
    fields = [*reads.input.fields, FieldRead(NOTE, whole=False, asked=(ask,))]
    kept = minimal((), (field.path for field in fields))
    fields = sorted((f for f in fields if f.path in kept), key=lambda field: order(field.path))
    return replace(reads, input=replace(reads.input, fields=tuple(fields)))


def _meets_annotations(path: Path) -> bool:
    return all(a is EACH or a == b for a, b in zip(path, _ANNOTATIONS, strict=False))
