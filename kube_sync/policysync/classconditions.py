"""What is said of a GatewayClass whose policies are synced.

A condition of our own type tells whether its parameters can be followed. `Accepted` belongs to the
controller of a class (Gateway API, GatewayClass): it is said only of classes whose controllerName
is one of ours. Both go by server-side apply, so that nobody's condition is taken over.

Keeps true: every kind that cannot be synced is named with its reason; those that can are synced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kube_sync.kube.conditions import Condition
from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.conditions import message
from kube_sync.policysync.parameters import Invalid, Parameters
from kube_sync.policysync.validation import Faulty, Undetermined, Verdict

TYPE: Final = "kube-sync.io/PolicySync"
_ACCEPTED: Final = "Accepted"
_INVALID: Final = "InvalidParameters"  # the reason that the Gateway API has for it


def class_conditions(
    found: Parameters | Invalid,
    verdicts: Mapping[GroupVersionResource, Verdict],
    *,
    ours: bool,
    refused: Mapping[GroupVersionResource, str] | None = None,
) -> tuple[Condition, ...]:
    """Return the conditions of a class; `ours`: we are its controller.

    `refused` are kinds that the lists of several classes do not allow.
    """
    if isinstance(found, Invalid):
        if found.foreign and not ours:
            return ()  # parameters of another controller's are none of our business
        said = Condition(TYPE, "False", _INVALID, f"Invalid Parameters - {found.problem}")
    elif not found.kinds and not found.problems:
        said = Condition(TYPE, "True", "NothingToSync", "the parameters name no policies to sync")
        if not ours:
            return ()
    else:
        said = _judged(found, verdicts, refused or {})
    return (said, _accepted(said)) if ours else (said,)


def _judged(
    found: Parameters,
    verdicts: Mapping[GroupVersionResource, Verdict],
    refused: Mapping[GroupVersionResource, str],
) -> Condition:
    faults = [*found.problems, *_faults(found, verdicts, refused)]
    if faults:
        return Condition(
            TYPE, "False", _INVALID, message(["Invalid Parameters - " + faults[0], *faults[1:]])
        )
    waiting = list(_waiting(found, verdicts))
    if waiting:
        return Condition(TYPE, "Unknown", "Pending", message(waiting))
    names = message(str(kind.gvr) for kind in found.kinds)
    return Condition(TYPE, "True", "Valid", f"policies are synced: {names}")


def _faults(
    found: Parameters,
    verdicts: Mapping[GroupVersionResource, Verdict],
    refused: Mapping[GroupVersionResource, str],
) -> Iterator[str]:
    for kind in found.kinds:
        verdict = verdicts.get(kind.gvr)
        if kind.gvr in refused:
            yield f"{kind.gvr}: {refused[kind.gvr]}"
        elif isinstance(verdict, Faulty):
            yield f"{kind.gvr}: {verdict.reason}"


def _waiting(found: Parameters, verdicts: Mapping[GroupVersionResource, Verdict]) -> Iterator[str]:
    for kind in found.kinds:
        verdict = verdicts.get(kind.gvr, Undetermined("it has not been looked at yet"))
        if isinstance(verdict, Undetermined):
            yield f"{kind.gvr}: {verdict.reason}"


def _accepted(said: Condition) -> Condition:
    if said.status == "True":
        return Condition(_ACCEPTED, "True", _ACCEPTED, said.message)
    return said._replace(type=_ACCEPTED)
