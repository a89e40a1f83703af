"""Formats a plan as a table for a terminal, and as JSON and names for programs.

Invariant: the JSON has the complete plan; the table counts what it leaves out. No text can move a
terminal's cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kube_sync.guard import Withheld
from kube_sync.inspect.plan.candidates import Staged
from kube_sync.inspect.plan.causes import Cause
from kube_sync.inspect.plan.effects import KINDS, Effect, Kind
from kube_sync.inspect.plan.plan import Plan
from kube_sync.kube.naming import spelt
from kube_sync.objects import GroupVersionResource
from kube_sync.observability.printing import cut, indented, joined, plain, table

ROWS: Final = 40
_LEAST: Final = 20  # characters of a cell that may be cut
HEADINGS: Final = ("EFFECT", "WORKLOAD", "FROM", "TO", "WHEN", "RULE")
_WIDE: Final = ("TYPE", "UID")
_WORKLOAD, _FROM, _TO, _RULE = 1, 2, 3, 5
_YIELDING: Final = (_FROM, _TO, _WORKLOAD, _RULE)
_COUNTED: Final[Mapping[Kind, str]] = {
    "failed": "failed",
    "refused": "refused",
    "undecided": "undecided",
    "nowhere": "with no cluster",
    "moves": "to move",
    "adds": "to add clusters",
    "changes": "to change otherwise",
}
_MINUTE: Final = 60.0


def as_json(plan: Plan, *, whole: bool = True) -> str:
    """Format the plan for programs, without the single workloads unless it is whole."""
    return indented(_whole(plan, whole=whole))


def as_names(
    plan: Plan, places: Mapping[str, GroupVersionResource], *, in_namespace: bool = False
) -> str:
    """Return the names of the affected workloads, as every command takes them, a line each."""
    return "\n".join(
        spelt(places[one.resource], one.key, in_namespace=in_namespace) for one in plan.ordered
    )


def _whole(plan: Plan, *, whole: bool) -> dict[str, Any]:
    forecast = plan.forecast
    workloads = {"workloads": [_document(plan, effect) for effect in plan.ordered]} if whole else {}
    return {
        "v": 1,
        "summary": {"workloads": plan.workloads, "classes": plan.classes, **plan.counts},
        **workloads,
        "brakes": {
            "moves": sum(e.change is not None and e.change.is_move for e in plan.effects),
            "holds": [_hold(hold) for hold in forecast.holds],
            "seconds": round(forecast.lasts, 1),
            "stuck": len(forecast.held),
        },
        "candidates": [_candidate(staged) for staged in plan.staged],
        "notes": plan.notes,
        "warnings": [warning.fields() for warning in plan.warnings],
    }


def as_table(plan: Plan, width: int | None, *, every: bool = False) -> str:
    """Format the plan for a terminal with `width` columns; None: nothing is cut, and more is shown.

    What is shown then beside the rest is the kind and the uid.
    """
    shown = plan.ordered if every else plan.ordered[:ROWS]
    cells = [HEADINGS, *rows(plan, shown)]
    if width is None:
        more = [_WIDE, *((one.resource, one.uid) for one in shown)]
        cells = [(kind, *row, uid) for (kind, uid), row in zip(more, cells, strict=True)]
    blocks = ["\n".join(_table(cells, width))] if shown else []
    if left := len(plan.effects) - len(shown):
        blocks.append(f"… and {left} more (--all, or -o json)")
    blocks.append("\n".join(_summary(plan)))
    return joined(plain(block, "\n") for block in blocks)


def duration(seconds: float) -> str:
    """Format a time span, in whole seconds or minutes."""
    if seconds < 1:
        return "at once"  # clocks differ by a second anyway
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _MINUTE * _MINUTE:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _MINUTE / _MINUTE:.1f} h"


def rows(plan: Plan, effects: Iterable[Effect]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each effect, below HEADINGS."""
    for effect in effects:
        kind = f"{effect.kind} (pending)" if effect.pending else effect.kind
        yield (
            kind,
            str(effect.key),
            names(effect.before),
            names(effect.after),
            _time_text(plan, effect),
            _rule_text(plan.causes_of(effect)) or _first_line(effect.reason),
        )


