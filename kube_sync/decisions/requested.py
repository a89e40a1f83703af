"""What the owner of an object asked for, where a policy has written something else since. Pure.

A policy may read the annotation that it decides. After a write its input would be its own output,
and a placement that was narrowed once could never widen. So the value that was asked for is kept
in one annotation, a JSON object by key (null: the key was absent), and is put back into the input
of every evaluation. Keeps true: what follows from an object's annotations and a decision follows
again from the annotations that are written then, so writing twice is writing once.

A note of ours is told from one that somebody made up by its seal (`sealing`). Without a key there
is none, and a note about a key that the policy does not decide is worth something only where it was
there before (see `admission`).
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
from kube_sync.opa.analysis.reads import Ask, FieldRead, Reads, order

FIELD_MANAGER: Final = "kube-sync-remediator"  # in whose name decisions are written

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
    """Return what was asked for by key, None: that it be absent; what cannot be read is nothing."""
    if (text := annotations.get(REQUESTED)) is None:
        return {}
    try:
        found = _requests.decode(text)
    except NO_JSON:
        return {}
    found.pop(REQUESTED, None)
    return found


def put_back(annotations: Mapping[str, str], asked_for: Mapping[str, str | None]) -> dict[str, str]:
    """Return annotations with these requests in place of what stands there, and without a note."""
    return {
        key: value
        for key, value in {**annotations, **asked_for}.items()
        if value is not None and key != REQUESTED
    }


def restored(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return annotations as they were asked for."""
    return put_back(annotations, requests(annotations))


def noted(
    asked: Mapping[str, str], decided: Mapping[str, str], earlier: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return the requests to note beside what was decided.

    `earlier` are requests that stay, since their keys still hold what an earlier policy decided.
    """
    kept = {key: value for key, value in earlier.items() if key not in decided}
    return kept | {key: asked.get(key) for key, value in decided.items() if asked.get(key) != value}


def with_annotations(body: bytes | msgspec.Raw, annotations: Mapping[str, str]) -> msgspec.Raw:
    """Return the JSON of an object with other annotations, all else byte by byte."""
    whole = _fields.decode(body)
    metadata = _fields.decode(whole["metadata"])
    # An empty map stays: whether other annotations were left out on the way is not known here.
    metadata["annotations"] = msgspec.Raw(_encode(annotations))
    whole["metadata"] = msgspec.Raw(_encode(metadata))
    return msgspec.Raw(_encode(whole))


def as_asked(body: bytes) -> bytes:
    """Return the JSON of an object as it was asked for. Raises msgspec.DecodeError."""
    try:
        annotations = _objects.decode(body).metadata.annotations or {}
    except msgspec.ValidationError:
        return body  # not what the API server takes for metadata
    if REQUESTED not in annotations:
        return body
    return bytes(with_annotations(body, restored(annotations)))


def classified(
    classify: Callable[[bytes], bytes], paths: Iterable[Path]
) -> Callable[[bytes], bytes]:
    """Return what tells classes by what was asked for, where these paths lead to annotations.

    The note itself tells nothing: of two requests that no policy reads neither makes a class. One
    that cannot be read here does: OPA may read it (half a surrogate pair, a key that is there
    twice), and would decide for all that seem to be of the class without it.
    """
    if not any(map(_meets_annotations, paths)):
        return classify

    def asked(body: bytes) -> bytes:
        found = as_asked(body)
        kind = classify(found)
        if found is body or (text := _unreadable_note(body)) is None:
            return kind
        return blake2b(kind + text.encode(), digest_size=len(kind)).digest()

    return asked


def _unreadable_note(body: bytes) -> str | None:
    text = (_objects.decode(body).metadata.annotations or {})[REQUESTED]
    try:
        _requests.decode(text)
    except NO_JSON:
        return text
    return None


def with_note(reads: Reads) -> Reads:
    """Return what is read once requests are put back: the note, where any annotation is."""
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
