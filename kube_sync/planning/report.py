"""A plan as a table for a terminal, as Markdown for a pull request, and as JSON.

Keeps true: nothing of what is planned is left out of the JSON; of the others what is left out is
counted. Nothing in a text can move a terminal's cursor, and no name ends a cell of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from kube_sync.planning.causes import Cause
from kube_sync.planning.effects import KINDS, Effect
from kube_sync.planning.outcome import Plan
from kube_sync.safety import Held

_ROWS: Final = 40
_WIDEST: Final = 44  # characters of a cell
_HEADINGS: Final = ("EFFECT", "WORKLOAD", "FROM", "TO", "WHEN", "RULE")
_MINUTE: Final = 60.0


def as_json(plan: Plan) -> str:
    """Return the whole plan for programs."""
    forecast = plan.forecast
    whole = {
        "v": 1,
        "summary": {"workloads": plan.workloads, "classes": plan.classes, **plan.counts},
        "workloads": [_document(plan, effect) for effect in plan.ordered],
        "brakes": {
            "moves": sum(e.change is not None and e.change.is_move for e in plan.effects),
            "holds": [_hold(held) for held in forecast.holds],
            "seconds": round(forecast.lasts, 1),
            "stuck": len(forecast.held),
        },
        "notes": plan.notes,
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def as_table(plan: Plan, *, every: bool = False) -> str:
    """Return it for people, wide or narrow as its longest cells are."""
    shown = plan.ordered if every else plan.ordered[:_ROWS]
    blocks = ["\n".join(_table(_rows(plan, shown)))] if shown else []
    if left := len(plan.effects) - len(shown):
        blocks.append(f"… and {left} more (--all, or -o json)")
    blocks.append("\n".join(_summary(plan)))
    return "\n\n".join(map(_plain, blocks))


def as_markdown(plan: Plan, *, every: bool = False) -> str:
    """Return it for a pull request."""
    summary, *more = _summary(plan)
    shown = plan.ordered if every else plan.ordered[:_ROWS]
    lines = [f"### Plan: {summary}", "", *(f"- {line}" for line in more)]
    if shown:
        rows = [[_cell(cell) for cell in row] for row in _rows(plan, shown)]
        titles = [title.capitalize() for title in _HEADINGS]
        rule = ["---"] * len(titles)
        lines += ["", *(f"| {' | '.join(row)} |" for row in (titles, rule, *rows))]
    if left := len(plan.effects) - len(shown):
        lines += ["", f"… and {left} more."]
    return _plain("\n".join(lines))


def duration(seconds: float) -> str:
    """Return a time span in words, in whole seconds or minutes."""
    if seconds < 1:
        return "at once"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _MINUTE * _MINUTE:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _MINUTE / _MINUTE:.1f} h"


def _rows(plan: Plan, effects: Iterable[Effect]) -> Iterator[tuple[str, ...]]:
    for effect in effects:
        kind = f"{effect.kind} (pending)" if effect.pending else effect.kind
        yield (
            kind,
            str(effect.key),
            _names(effect.before),
            _names(effect.after),
            _when(plan, effect),
            _rule(plan.why(effect)) or effect.reason,
        )


def _table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    # The last column may be as long as it is: a file's name that is cut is none.
    cut = [(*map(_short, row[:-1]), row[-1]) for row in rows]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *cut, strict=True)]
    for row in (_HEADINGS, *cut):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _summary(plan: Plan) -> Iterator[str]:
    counts = plan.counts
    parts = [f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]]
    yield f"{', '.join(parts) or 'nothing changes'} (of {plan.workloads} workloads)"
    if counts["pending"]:
        yield f"{counts['pending']} would change without the edit, too (pending)"
    yield from (
        f"brakes: {held.kind}: {held.reason}: {held.release}" for held in plan.forecast.holds
    )
    if plan.forecast.held:
        kinds = ", ".join(sorted({held.kind for held in plan.forecast.held.values()}))
        yield f"brakes: {len(plan.forecast.held)} held for good ({kinds})"
    if plan.forecast.seconds:
        after = " after the approval" if plan.forecast.holds else ""
        yield f"brakes: the last one goes {_after(plan.forecast.lasts)}{after}"
    for effect in plan.ordered:
        if effect.breaks and effect.reason:
            yield f"{effect.key}: {effect.kind}: {effect.reason}"
            break
    yield from (f"note: {note}" for note in plan.notes)


def _after(seconds: float) -> str:
    said = duration(seconds)
    return said if seconds < 1 else f"after {said}"


def _when(plan: Plan, effect: Effect) -> str:
    if (held := plan.held(effect)) is not None:
        return f"held: {held.kind}"
    seconds = plan.when(effect)
    return "" if seconds is None else duration(seconds)


def _rule(causes: Sequence[Cause]) -> str:
    if not causes:
        return ""
    first = causes[0]
    gone = "no longer " if first.when == "now" else ""
    return f"{gone}{first.file}:{first.row}"


def _names(names: Sequence[str]) -> str:
    return ",".join(names) or "-"


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _document(plan: Plan, effect: Effect) -> dict[str, Any]:
    held = plan.held(effect)
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
        "rules": plan.why(effect),
        "after_seconds": plan.when(effect),
        "held": None if held is None else _hold(held),
    }


def _hold(held: Held) -> dict[str, str]:
    return {"kind": held.kind, "reason": held.reason, "release": held.release}
