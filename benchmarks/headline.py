"""The headline table: each ratio that has an aim, beside its aim, and whether it was reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure has to be: at most or at least a value."""

    figure: str  # as it is named in the results
    bound: Literal["<=", ">="]
    value: float

    def is_reached(self, measured: float) -> bool:
        """Return whether the measured figure is within the bound."""
        return measured <= self.value if self.bound == "<=" else measured >= self.value


AIMS: Final = (
    Aim("start-up, until the first request (s)", "<=", 0.4),
    Aim("first sync, ratio", "<=", 1.4),
    Aim("one event, median, ratio", "<=", 1.3),
    Aim("one event, 99th percentile, ratio", "<=", 2.5),
    Aim("100 modules, ratio", "<=", 0.05),
    Aim("guard, 1000 clusters, ratio", "<=", 1.1),
    *(Aim(f"decisions, {size} clusters, ratio", "<=", 0.02) for size in (4, 20, 100)),
    *(Aim(f"decisions, {size} clusters, OPA's p99, ratio", "<=", 3.0) for size in (4, 20, 100)),
    Aim("classes, one line, by class over OPA, ratio", ">=", 0.6),
    Aim("classes, 20 clusters, by class over OPA, ratio", ">=", 2.5),
    Aim("classes, 100 clusters, by class over OPA, ratio", ">=", 8.0),
    Aim("classes, 20 clusters, by class over bare handler, ratio", ">=", 0.5),
    Aim("classes, 20 clusters, median by class over OPA, ratio", "<=", 1.0),
    Aim("classes, new ones, by class over without, ratio", ">=", 0.95),
    Aim("remediation, first placements, ratio", "<=", 1.3),
    Aim("remediation, moves, ratio", "<=", 1.3),
    Aim("remediation, one object, ratio", "<=", 5.0),
    Aim("plan, ratio", "<=", 0.05),
    Aim("500000 objects, first sync, ratio", "<=", 1.4),
    Aim("500000 objects, restart of OPA, ratio", "<=", 1.2),
    Aim("500000 objects, replicator's memory (MB)", "<=", 400.0),
    Aim("500000 objects, flip, each of 100 classes seen (s)", "<=", 2.0),
    Aim("500000 objects, flip, all objects of them seen (s)", "<=", 2.0),
    Aim("replicator's memory, growth by object (KB)", "<=", 1.0),
    Aim("first placement, p99 (ms)", "<=", 100.0),
)


def headlines(figures: Mapping[str, float], aims: tuple[Aim, ...] = AIMS) -> Iterator[str]:
    """Yield the lines of the table, for the aims among the figures; nothing if there is none."""
    found = [(aim, figures[aim.figure]) for aim in aims if aim.figure in figures]
    if not found:
        return
    width = max(len(aim.figure) for aim, _ in found)
    yield f"{'headline':{width}} {'measured':>10} {'aim':>8}"
    for aim, measured in found:
        verdict = "reached" if aim.is_reached(measured) else "MISSED"
        yield f"{aim.figure:{width}} {measured:10.3f} {aim.bound} {aim.value:<5g} {verdict}"