def _table(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gaps = 2 * (len(widths) - 1)
    # Cut the longest cells, a file's name last, but no column below the width of its head.
    for column in _YIELDING:
        over = 0 if width is None else sum(widths) + gaps - width
        widths[column] -= max(0, min(over, widths[column] - _LEAST))
    return table(
        [
            _short(cell, width, from_left=number == _RULE)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    )


def counted(plan: Plan) -> str:
    """Return in a line how many workloads change, by effect."""
    counts = plan.counts
    parts = [effect_text(kind, counts[kind]) for kind in KINDS if counts[kind]]
    return f"{', '.join(parts) or 'nothing changes'} (of {plan.workloads} workloads)"


def effect_text(kind: Kind, number: int) -> str:
    """Return in words how many workloads an effect has."""
    return f"{number} {_COUNTED[kind]}"


def first_reason(plan: Plan) -> str:
    """Return the first workload that loses something, with why, "" if none does."""
    for effect in plan.ordered:
        if effect.breaks and effect.reason:
            return f"{effect.key}: {effect.kind}: {_first_line(effect.reason)}"
    return ""


def names(clusters: Sequence[str]) -> str:
    """Return the names of clusters in a cell, a dash for none."""
    return ",".join(clusters) or "-"


def _summary(plan: Plan) -> Iterator[str]:
    counts = plan.counts
    yield counted(plan)
    if counts["pending"]:
        yield f"{counts['pending']} would change without the edit, too (pending)"
    yield from (f"brakes: {hold_text(hold)}" for hold in plan.forecast.holds)
    yield from (f"brakes: {line}" for line in pace_lines(plan))
    if reason := first_reason(plan):
        yield reason
    yield from (f"note: {note}" for note in plan.notes)
    yield from (f"warning: {warning.line()}" for warning in plan.warnings)


def hold_text(hold: Withheld) -> str:
    """Return a hold, why, and what releases it."""
    return f"{hold.kind}: {hold.reason}: {_release(hold)}"


def pace_lines(plan: Plan) -> Iterator[str]:
    """Yield how many moves are held for good, and when the last of the others goes."""
    if plan.forecast.held:
        kinds = ", ".join(sorted({hold.kind for hold in plan.forecast.held.values()}))
        yield f"{len(plan.forecast.held)} held for good ({kinds})"
    if plan.forecast.seconds:
        approval = "an approval" if plan.forecast.holds else "the edit"
        yield f"the last one goes {duration(plan.forecast.lasts)} after {approval}"


def _time_text(plan: Plan, effect: Effect) -> str:
    if (hold := plan.hold_of(effect)) is not None:
        return f"held: {hold.kind}"
    seconds = plan.seconds_until(effect)
    return "" if seconds is None else duration(seconds)


def _rule_text(causes: Sequence[Cause]) -> str:
    if not causes:
        return ""
    first = causes[0]
    gone = "no longer " if first.when == "now" else ""
    return f"{gone}{first.file}:{first.row}"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _short(text: str, width: int, *, from_left: bool) -> str:
    return cut(text[::-1], width)[::-1] if from_left else cut(text, width)


def _candidate(staged: Staged) -> dict[str, str]:
    place = str(staged.stands_for)
    return {"name": str(staged.key), "stands_for": place, "modules": staged.modules}


def _document(plan: Plan, effect: Effect) -> dict[str, Any]:
    hold = plan.hold_of(effect)
    change = effect.change
    return {
        "resource": effect.resource,
        "namespace": effect.key.namespace,
        "name": effect.key.name,
        "uid": effect.uid,
        "effect": effect.kind,
        "from": effect.before,
        "to": effect.after,
        "left": sorted(change.left) if change else [],
        "joined": sorted(change.joined) if change else [],
        "pending": effect.pending,
        "reason": effect.reason,
        "rules": plan.causes_of(effect),
        "after_seconds": plan.seconds_until(effect),
        "held": None if hold is None else _hold(hold),
    }


def _hold(hold: Withheld) -> dict[str, str]:
    return {"kind": hold.kind, "reason": hold.reason, "release": _release(hold)}


def _release(hold: Withheld) -> str:
    # An approval has the name of requested moves, and these are not requested yet.
    return hold.release if hold.approve is None else "waits for an approval"
