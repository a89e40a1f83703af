"""Compute the status of a PlacementPolicy: its conditions, and what is counted of a staged one.

Invariant: a condition that does not change keeps its time, so an unchanged state writes nothing. A
policy that is not active says so, and the field `staged` of a staged one holds what the annotation
of a ConfigMap would. Statuses are for people: nothing in force depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from kube_sync.kube.conditions import (
    Condition,
    are_right,
    condition,
    dated,
    is_observed,
    observing,
)
from kube_sync.kube.meta import time_text
from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.kube.policynames import called, object_key
from kube_sync.kube.staging import CANARY, CANDIDATE
from kube_sync.objects import ObjectKey
from kube_sync.opa.inspection import FORBIDDEN, TOO_EXPENSIVE
from kube_sync.opa.lanes import LANES
from kube_sync.opa.scratch import Cause, line_of
from kube_sync.opa.sides import description, side_of
from kube_sync.policies.configmap_status import NOT_TRIED, QUARANTINED, STAGE, UNREADABLE, WAITING
from kube_sync.policies.placementpolicy_phase import NOT_COUNTED, WAITING_REASON, standard_of
from kube_sync.policies.policywarning import MOST, PolicyWarning

Json = dict[str, Any]
Policy = PolicyMap | PlacementPolicy

_NOT_STAGED: Final = "NotStaged"
# Codes of versions that are refused for the harm they did.
HARMFUL: Final = {
    TOO_EXPENSIVE: "TooExpensive",
    NOT_TRIED: "NotTriedAgain",
    QUARANTINED: "Quarantined",
}
_REASONS: Final = {
    FORBIDDEN: "Forbidden",
    UNREADABLE: "Unreadable",
    STAGE: _NOT_STAGED,
    WAITING: WAITING_REASON,
    "unauthorized": "NotTaken",
    **HARMFUL,
}
_FIELDS: Final = {
    "stands_for": "standsFor",
    "together_with": "togetherWith",
    "decides_with": "decidesWith",
}
_STAGES: Final = {
    "candidate": (
        "Candidate",
        "a candidate is not loaded: `kube-sync plan` tells what it would do",
    ),
    "shadow": ("Shadow", "it decides beside what is in force, and has no effect"),
    "canary": (NOT_COUNTED, "it is counted before anything is decided by it"),
}
_DECIDES: Final = "Canary"
_HALTED: Final = "Halted"
_SAYABLE: Final = ("ok", "halted")  # statuses whose other fields are shown


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """The outcome of an active policy."""

    causes: Sequence[Cause] = ()  # why it is not in the set that compiles
    refused: Sequence[Cause] = ()  # why OPA rejects it all the same
    rivals: frozenset[ObjectKey] = frozenset()
    held: bool = False  # whether a version of it is in force
    warnings: Sequence[PolicyWarning] = ()  # on what is in force


@dataclass(frozen=True, slots=True)
class CandidateOutcome:
    """The outcome of a staged policy or a candidate."""

    said: str  # the text a ConfigMap's status annotation would have


# None: it is staged, and its outcome is not known yet.
Told = Iterable[tuple[PlacementPolicy, PolicyOutcome | CandidateOutcome | None]]
Want = Callable[[PlacementPolicy, Json], None]


class Outcomes:
    """Requests the status of each PlacementPolicy whose present one differs."""

    def __init__(
        self,
        want: Want,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._want = want
        self._now = now
        # Requested statuses, and for which version: not repeated until the watch shows them.
        self._wanted: dict[ObjectKey, tuple[str, list[Json]]] = {}

    def tell(self, told: Told) -> None:
        """Request the statuses for all these outcomes."""
        before, self._wanted = self._wanted, {}
        now = time_text(self._now())
        for policy, outcome in told:
            version, earlier = before.get(policy.key, ("", []))
            if outcome is None and _is_of_its_stage(policy):
                continue  # its status stays until there is a new outcome
            found = earlier if version == policy.version else policy.conditions
            wanted = dated(conditions(policy, outcome), found, policy.generation, now)
            staged = staged_by(outcome)
            of_now = is_observed(policy.observed, policy.generation)
            if not (of_now and are_right(policy.conditions, wanted) and policy.staged == staged):
                self._wanted[policy.key] = policy.version, wanted
                beside: Json = {} if staged is None else {"staged": staged}
                beside |= observing(policy.observed, policy.generation)
                self._want(policy, {"conditions": wanted, **beside})


def nobody(_told: Told) -> None:
    """Do nothing."""


def conditions(
    policy: PlacementPolicy, outcome: PolicyOutcome | CandidateOutcome | None
) -> list[Condition]:
    """Return the conditions of a policy, without generation and time."""
    if isinstance(outcome, PolicyOutcome):
        found = _of(policy, outcome)
    elif outcome is None or policy.stage not in (*LANES, CANDIDATE):
        found = _staged(policy.stage)
    else:
        found = _tried(policy, msgspec.json.decode(outcome.said))
    compiled, active, *_ = found
    return [*found, *standard_of(object_key(policy.key).name, compiled, active)]


def staged_by(outcome: PolicyOutcome | CandidateOutcome | None) -> Json | None:
    """Return the field `staged` of a status, None if there is nothing to show."""
    said: Json = msgspec.json.decode(outcome.said) if isinstance(outcome, CandidateOutcome) else {}
    if said.pop("status", None) not in _SAYABLE:
        return None
    # Omit nulls: the API server drops them, so the stored field would differ from the wanted one.
    return {_FIELDS.get(name, name): value for name, value in said.items() if value is not None}


def as_annotation(policy: PlacementPolicy) -> str | None:
    """Return a staged policy's status as annotation text; None: it has none yet."""
    compiled = next((one for one in policy.conditions if one.get("type") == "Compiled"), Json())
    if compiled.get("observedGeneration") != policy.generation:
        return None
    said: Json = {"status": "error", "error": {"message": compiled.get("message", "")}}
    if compiled.get("status") != "False":
        said = said_before(policy)
    return msgspec.json.encode(said).decode()


