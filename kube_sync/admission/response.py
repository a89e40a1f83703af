"""Builds the AdmissionReview response (admission.k8s.io/v1). Pure.

The patch is a JSON Patch for the object as it was sent: it creates a map that does not exist,
changes no key that neither the policy nor the record of requested values names, and is absent if
nothing changes, so that it is idempotent.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import msgspec

from kube_sync.admission.requested_values import asked, by_remediator
from kube_sync.admission.review import API_VERSION, Review
from kube_sync.admission.verdict import Operation
from kube_sync.decisions.decision import PLACEMENT, REQUESTED, Decision, empties
from kube_sync.decisions.requested import requests, requests_to_note
from kube_sync.decisions.sealing import Seals

# The API server's limits, in characters (k8s.io/apiserver, endpoints/filters/warning.go).
_WARNING_LENGTH: Final = 256
_WARNINGS_LENGTH: Final = 4096
# The reason for an HTTP status, as in `Error from server (Forbidden)` (meta/v1 StatusReason).
_REASONS: Final = {403: "Forbidden", 503: "ServiceUnavailable"}
_UNSEALED: Final = Seals()
_encode = msgspec.json.Encoder().encode
_LEFT_OUT: Final = 40  # characters for the notice that warnings were left out
_REMEMBERED: Final = 256  # encoded patches
_SMALL: Final = 1 << 14  # characters of the annotations in one, some of them the client's


def allow(
    review: Review, decision: Decision, remediator: str = "", seals: Seals = _UNSEALED
) -> bytes:
    """Admit the object, patched with the annotations and labels of the decision.

    An existing workload keeps its placement if the policy gives it no cluster: no update may empty
    it, in particular not the remediator's own PATCH, unless the policy says `evict: true`.
    """
    settled = _settled(review, decision)
    response: dict[str, Any] = {"uid": review.uid, "allowed": True}
    if bytes(review.object) != b"null":  # a DELETE has no object to patch
        current = review.annotations
        if review.unproven:  # it was sent, and has to be removed
            current = {**(current or {}), REQUESTED: ""}
        annotations = _change(current, _annotations(review, settled, remediator, seals))
        response |= _patched(annotations, _change(review.labels, settled.labels))
    if warnings := [*_notices(review, decision, settled, remediator), *decision.warnings]:
        response["warnings"] = [*_cut(warnings)]
    return _answer(response)


def admit(
    review: Review,
    changes: Iterable[Operation | Mapping[str, object]] = (),
    warnings: Iterable[str] = (),
) -> bytes:
    """Admit the object with this JSON Patch."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": True}
    if patch := [*changes]:
        response |= {"patchType": "JSONPatch", "patch": _encoded(patch)}
    if cut := [*_cut(warnings)]:
        response["warnings"] = cut
    return _answer(response)


def deny(review: Review, reason: str, code: int = 403, warnings: Iterable[str] = ()) -> bytes:
    """Deny the object with the message `reason` and the status `code`, 403 or 503."""
    status = {"code": code, "message": reason, "reason": _REASONS[code]}
    response: dict[str, Any] = {"uid": review.uid, "allowed": False, "status": status}
    if cut := [*_cut(warnings)]:
        response["warnings"] = cut
    return _answer(response)


def trespass(review: Review, decision: Decision, remediator: str = "") -> str | None:
    """Return why an update of values that the policy decides may be denied, or None.

    If it is not denied, `allow` restores these values.
    """
    if not (changed := _changed(review, _settled(review, decision), remediator)):
        return None
    who = remediator or "the remediator"
    return f"{', '.join(changed)}: decided by the placement policy, only {who} may change this"


def differing(review: Review, decision: Decision, remediator: str, seals: Seals) -> list[str]:
    """Return the annotations and labels that differ from what `allow` would set."""
    decision = _settled(review, decision)
    annotations = _annotations(review, decision, remediator, seals)
    return [
        f"{what} {key}"
        for what, current, wanted in (
            ("annotation", review.annotations, annotations),
            ("label", review.labels, decision.labels),
        )
        for key, value in sorted(wanted.items())
        if (current or {}).get(key) != value
    ]


def patch(
    current: Mapping[str, str] | None, wanted: Mapping[str, str | None], name: str = "annotations"
) -> list[dict[str, Any]]:
    """Return the JSON Patch (RFC 6902) that sets the wanted values and removes those of None."""
    return _operations(name, *_change(current, wanted))


# Whether a map has to be created, and the wanted values that differ.
_Change = tuple[bool, tuple[tuple[str, str | None], ...]]


def _change(current: Mapping[str, str] | None, wanted: Mapping[str, str | None]) -> _Change:
    found = current or {}
    differing = [item for item in wanted.items() if found.get(item[0]) != item[1]]
    return current is None, tuple(differing)


