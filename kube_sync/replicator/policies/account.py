"""What the author of a policy ConfigMap reads on it, as the text of the status annotation.

`{"status": "ok"}`, or `{"status": "error", "error": {code, message, errors}}` with OPA's own
account of each error, as kube-mgmt writes it. Added to that: what is in force instead, and which
policies are in each other's way (on both).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kube_sync.kube.policynames import called, named
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaError
from kube_sync.opa.inspection import FORBIDDEN, TOO_EXPENSIVE
from kube_sync.opa.scratch import Cause

_OK: dict[str, Any] = {"status": "ok"}
NOT_TRIED = "not_tried"  # not again: see quarantine.py
QUARANTINED = "quarantined"
WAITING = "waiting"  # for others, which are tried first
UNEXPLAINED = "unexplained"  # OPA ends without it, too: it is tried again
_COMPILING = ("invalid_parameter", "error(s) occurred while compiling module(s)")
STAGE = "stage"  # what is staged cannot be, or nobody knows how
_ONE_BY_ONE = (
    "OPA took it neither before nor after the others; modules that need each other in a circle can"
    " only be loaded as a bundle (configure OPA to fetch one from the replicator)"
)
_OURS = (
    FORBIDDEN,
    "unauthorized",
    TOO_EXPENSIVE,
    STAGE,
    NOT_TRIED,
    QUARANTINED,
    WAITING,
)  # not OPA's compiler speaking


def account(
    causes: Sequence[Cause],
    rivals: Iterable[ObjectKey],
    *,
    in_force: bool,
    warnings: Sequence[str] = (),
) -> str:
    """Return the status of one ConfigMap; `in_force` tells of an earlier version of it."""
    keys = sorted(rivals)
    if not causes:
        beside = {"conflicts": [*map(named, keys)], "warnings": warnings}
        return _text(_OK | {name: found for name, found in beside.items() if found})
    instead = "the last good version" if in_force else "nothing of this ConfigMap"
    error = OpaError(*_summary(causes), [*causes, *map(_rivalry, keys)])
    return _text({"status": "error", "in_force": instead, "error": error})


def not_put(failures: Mapping[str, OpaError]) -> Iterable[Cause]:
    """Yield why OPA did not take modules that compile together."""
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


def _rivalry(rival: ObjectKey) -> Cause:
    return {"code": "conflict", "message": f"conflicts with {called(rival)}"}


def _text(status: dict[str, Any]) -> str:
    return msgspec.json.encode(status).decode()
