"""Formats the past state of an object for a terminal, and as JSON.

Invariant: as for the present, the JSON is complete, the text counts what it leaves out,
and no text can move a terminal's cursor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.decisions.printing import decision_text
from kube_sync.inspect.why.past import UNKNOWN, Past, Values, Written
from kube_sync.inspect.why.past_rules import Derived
from kube_sync.inspect.why.report import inputs_of, laid_out, more, rules_of
from kube_sync.ledger.printing import moment
from kube_sync.observability.printing import indented

_WRITES, _CLUSTERS, _MODULES = 6, 40, 12
_ABSENT: Final = "(absent)"


def past_as_text(past: Past, derived: Derived, width: int) -> str:
    """Format the state for a terminal with `width` columns."""
    short = [_decision(past), _held(past), _writes(past), _rules(past, derived)]
    short += [inputs_of(derived.inputs, derived.inputs_failure), _reasons(past)]
    return laid_out(short, past.notes, width)


def past_as_json(past: Past, derived: Derived) -> str:
    """Format the whole state for programs; times are Unix seconds."""
    of = past.of
    whole = {
        "v": 1,
        "object": {
            "collection": of.collection,
            "namespace": of.namespace,
            "name": of.name,
            "uid": past.uid,
        },
        "at": past.time,
        "status": past.status,
        "decision": past.decision,
        "failure": past.failure or None,
        "since": past.since,
        "until": past.until,
        "row": past.row,
        "before": past.before,
        "cause": past.cause,
        "policy": past.policy,
        "trace": past.trace or None,
        "modules": past.modules,
        "not_recorded": past.ground.lacks,
        "rules": derived.rules,
        "rules_failure": derived.rules_failure,
        "inputs": derived.inputs,
        "inputs_failure": derived.inputs_failure,
        "writes": past.writes,
        "held": past.held,
        "notes": past.notes,
    }
    return indented(whole)


def _decision(past: Past) -> Iterator[str]:
    of = past.of
    where = f"{of.namespace}/{of.name}" if of.namespace else of.name
    yield f"{of.collection} {where} at {moment(past.time)}"
    yield f"  {_status_word(past):8} {_outcome(past)}"
    if past.since is not None:
        row = "" if past.row is None else f" (row {past.row})"
        yield f"  since    {moment(past.since)}{row}"
    if past.until is not None:
        yield f"  until    {moment(past.until)}"
    if past.before is not None:
        yield f"  before   {decision_text(past.before)}"
    if past.cause:
        yield f"  because  {past.cause}"
    if past.policy:
        yield f"  policy   {past.policy}"
    if past.trace:
        yield f"  trace    {past.trace}"
    if past.uid:
        yield f"  uid      {past.uid}"


def _status_word(past: Past) -> str:
    return "decided" if past.status in (UNKNOWN, "undefined") else past.status


def _outcome(past: Past) -> str:
    match past.status:
        case "gone":
            return "the object was no more"
        case "failed":
            return f"{past.failure} (stands: {_text_of(past.decision)})"
        case "undefined":
            return "nothing"
        case "refused" if past.decision is not None:
            return "; ".join(past.decision.errors)
    return "not known" if past.decision is None else decision_text(past.decision)


def _text_of(decision: Decision | None) -> str:
    return "-" if decision is None else decision_text(decision)


def _held(past: Past) -> Iterator[str]:
    if past.held is not None:
        yield "held at that time"
        yield from _write_lines(past.held)


def _writes(past: Past) -> Iterator[str]:
    done = [one for one in past.writes if one is not past.held]
    if not done:
        if past.row is not None and past.held is None:
            yield "nothing was written or held of it since then"
        return
    yield "written since then"
    for one in done[-_WRITES:]:
        yield from _write_lines(one)
    yield from more(done, _WRITES, "writes")


def _write_lines(one: Written) -> Iterator[str]:
    parts = [_write_status(one), one.note, f"approved: {one.approved}" if one.approved else ""]
    yield f"  {moment(one.time)}  {'; '.join(filter(None, parts))}"
    yield from (f"    {line}" for line in _changes(one.before, one.after))


def _write_status(one: Written) -> str:
    if one.held:
        return f"held: {one.status}"
    return one.status if one.answered is not None else "sent, no answer was recorded by then"


def _changes(before: Values, after: Values) -> Iterator[str]:
    for key in sorted({*before, *after}):
        yield f"{key}: {_shown(key, before.get(key))} -> {_shown(key, after.get(key))}"


def _shown(key: str, value: str | None) -> str:
    if value is None:
        return _ABSENT
    return decision_text(Decision({key: value})) if key == PLACEMENT else value


def _rules(past: Past, derived: Derived) -> Iterator[str]:
    yield from rules_of(derived.rules, derived.rules_failure)
    if derived.rules_failure is not None and past.modules:
        names = sorted(past.modules)
        yield "its policy was made of"
        yield from (f"  {name}" for name in names[:_MODULES])
        yield from more(names, _MODULES, "modules")


def _reasons(past: Past) -> Iterator[str]:
    reasons: Any = {} if past.decision is None else past.decision.reasons
    if reasons:
        yield "what the policy said of clusters"
        yield from (f"  {name}  {reason}" for name, reason in sorted(reasons.items())[:_CLUSTERS])
        yield from more(reasons, _CLUSTERS, "clusters")