def _operations(
    name: str,
    absent: bool,  # noqa: FBT001 - the two parts of a _Change
    differing: Iterable[tuple[str, str | None]],
) -> list[dict[str, Any]]:
    path = f"/metadata/{name}"
    if absent:  # so there is nothing to remove either
        return [{"op": "add", "path": path, "value": dict(differing)}] if differing else []
    return [_operation(f"{path}/{_escaped(key)}", value) for key, value in sorted(differing)]


def _operation(path: str, value: str | None) -> dict[str, Any]:
    # `add` replaces an existing member (RFC 6902, section 4.1).
    if value is None:
        return {"op": "remove", "path": path}
    return {"op": "add", "path": path, "value": value}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _settled(review: Review, decision: Decision) -> Decision:
    """Return the decision, with the present placement in place of an empty one."""
    if not _keeps_placement(review, decision):
        return decision
    kept = {key: value for key, value in decision.annotations.items() if key != PLACEMENT}
    if (old := (review.old_annotations or {}).get(PLACEMENT)) is not None:
        kept[PLACEMENT] = old
    return msgspec.structs.replace(decision, annotations=kept)


def _keeps_placement(review: Review, decision: Decision) -> bool:
    if review.operation != "UPDATE" or decision.evict:
        return False
    return empties(decision.annotations, review.old_annotations or {})


def _annotations(
    review: Review, decision: Decision, remediator: str, seals: Seals
) -> dict[str, str | None]:
    """Return the annotations to set: decided ones, the record, and requested ones."""
    found, decided = asked(review, remediator), decision.annotations
    # The policy saw these and did not decide them: what is stored has to be what it saw.
    as_seen = {k: v for k, v in found.noted.items() if k not in found.earlier}
    sent, wanted = review.annotations or {}, {**as_seen, **decided}
    to_note = requests_to_note(found.annotations, decided, found.earlier)
    text = None
    # A placement requested as decided gets a seal too: the validating webhook checks it.
    if to_note or (seals.is_required and PLACEMENT in decided):
        whole = {**sent, **wanted} if seals.is_required else {}
        stored = {k: v for k, v in whole.items() if v is not None}
        text = seals.sealed_note(to_note, stored, review.place, sent.get(REQUESTED))
    return {**wanted, REQUESTED: text}


def _changed(review: Review, decision: Decision, remediator: str) -> list[str]:
    """Return the decided values that an update by anybody but the remediator changed."""
    if review.operation != "UPDATE" or by_remediator(review, remediator):
        return []
    old = review.old_annotations or {}
    # A client that sends its manifest again repeats a request, and changes nothing.
    repeated = {key: value for key, value in requests(old).items() if value is not None}
    annotations = _differing(review.annotations, old, decision.annotations, repeated)
    labels = _differing(review.labels, review.old_labels, decision.labels, {})
    return [f"annotation {key}" for key in annotations] + [f"label {key}" for key in labels]


def _differing(
    new: Mapping[str, str] | None,
    old: Mapping[str, str] | None,
    decided: Mapping[str, str],
    repeated: Mapping[str, str],
) -> Iterator[str]:
    for key, value in sorted(decided.items()):
        has = (new or {}).get(key)
        if has not in ((old or {}).get(key), value) and (has is None or has != repeated.get(key)):
            yield key


def _notices(
    review: Review, decision: Decision, settled: Decision, remediator: str
) -> Iterable[str]:
    if settled is not decision:
        yield "the policy places this on no cluster: its placement is kept"
    for name in _changed(review, settled, remediator):
        yield f"{name}: decided by the placement policy, whose value stands"


def _cut(warnings: Iterable[str]) -> Iterator[str]:
    """Cut warnings to the API server's limits, with a notice; it drops control characters."""
    lines = ["".join(c if c.isprintable() else " " for c in found) for found in warnings]
    short = [f"{x[: _WARNING_LENGTH - 1]}…" if len(x) > _WARNING_LENGTH else x for x in lines]
    room, fitting = _WARNINGS_LENGTH - _LEFT_OUT, 0
    for line in short:
        room -= len(line)
        if room < 0:
            break
        fitting += 1
    yield from islice(short, fitting)
    if fitting < len(short):
        yield f"… and {len(short) - fitting} more"


def _patched(annotations: _Change, labels: _Change) -> Mapping[str, object]:
    """Return the members of a response that patch.

    Reviews of one class mostly get the same patch: it is encoded once, unless it is large.
    """
    length = sum([len(value) for _, value in annotations[1] if value])
    return _remembered(annotations, labels) if length <= _SMALL else _members(annotations, labels)


def _members(annotations: _Change, labels: _Change) -> Mapping[str, object]:
    operations = [*_operations("annotations", *annotations), *_operations("labels", *labels)]
    return {"patchType": "JSONPatch", "patch": _encoded(operations)} if operations else {}


_remembered = lru_cache(_REMEMBERED)(_members)


def _encoded(operations: Sequence[object]) -> msgspec.Raw:
    """Return a JSON Patch as the JSON of a response has it."""
    return msgspec.Raw(b'"%b"' % base64.b64encode(_encode(operations)))


def _answer(response: dict[str, Any]) -> bytes:
    return _encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
