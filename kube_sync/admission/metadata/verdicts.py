"""Formats the verdicts of `metadata check` as text and as JSON.

The text repeats the reasons of the decision unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kube_sync.admission.metadata.effects import Change, Decision, Disagreement, Rule
from kube_sync.admission.metadata.objects import Candidate
from kube_sync.policykinds import printing
from kube_sync.policykinds.printing import Answer
from kube_sync.policykinds.reports import Report

_UNUSED = "rules that apply to nothing, and why:"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An object, its decision, the rules behind it, and the changes."""

    object: Candidate
    decision: Decision
    rules: tuple[Rule, ...] = ()
    changes: tuple[Change, ...] = ()
    conflicts: tuple[Disagreement, ...] = ()


def answer(verdicts: Sequence[Verdict], reports: Mapping[str, Report], *, as_json: bool) -> Answer:
    """Return the output: the verdicts, and the reports on the policies."""
    allowed = all(verdict.decision.allowed for verdict in verdicts)
    status = 0 if allowed else 1
    if as_json:
        document = {"allowed": allowed, "objects": [_entry(verdict) for verdict in verdicts]}
        return Answer(printing.as_json(document, reports), status)
    return Answer(printing.as_text(map(_text, verdicts), reports, unused=_UNUSED), status)


def _entry(verdict: Verdict) -> dict[str, Any]:
    found, decision = verdict.object, verdict.decision
    return {
        "kind": found.kind,
        "name": found.name,
        "namespace": found.namespace,
        "podTemplate": found.product == "pods",
        "creates": found.product,
        "operation": found.operation,
        "allowed": decision.allowed,
        "reasons": decision.reasons,
        "policies": decision.policies,
        "rules": [{"policy": rule.policy, "rule": rule.index} for rule in verdict.rules],
        "changes": msgspec.to_builtins(verdict.changes),
        "conflicts": msgspec.to_builtins(verdict.conflicts),
        "patch": decision.patch,
    }


def _text(verdict: Verdict) -> str:
    return "\n".join([_title(verdict), *_lines(verdict)])


def _title(verdict: Verdict) -> str:
    found = verdict.object
    made = f"{found.product} of " if found.product else ""
    where = f" in {found.namespace}" if found.namespace else ", of the cluster"
    if not verdict.decision.allowed:
        what = "rejected"
    else:
        what = "admitted, with changes" if verdict.changes else "admitted as it is"
    return f"{made}{found.kind} {found.name or '(no name)'}{where}, {found.operation}: {what}"


def _lines(verdict: Verdict) -> Iterator[str]:
    for change in verdict.changes:
        before = "none" if change.before is None else _shown(change.before)
        yield f"  {change.what} {change.key}: {before} → {_shown(change.after)} ({change.by})"
    for conflict in verdict.conflicts:
        said = ", ".join(f"{_shown(one.value)} ({one.by})" for one in conflict.settings)
        yield f"  conflict: {conflict.what} {conflict.key}, the last one counts: {said}"
    if verdict.decision.reasons:
        yield from ("because:", *(f"  {reason}" for reason in verdict.decision.reasons))


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON
    return json.dumps(value, ensure_ascii=False)
