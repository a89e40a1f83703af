"""Formats the verdicts of `scheduling check` as text and as JSON.

The text repeats the reasons of the decision unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from kube_sync.admission.scheduling.pods import Candidate
from kube_sync.policykinds import printing
from kube_sync.policykinds.printing import Answer
from kube_sync.policykinds.reports import Report

_UNUSED = "policies that are not used, and why:"
NO_POLICY = "there is no SchedulingPolicy: every pod is admitted"


class Decision(msgspec.Struct, frozen=True):
    """The document `data.kube_sync.scheduling.decision`."""

    allowed: bool
    reasons: tuple[str, ...]
    patch: tuple[dict[str, Any], ...]
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A pod, its decision and the merged policy behind it; or why no policy applies to it."""

    pod: Candidate
    decision: Decision | None = None
    merged: dict[str, Any] | None = None
    unjudged: str = NO_POLICY  # without a decision

    @property
    def allowed(self) -> bool:
        """Return whether it is admitted."""
        return self.decision is None or self.decision.allowed


def answer(verdicts: Sequence[Verdict], reports: Mapping[str, Report], *, as_json: bool) -> Answer:
    """Return the output: the verdicts, and the reports on the policies."""
    status = 0 if all(verdict.allowed for verdict in verdicts) else 1
    if as_json:
        document = {"allowed": status == 0, "pods": [_entry(verdict) for verdict in verdicts]}
        return Answer(printing.as_json(document, reports), status)
    return Answer(printing.as_text(map(_text, verdicts), reports, unused=_UNUSED), status)


def _entry(verdict: Verdict) -> dict[str, Any]:
    pod, decision = verdict.pod, verdict.decision
    return {
        "kind": pod.kind,
        "name": pod.name,
        "namespace": pod.account.namespace,
        "serviceAccount": pod.account.name,
        "allowed": verdict.allowed,
        "reasons": [verdict.unjudged] if decision is None else decision.reasons,
        "policies": () if decision is None else decision.policies,
        "patch": () if decision is None else decision.patch,
        "merged": verdict.merged,
    }


def _text(verdict: Verdict) -> str:
    pod, decision = verdict.pod, verdict.decision
    what = "admitted" if verdict.allowed else "denied"
    lines = [f"{pod.kind} {pod.name or '(no name)'} as {pod.account}: {what}"]
    if decision is None:
        return "\n".join([*lines, f"  {verdict.unjudged}"])
    lines += [f"  {reason}" for reason in decision.reasons]
    lines.append(f"policies: {', '.join(decision.policies) or 'none that it may use'}")
    if verdict.merged is not None and decision.policies:
        lines += ["merged:", *_indented(verdict.merged)]
    if decision.patch:
        lines += ["changes:", *_indented(list(decision.patch))]
    return "\n".join(lines)


def _indented(value: Any) -> Iterable[str]:  # noqa: ANN401 - any JSON
    text = yaml.safe_dump(value, sort_keys=True, allow_unicode=True, width=100)
    return [f"  {line}" for line in text.splitlines()]
