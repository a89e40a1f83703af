"""What a plan finds, for code scanning: each effect at the rule of the edit that causes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kube_sync.inspect.plan.causes import Cause
from kube_sync.inspect.plan.effects import Effect
from kube_sync.inspect.plan.plan import Plan
from kube_sync.inspect.plan.report import effect_text, hold_text, pace_lines
from kube_sync.inspect.sarif.report import Finding, of_warnings

_NAMED: Final = 5  # workloads
_Place = tuple[str, int]


def findings(plan: Plan, edited: Iterable[str] = ()) -> Iterator[Finding]:
    """Yield the findings of a plan whose edit is in its files and in these.

    Workloads with one effect at one rule are one finding.
    """
    first = next(iter((*plan.files.values(), *edited)), "")
    grouped: dict[tuple[str, _Place], list[Effect]] = {}
    for effect in plan.ordered:
        if not effect.pending:
            place = _place(plan, plan.causes_of(effect), first)
            grouped.setdefault((effect.kind, place), []).append(effect)
    for (kind, (file, row)), effects in grouped.items():
        yield Finding(f"plan/{kind}", _message(effects), file, row)
    for line in (*map(hold_text, plan.forecast.holds), *pace_lines(plan)):
        yield Finding("plan/brakes", line)
    yield from (Finding("plan/note", note) for note in plan.notes)
    yield from of_warnings(plan.warnings)


def _place(plan: Plan, causes: Sequence[Cause], first: str) -> _Place:
    """Return the rule of the edit that causes an effect, else the file that took a rule away.

    Otherwise that is the first file of the edit; without any, the rule where it is now.
    """
    files = frozenset(plan.files.values())
    places = [(one.file, one.row) for one in causes if one.when != "now" and one.file in files]
    places += [(plan.files[one.file], 0) for one in causes if one.file in plan.files]
    if not first:
        places += [(one.file, one.row) for one in causes if one.when != "now"]
    return next(iter(places), (first, 0))


def _message(effects: Sequence[Effect]) -> str:
    names = ", ".join(str(effect.key) for effect in effects[:_NAMED])
    left = len(effects) - _NAMED
    more = f" and {left} more" if left > 0 else ""
    reason = effects[0].reason if effects[0].breaks else ""
    return f"{effect_text(effects[0].kind, len(effects))}: {names}{more}" + (
        f": {reason}" if reason else ""
    )
