"""Formats a plan as Markdown, for the comment on a pull request.

Invariant: names, reasons and rules are shown as code, in which a forge finds no Markdown, HTML,
link, mention or reference, and none ends its cell or its row: who edits a policy can neither hide
what the edit does nor notify people. What is left out is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from kube_sync.inspect.plan.causes import Cause
from kube_sync.inspect.plan.plan import Plan
from kube_sync.inspect.plan.report import (
    HEADINGS,
    ROWS,
    counted,
    first_reason,
    hold_text,
    pace_lines,
    rows,
)
from kube_sync.observability.printing import plain

_MOST_RULES: Final = 20
_LONGEST: Final = 100  # characters of a cell: a placement may name a hundred clusters
_APPLIES: Final = {
    "then": "applies only after the edit",
    "now": "no longer applies",
    "both": "applies before and after the edit",
}
_APPROVE: Final = (
    "Once these moves are requested, `kube-sync remediate status` names them, and"
    " `kube-sync remediate approve NAME` lets them through."
)


def as_markdown(plan: Plan, *, every: bool = False) -> str:
    """Format the plan for a pull request."""
    shown = plan.ordered if every else plan.ordered[:ROWS]
    lines = [f"### Plan: {counted(plan)}"]
    if shown:
        titles = [title.capitalize() for title in HEADINGS]
        cells = (
            [kind, *map(_cell, names), when, _cell(rule)]
            for kind, *names, when, rule in rows(plan, shown)
        )
        rule = ["---"] * len(titles)
        lines += ["", *(f"| {' | '.join(row)} |" for row in (titles, rule, *cells))]
    if left := len(plan.effects) - len(shown):
        lines += ["", f"… and {left} more."]
    for title, items in (
        ("Rules", _rules(plan)),
        ("Needs an approval", _approvals(plan)),
        ("Brakes", _brakes(plan)),
        ("Notes", _notes(plan)),
    ):
        lines += _section(title, items)
    return plain("\n".join(lines), "\n")


def _cell(text: str) -> str:
    # GFM, "Tables": a pipe ends a cell in code, too.
    return _code(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…").replace("|", "\\|")


def _section(title: str, items: Iterable[str]) -> list[str]:
    lines = [f"- {item}" for item in items]
    return ["", f"**{title}**", "", *lines] if lines else []


def _rules(plan: Plan) -> Iterator[str]:
    numbers = Counter[Cause](cause for e in plan.effects for cause in plan.causes_of(e))
    for cause, number in numbers.most_common(_MOST_RULES):
        workloads = "1 workload" if number == 1 else f"{number} workloads"
        where, text = _code(f"{cause.file}:{cause.row}"), _code(cause.text or cause.rule)
        yield f"{where} {_APPLIES[cause.when]} ({workloads}): {text}"
    if (left := len(numbers) - _MOST_RULES) > 0:
        yield f"… and {left} more"


def _approvals(plan: Plan) -> Iterator[str]:
    needed = [hold for hold in plan.forecast.holds if hold.approve is not None]
    yield from (f"{hold.kind}: {_code(hold.reason)}" for hold in needed)
    if needed:
        yield _APPROVE


def _brakes(plan: Plan) -> Iterator[str]:
    yield from (_code(hold_text(hold)) for hold in plan.forecast.holds if hold.approve is None)
    yield from pace_lines(plan)


def _notes(plan: Plan) -> Iterator[str]:
    if pending := plan.counts["pending"]:
        yield f"{pending} would change without the edit, too (pending)"
    if reason := first_reason(plan):
        yield _code(reason)
    yield from map(_code, plan.notes)
    yield from (f"warning: {_code(warning.line())}" for warning in plan.warnings)


def _code(text: str) -> str:
    """Return a text in one row as code, nothing for none."""
    row = " ".join(text.replace("`", "'").splitlines())
    return f"`{row}`" if row.strip() else ""
