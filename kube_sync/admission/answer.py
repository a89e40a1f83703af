"""AdmissionReview out (admission.k8s.io/v1): what the API server is told. Pure.

The patch is a JSON Patch that fits the object as it was sent: it creates a map where there is
none, touches no key that neither the policy nor its note named, and is absent when nothing
changes, so that asking twice gives the same as asking once.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from kube_sync.admission.requested_values import asked, by_remediator
from kube_sync.admission.review import API_VERSION, Review
from kube_sync.admission.verdict import Operation
from kube_sync.decisions.decision import PLACEMENT, REQUESTED, Decision, empties
from kube_sync.decisions.requested import noted, requests
from kube_sync.decisions.sealing import Seals

# What the API server cuts at, in characters (k8s.io/apiserver, endpoints/filters/warning.go).
_WARNING_LENGTH: Final = 256
_WARNINGS_LENGTH: Final = 4096
# Of an HTTP status, as people read it: `Error from server (Forbidden)` (meta/v1 StatusReason).
_REASONS: Final = {403: "Forbidden", 503: "ServiceUnavailable"}
_UNSEALED: Final = Seals()
_LEFT_OUT: Final = 40  # characters for saying that there are more


def allow(
    review: Review, decision: Decision, remediator: str = "", seals: Seals = _UNSEALED
) -> bytes:
    """Admit the object with the annotations and labels that the policy wants.

    A workload that is there keeps its placement where the policy would leave it none: whatever
    updates it must not empty it, the remediator's own PATCH least of all, unless the policy says
    `evict: true`.
    """
    response: dict[str, Any] = {"uid": review.uid, "allowed": True}
    if found := _operations(review, decision, remediator, seals):
        response |= _patched(found)
    if warnings := [*_cut([*_notices(review, decision, remediator), *decision.warnings])]:
        response["warnings"] = warnings
    return _answer(response)


def admit(
    review: Review,
    changes: Iterable[Operation | Mapping[str, object]] = (),
    warnings: Iterable[str] = (),
) -> bytes:
    """Admit the object with these changes, as they are."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": True}
    if patch := [*changes]:
        response |= _patched(patch)
    if cut := [*_cut(warnings)]:
        response["warnings"] = cut
    return _answer(response)


def deny(review: Review, reason: str, code: int = 403, warnings: Iterable[str] = ()) -> bytes:
    """Refuse the object; `reason` is what its author reads, `code` 403 or 503."""
    status = {"code": code, "message": reason, "reason": _REASONS[code]}
    response: dict[str, Any] = {"uid": review.uid, "allowed": False, "status": status}
    if cut := [*_cut(warnings)]:
        response["warnings"] = cut
    return _answer(response)


def trespass(review: Review, decision: Decision, remediator: str = "") -> str | None:
    """Return why an update may be refused for what it does to the policy's own, None: it may not.

    Where it is not refused, `allow` puts everything back.
    """
    if not (changed := _changed(review, _settled(review, decision), remediator)):
        return None
    who = remediator or "the remediator"
    return f"{', '.join(changed)}: decided by the placement policy, only {who} may change this"


def differing(review: Review, decision: Decision, remediator: str, seals: Seals) -> list[str]:
    """Name the annotations and labels that are not as `allow` would make them."""
    annotations, labels = _wanted(review, decision, remediator, seals)
    return [
        f"{what} {key}"
        for what, current, wanted in (
            ("annotation", review.annotations, annotations),
            ("label", review.labels, labels),
        )
        for key, value in sorted(wanted.items())
        if (current or {}).get(key) != value
    ]


def patch(
    current: Mapping[str, str] | None, wanted: Mapping[str, str | None], name: str = "annotations"
) -> list[dict[str, Any]]:
    """Return the JSON Patch (RFC 6902) that gives an object the wanted values, None: no such."""
    found = current or {}
    differing = {key: value for key, value in wanted.items() if found.get(key) != value}
    if not differing:
        return []
    path = f"/metadata/{name}"
    if current is None:  # so that nothing is to be removed either
        return [{"op": "add", "path": path, "value": differing}]
    return [_operation(f"{path}/{_escaped(key)}", differing[key]) for key in sorted(differing)]


def _operations(
    review: Review, decision: Decision, remediator: str, seals: Seals
) -> list[dict[str, Any]]:
    if bytes(review.object) == b"null":  # a DELETE leaves nothing that could be patched
        return []
    current = review.annotations
    if review.unproven:  # it is there, and has to go
        current = {**(current or {}), REQUESTED: ""}
    annotations, labels = _wanted(review, decision, remediator, seals)
    return [*patch(current, annotations), *patch(review.labels, labels, "labels")]


def _wanted(
    review: Review, decision: Decision, remediator: str, seals: Seals
) -> tuple[Mapping[str, str | None], Mapping[str, str | None]]:
    """Return what the annotations and labels are to be that a decision is about."""
    decision = _settled(review, decision)
    return _annotations(review, decision, remediator, seals), decision.labels


def _operation(path: str, value: str | None) -> dict[str, Any]:
    # `add` replaces a member that is there (RFC 6902, section 4.1).
    if value is None:
        return {"op": "remove", "path": path}
    return {"op": "add", "path": path, "value": value}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _settled(review: Review, decision: Decision) -> Decision:
    """Return the decision, with the placement that there is where it would leave none."""
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
    """Return what to write: what was decided, the note, and requests for anything else."""
    found, decided = asked(review, remediator), decision.annotations
    # The policy saw these and decided nothing: what is stored has to be what it saw.
    as_seen = {k: v for k, v in found.noted.items() if k not in found.earlier}
    sent, wanted = review.annotations or {}, {**as_seen, **decided}
    to_note = noted(found.annotations, decided, found.earlier)
    text = None
    # A placement that was asked for just so is sealed, too: the validating pass looks for that.
    if to_note or (seals.sealing and PLACEMENT in decided):
        stored = {k: v for k, v in {**sent, **wanted}.items() if v is not None}
        text = seals.note(to_note, stored, review.place, sent.get(REQUESTED))
    return {**wanted, REQUESTED: text}


def _changed(review: Review, decision: Decision, remediator: str) -> list[str]:
    """Name what an update by anybody else changed of what the policy decides."""
    if review.operation != "UPDATE" or by_remediator(review, remediator):
        return []
    old = review.old_annotations or {}
    # Who sends a manifest again repeats a request, and changes nothing.
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


def _notices(review: Review, decision: Decision, remediator: str) -> Iterable[str]:
    if _keeps_placement(review, decision):
        yield "the policy places this on no cluster: its placement is kept"
    for name in _changed(review, _settled(review, decision), remediator):
        yield f"{name}: decided by the placement policy, whose value stands"


def _cut(warnings: Iterable[str]) -> Iterator[str]:
    """Cut at what the API server forwards, and say so; it drops what holds control characters."""
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


def _patched(operations: Sequence[object]) -> dict[str, Any]:
    encoded = base64.b64encode(msgspec.json.encode(operations)).decode()
    return {"patchType": "JSONPatch", "patch": encoded}


def _answer(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode(
        {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}
    )
