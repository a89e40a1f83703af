"""What is found out about a policy, as the conditions of its status.

Keeps true: two reports that say the same make the same conditions, but for the time of the last
transition, which is kept as long as a condition's status is (meta/v1 Condition). So a policy whose
conditions are right already is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kube_sync.policykinds.reports import Report

ACCEPTED: Final = "Accepted"
FINDINGS: Final = "Findings"
_MESSAGE: Final = 32768  # characters: the most that meta/v1 allows in a condition's message
_TIME: Final = "lastTransitionTime"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unjudged:
    """There is no report, since the Rego itself fails on the policy."""

    reason: str


@dataclass(frozen=True, slots=True)
class Exempt:
    """There is a report, but no policy applies where this one is."""

    reason: str
    report: Report


def conditions(
    report: Report | Unjudged | Exempt,
    generation: int,
    found: Sequence[Mapping[str, Any]],
    now: str,
) -> list[Json]:
    """Return the conditions of a policy that has `found`; `now` is as in RFC 3339."""
    if isinstance(report, Unjudged):
        wanted = _unknown(report)
    elif isinstance(report, Exempt):
        wanted = [_exempt(report), _findings(report.report)]
    else:
        wanted = [_accepted(report), _findings(report)]
    return dated(wanted, found, generation, now)


def dated(
    wanted: Iterable[Json], found: Sequence[Mapping[str, Any]], generation: int, now: str
) -> list[Json]:
    """Return conditions with the generation and the time of their last transition."""
    known = _by_type(found)
    return [_dated(one, known.get(one["type"]), generation, now) for one in wanted]


def are_right(found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a policy has the wanted conditions already; others that it has do not count."""
    known = _by_type(found)
    return all(known.get(one["type"]) == one for one in wanted)


def _by_type(found: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return conditions by type; what has none, as in a kind of another schema, is no condition."""
    return {kind: one for one in found if isinstance(kind := one.get("type"), str)}


def _accepted(report: Report) -> Json:
    if report.problems:
        return condition(ACCEPTED, "False", "Invalid", report.problems)
    return condition(ACCEPTED, "True", "Valid", ["decisions use this policy"])


def _exempt(found: Exempt) -> Json:
    told = [f"{found.reason}, and this policy applies to nothing", *found.report.problems]
    return condition(ACCEPTED, "False", "NamespaceExempt", told)


def _findings(report: Report) -> Json:
    if report.findings:
        return condition(FINDINGS, "True", "Questionable", report.findings)
    return condition(FINDINGS, "False", "Clear", ["nothing was found"])


def _unknown(report: Unjudged) -> list[Json]:
    # Neither answer is known to be true, and the one of an earlier generation may be wrong by now.
    return [
        condition(kind, "Unknown", "NotJudged", [f"it cannot be judged: {report.reason}"])
        for kind in (ACCEPTED, FINDINGS)
    ]


def condition(kind: str, status: str, reason: str, told: Iterable[str]) -> Json:
    """Return a condition without its time, a line for each thing that is `told`."""
    message = "\n".join(told)
    if len(message) > _MESSAGE:
        message = message[: _MESSAGE - 2] + " …"
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _dated(wanted: Json, found: Mapping[str, Any] | None, generation: int, now: str) -> Json:
    since = now
    if found is not None and found.get("status") == wanted["status"]:
        since = found.get(_TIME) or since
    return {**wanted, "observedGeneration": generation, _TIME: since}
