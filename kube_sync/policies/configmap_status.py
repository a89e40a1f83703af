"""Render the outcome of a policy ConfigMap as the text of its status annotation.

`{"status": "ok"}`, or `{"status": "error", "error": {code, message, errors}}` with OPA's own
errors, as kube-mgmt writes it. In addition: what is in force instead, which policies conflict (on
both), and the warnings on what is in force.

Invariant: the API server accepts the status of any policy (all annotations together may have 256
KiB). Otherwise the former status, perhaps "ok", would stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kube_sync.kube.policynames import called, named
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaError
from kube_sync.opa.inspection import FORBIDDEN, TOO_EXPENSIVE
from kube_sync.opa.scratch import Cause
from kube_sync.policies.policywarning import PolicyWarning, listed

_OK: dict[str, Any] = {"status": "ok"}
NOT_TRIED = "not_tried"  # a version is not tried again: see quarantine.py
QUARANTINED = "quarantined"
WAITING = "waiting"  # for other policies, which are tried first
UNEXPLAINED = "unexplained"  # OPA ends without this version too: it is tried again
UNREADABLE = "unreadable"
_COMPILING = ("invalid_parameter", "error(s) occurred while compiling module(s)")
STAGE = "stage"  # a policy cannot be staged, or its stage is unknown
_ONE_BY_ONE = (
    "OPA took it neither before nor after the others; modules that need each other in a circle can"
    " only be loaded as a bundle (configure OPA to fetch one from the replicator)"
)
_CAUSES: Final = 20
_CHARACTERS: Final = 1_000  # of a message
_OURS = (
    FORBIDDEN,
    "unauthorized",
    TOO_EXPENSIVE,
    STAGE,
    NOT_TRIED,
    QUARANTINED,
    WAITING,
    UNREADABLE,
)  # codes that are not from OPA's compiler


def account(
    causes: Sequence[Cause],
    rivals: Iterable[ObjectKey],
    *,
    in_force: bool,
    warnings: Sequence[PolicyWarning] = (),
) -> str:
    """Return the status text of one ConfigMap; `in_force`: an earlier version of it is in force."""
    keys = sorted(rivals)
    if not causes:
        beside = {"conflicts": _cut([*map(named, keys)]), "warnings": listed(warnings)}
        return _text(_OK | {name: found for name, found in beside.items() if found})
    instead = "the last good version" if in_force else "nothing of this ConfigMap"
    code, message = _summary(causes)
    conflicts = bounded([*map(_rivalry, keys)])
    error = OpaError(code, message[:_CHARACTERS], bounded(causes) + conflicts)
    return _text({"status": "error", "in_force": instead, "error": error})


def bounded(causes: Sequence[Cause]) -> list[Cause]:
    """Return a bounded list of causes: the first ones, shortened, and the number of the others."""
    found = [_short(cause) for cause in causes[:_CAUSES]]
    left = len(causes) - len(found)
    return found + ([{"code": "more", "message": f"and {left} more"}] if left else [])


def not_put(failures: Mapping[str, OpaError]) -> Iterable[Cause]:
    """Yield why OPA rejected modules that compile together."""
    for policy_id, error in failures.items():
        yield from error.errors or [{"code": error.code, "message": error.message}]
        if error.code != "unauthorized":
            yield {
                "code": "one_by_one",
                "message": _ONE_BY_ONE,
                "location": {"file": policy_id},
            }


def _summary(causes: Sequence[Cause]) -> tuple[str, str]:
    codes = {cause.get("code", "") for cause in causes}
    if len(codes) == 1 and codes <= set(_OURS):
        return codes.pop(), "; ".join(cause["message"] for cause in causes)
    return _COMPILING


def _short(cause: Cause) -> Cause:
    """Return a cause without long details: they quote a line, which may have a megabyte."""
    if len(_text(cause)) <= _CHARACTERS:
        return cause
    kept = {name: cause[name] for name in ("code", "location") if name in cause}
    return kept | {"message": str(cause.get("message", ""))[:_CHARACTERS]}


def _cut(texts: Sequence[str]) -> list[str]:
    left = len(texts) - _CAUSES
    found = [text[:_CHARACTERS] for text in texts[:_CAUSES]]
    return found + ([f"and {left} more"] if left > 0 else [])


def _rivalry(rival: ObjectKey) -> Cause:
    return {"code": "conflict", "message": f"conflicts with {called(rival)}"}


def _text(status: dict[str, Any]) -> str:
    return msgspec.json.encode(status).decode()
