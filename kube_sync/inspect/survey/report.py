"""Formats findings as a tree for people, and as JSON for programs.

Invariant: equal findings give equal text, so that a check may compare it; JSON has the same
members for every request, with null for what was not requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kube_sync.inspect.survey.findings import Finding, Savings, Tally, documents
from kube_sync.observability.printing import indented
from kube_sync.opa.analysis.result import Ask, Document, FieldRead, shown

Saved = Mapping[str, Savings]  # by the name of the set of policies
_UNITS = ("B", "kB", "MB", "GB", "TB")
_THOUSAND = 1000


def as_json(decision: str, findings: Sequence[Finding], savings_by_set: Saved) -> str:
    """Format all findings as indented JSON; `null` in a path is each member or element."""
    document = {
        "decision": decision,
        "whole": max((finding.whole for finding in findings), default=0),
        "sets": [_set_document(finding, savings_by_set.get(finding.name)) for finding in findings],
    }
    return indented(document)


def as_tree(decision: str, findings: Sequence[Finding], savings_by_set: Saved) -> str:
    """Format all findings as text."""
    parts = [
        _tree_lines(decision, finding, savings_by_set.get(finding.name)) for finding in findings
    ]
    if len(parts) > 1:
        note = "These policies do not compile together, so each folder is analysed by itself."
        parts.insert(0, iter([note]))
    return "\n\n".join("\n".join(lines) for lines in parts)


def _set_document(finding: Finding, savings: Savings | None) -> dict[str, Any]:
    return {
        "name": finding.name,
        "modules": list(finding.modules),
        "defined": finding.defined,
        "whole": finding.whole,
        **finding.reads.builtins(),
        "answers": _answers_document(finding),
        "withheld": finding.withheld,
        "warnings": [warning.fields() for warning in finding.warnings],
        "savings": None if savings is None else _savings_document(savings),
    }


def _answers_document(finding: Finding) -> dict[str, Any] | None:
    if not finding.defined:
        return None
    return {"shared": finding.unshared is None, "reason": finding.unshared}


def _savings_document(savings: Savings) -> dict[str, Any]:
    found = savings.tallies.values()
    return {
        "source": savings.source,
        "objects": sum(tally.objects for tally in found),
        "listed_bytes": sum(tally.listed for tally in found),
        "projected_bytes": sum(tally.projected for tally in found),
        "classes": savings.classes,
        "resources": {
            name: _tally_document(tally) | {"known": name not in savings.unknown}
            for name, tally in savings.tallies.items()
        },
    }


def _tally_document(tally: Tally) -> dict[str, Any]:
    return {
        "objects": tally.objects,
        "listed_bytes": tally.listed,
        "projected_bytes": tally.projected,
        "classes": None if tally.deciding is None else len(tally.classes),
    }


def _tree_lines(decision: str, finding: Finding, savings: Savings | None) -> Iterator[str]:
    number = len(finding.modules)
    yield f"{finding.name} ({number} module{'s' * (number != 1)})"
    yield from (f"  warning: {warning.line()}" for warning in finding.warnings)
    if not finding.defined:
        yield f"  no rule lies at {decision}"
        return
    yield f"  {decision} reads, with {_fields(finding.whole)} whole:"
    if finding.reads.gave_up is not None:
        rule = finding.reads.blamed
        at = "" if rule is None else f", in {' '.join(filter(None, (str(rule), rule.rule)))}"
        why = f"the policies could not be analysed: {finding.reads.gave_up}{at}"
        yield f"  everything, since {why}"
    for name, document in documents(finding.reads):
        yield f"  {name}{_usage_suffix(name, document)}"
        yield from (line for field in document.fields for line in _field_lines(field))
    if finding.reads.others:
        yield "  other data, which is not replicated from Kubernetes"
        yield from (line for field in finding.reads.others for line in _field_lines(field, mark=""))
    for name, readers in finding.reads.impure.items():
        callers = ", ".join(map(_rule_text, readers))
        yield f"  {name}: its answer changes without any data; called by {callers}"
    shared = "yes" if finding.unshared is None else f"no: {finding.unshared}"
    yield f"  answers by class (admission.classes): {shared}"
    for module, texts in finding.withheld.items():
        yield from (f"  {text}; read in {module}" for text in texts)
    if savings is not None:
        yield from _savings_lines(savings, impure=bool(finding.reads.impure))


def _fields(number: int) -> str:
    return f"{number} field" if number == 1 else f"{number} fields"


def _usage_suffix(name: str, document: Document) -> str:
    if not document.used:
        return ": nothing"
    if not document.listed:
        return ""
    return ", all of them" if name != "input" else ""


def _field_lines(field: FieldRead, mark: str = "  WHOLE") -> Iterator[str]:
    yield f"    {shown(field.path)}{mark if field.whole else ''}"
    reasons = [ask for ask in field.asked if ask.whole]
    yield from dict.fromkeys(f"      {ask.why}{_reader_suffix(ask)}" for ask in reasons)


def _reader_suffix(ask: Ask) -> str:
    return f", in {_rule_text(ask)}" if ask.module else ""


def _rule_text(ask: Ask) -> str:
    row = "" if ask.row is None else f":{ask.row}"
    return f"{ask.module}{row} {ask.rule}" if ask.module else ask.why


def _savings_lines(savings: Savings, *, impure: bool) -> Iterator[str]:
    yield f"  replicating only that, of {savings.source}:"
    rows = [_row(name, tally, savings) for name, tally in savings.tallies.items()]
    total = Tally((), None)
    for tally in savings.tallies.values():
        total.objects += tally.objects
        total.listed += tally.listed
        total.projected += tally.projected
    rows.append(("together", *_numbers(total), f"{savings.classes:,}"))
    yield from _table_lines([("", "objects", "listed", "projected", "", "decision classes"), *rows])
    if impure:
        yield "    (no decision is shared by its class: see the builtins above)"


def _row(name: str, tally: Tally, savings: Savings) -> tuple[str, ...]:
    classes = "-" if tally.deciding is None else f"{len(tally.classes):,}"
    if name in savings.unknown:
        return (name, "unknown", "", "", "", classes)
    return (name, *_numbers(tally), classes)


def _numbers(tally: Tally) -> tuple[str, str, str, str]:
    share = f"{100 * tally.projected / tally.listed:.1f} %" if tally.listed else ""
    return (f"{tally.objects:,}", _bytes(tally.listed), _bytes(tally.projected), share)


def _bytes(number: float) -> str:
    for unit in _UNITS:
        if number < _THOUSAND or unit == _UNITS[-1]:
            break
        number /= _THOUSAND
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def _table_lines(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "    " + "  ".join([first.ljust(widths[0]), *cells])