def said_before(policy: PlacementPolicy) -> Json:
    """Return what the status of a staged policy says of its stage, for any version of it."""
    staged: Json = policy.staged if isinstance(policy.staged, dict) else {}
    names = {field: name for name, field in _FIELDS.items()}
    status = "halted" if "halted" in staged else "ok"
    return {"status": status, **{names.get(name, name): v for name, v in staged.items()}}


def unreadable(policy: Policy) -> tuple[Cause, ...]:
    """Return why a policy is not compiled, if it cannot be read."""
    if policy.unreadable is not None:
        return ({"code": UNREADABLE, "message": policy.unreadable},)
    return ()


def _is_of_its_stage(policy: PlacementPolicy) -> bool:
    """Return whether its status describes its present stage and generation."""
    reason, _ = _STAGES.get(policy.stage, ("", ""))
    reasons = (reason, _NOT_STAGED, *((_DECIDES, _HALTED) if policy.stage == CANARY else ()))
    return policy.stage in (*LANES, CANDIDATE) and any(
        one.get("type") == "Active"
        and one.get("reason") in reasons
        and one.get("observedGeneration") == policy.generation
        for one in policy.conditions
    )


def _staged(stage: str) -> list[Condition]:
    unknown = ("UnknownStage", f"nobody knows the stage {stage!r:.80}: the policy is not loaded")
    reason, why = _STAGES.get(stage, unknown)
    return [
        condition("Compiled", "Unknown", "NotTried", ["it has not been compiled"]),
        condition("Active", "False", reason, [why]),
        condition("Conflicting", "Unknown", "NotTried", ["only active policies are compared"]),
    ]


def _tried(policy: PlacementPolicy, said: Mapping[str, Any]) -> list[Condition]:
    causes = (said.get("error") or {}).get("errors", ())
    compiled = [_line(cause, policy.key) for cause in causes]
    faulty = causes and policy.stage in LANES
    active = (_NOT_STAGED, "it does not decide beside what is in force") if faulty else None
    reason, why = active or _without_fault(policy.stage, said)
    together = "it compiles together with all others, in the place of what it stands for"
    tried = "only active policies are compared"
    return [
        condition("Compiled", str(not causes), _reason(causes), compiled or [together]),
        condition("Active", "False", reason, [why]),
        condition("Conflicting", "Unknown", "NotTried", [tried]),
    ]


def _without_fault(stage: str, said: Mapping[str, Any]) -> tuple[str, str]:
    """Return the reason and message of a staged policy without errors."""
    if halted := said.get("halted"):
        return _HALTED, f"it was taken out: {'; '.join(halted['why'])}"
    if effect := said.get("effect"):
        side = side_of("", effect["share"], ",".join(effect["namespaces"]))
        return _DECIDES, f"it decides on {description(side)}, and what is in force on the others"
    return _STAGES[stage]


def _of(policy: PlacementPolicy, outcome: PolicyOutcome) -> list[Condition]:
    own, causes = policy.key, outcome.causes
    compiled = [_line(cause, own) for cause in causes] or ["it compiles together with all others"]
    rivals = sorted(map(called, outcome.rivals))
    conflicts = [f"conflicts with {rival}" for rival in rivals] or ["none is in its way"]
    return [
        condition("Compiled", str(not causes), _reason(causes), compiled),
        _active(outcome, own),
        condition("Conflicting", str(bool(rivals)), "Conflict" if rivals else "Clear", conflicts),
        *_warned(outcome, own),
    ]


def _warned(outcome: PolicyOutcome, own: ObjectKey) -> Iterator[Condition]:
    """Yield the condition of a policy with warnings: its reason is the code of the first."""
    if outcome.warnings:
        reason = "".join(map(str.capitalize, outcome.warnings[0].code.split("_")))
        lines = [_warning(warning, own) for warning in outcome.warnings[:MOST]]
        yield condition("Warned", "True", reason, lines)


def _warning(warning: PolicyWarning, own: ObjectKey) -> str:
    return warning.line({warning.file: warning.file.removeprefix(f"{own}/")})


def _reason(causes: Sequence[Cause]) -> str:
    codes = {cause.get("code") for cause in causes}
    if not codes:
        return "Compiled"
    (code, *others) = map(str, codes)
    return "CompileError" if others else _REASONS.get(code, "CompileError")


def _active(outcome: PolicyOutcome, own: ObjectKey) -> Condition:
    refused = [f"OPA does not take it: {_line(cause, own)}" for cause in outcome.refused]
    if not outcome.causes and not refused:
        return condition("Active", "True", "InForce", ["decisions are made by it"])
    if outcome.held:
        instead = "its last good version is in force instead"
        return condition("Active", "False", "LastGood", [instead, *refused])
    return condition("Active", "False", "NotInForce", ["nothing of it is in force", *refused])


def _line(cause: Cause, own: ObjectKey) -> str:
    """Return one cause with file and row, as in `placement.rego:3: rego_parse_error: …`."""
    file = str((cause.get("location") or {}).get("file") or "")
    holder, _, name = file.rpartition("/")
    return line_of(cause, {file: name} if holder == str(own) else None)
