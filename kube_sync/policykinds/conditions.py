"""Builds the status conditions of a policy from its report.

Ready is true where Accepted is. What is not accepted is Stalled: only an edit, or other settings,
can help. Findings change neither.

Invariant: equal reports give equal conditions (`kube/conditions.py`), so a policy whose conditions
are right is not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kube_sync.config import Settings, exempt_namespaces
from kube_sync.kube.conditions import Condition, Phase, condition, dated, standard
from kube_sync.policykinds.reports import Report

ACCEPTED: Final = "Accepted"
FINDINGS: Final = "Findings"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unjudged:
    """There is no report, since the Rego itself fails on the policy."""

    reason: str


@dataclass(frozen=True, slots=True)
class Exempt:
    """There is a report, but no policy applies in its namespace."""

    reason: str
    report: Report


def exemption(settings: Settings, namespace: str) -> str | None:
    """Return why no policy applies in a namespace, None if policies do.

    Exempt are the namespaces that the registrations of built-in systems exclude. What an
    administrator adds to a registration by hand is not known here.
    """
    if namespace not in exempt_namespaces(settings):
        return None
    return f"the namespace {namespace} is exempt: the webhook is not asked about its objects"


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
    return dated([*wanted, *_standard(wanted[0])], found, generation, now)


def _standard(accepted: Condition) -> list[Condition]:
    phase: Phase = "Ready" if accepted.status == "True" else "Stalled"
    return standard(phase, accepted.reason, accepted.message)


def _accepted(report: Report) -> Condition:
    if report.problems:
        return condition(ACCEPTED, "False", "Invalid", report.problems)
    return condition(ACCEPTED, "True", "Valid", ["decisions use this policy"])


def _exempt(found: Exempt) -> Condition:
    lines = [f"{found.reason}, and this policy applies to nothing", *found.report.problems]
    return condition(ACCEPTED, "False", "NamespaceExempt", lines)


def _findings(report: Report) -> Condition:
    if report.findings:
        return condition(FINDINGS, "True", "Questionable", report.findings)
    return condition(FINDINGS, "False", "Clear", ["nothing was found"])


def _unknown(report: Unjudged) -> list[Condition]:
    # Neither status is known, and that of an earlier generation may be wrong by now.
    return [
        condition(kind, "Unknown", "NotJudged", [f"it cannot be judged: {report.reason}"])
        for kind in (ACCEPTED, FINDINGS)
    ]
