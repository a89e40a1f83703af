"""What a soak has shown, as text and as JSON, and which promises it broke.

A promise that could not be judged (the run was interrupted, or too short for it) is not broken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tools.soak.memory import Curve, Sample, curve
from tools.soak.tally import Tally
from tools.soak.windows import Denial, Window, disturbed, outside

JUDGED = ("opa", "replicate", "remediate", "admit")  # whose memory is promised to be bounded
_SHOWN = 10  # of each kind, in the text
_POINTS = 60  # of a memory curve in the JSON
Kept = Literal["kept", "broken", "not judged"]


@dataclass(slots=True)
class FaultDone:
    """One fault; seconds since the run began, `answering` and `recovered` since the fault's end."""

    name: str
    begun: float
    ended: float
    answering: float | None = None  # None: it lost no policies, or they never came back
    recovered: float | None = None  # None: not within the patience


@dataclass
class Report:
    """What is known so far."""

    options: Mapping[str, Any]
    tally: Tally
    setup: dict[str, float] = field(default_factory=dict)  # seconds by step
    machine: dict[str, Any] = field(default_factory=dict)
    faults: list[FaultDone] = field(default_factory=list)
    divergences: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)  # at the end
    checkpoints: int = 0
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    begun: float = 0.0  # of the load, on the tally's clock
    ended: float = 0.0
    complete: bool = False

    @property
    def seconds(self) -> float:
        """How long the load lasted."""
        return max(0.0, self.ended - self.begun)

    def promises(self) -> dict[str, Kept]:
        """Return what became of each promise."""
        windows, tally = self.tally.windows, self.tally
        lost = any("decision" in found or "placed" in found for found in self.divergences)
        bounded = self.curves()
        short = not any(found.judged for found in bounded.values())
        growing = any(not bounded[name].bounded for name in JUDGED if name in bounded)
        return {
            "no divergence": self._kept(broken=bool(self.divergences)),
            "no missed decision": self._kept(broken=lost or bool(tally.let_through)),
            "no denial without a cause": self._kept(broken=bool(outside(tally.denials, windows))),
            "memory bounded": "not judged" if short and not growing else _state(broken=growing),
            "nothing vanished": self._kept(broken=bool(tally.unexpected)),
        }

    @property
    def broken(self) -> bool:
        """Whether a promise was broken."""
        return "broken" in self.promises().values()

    def curves(self) -> dict[str, Curve]:
        """Return what became of each server's memory under load."""
        minutes = self.seconds / 60
        by_minute = self.tally.made / minutes if minutes else 0.0
        return {name: curve(found, by_minute) for name, found in self.samples.items() if found}

    def document(self) -> dict[str, Any]:
        """Return everything as JSON."""
        tally, windows = self.tally, self.tally.windows
        return {
            "options": dict(self.options),
            "machine": self.machine,
            "complete": self.complete,
            "promises": self.promises(),
            "setup_seconds": self.setup,
            "load_seconds": round(self.seconds, 1),
            "changes": {kind: dict(found) for kind, found in sorted(tally.changes.items())},
            "changes_per_second": round(tally.asked / self.seconds, 1) if self.seconds else 0.0,
            "faults": [asdict(fault) for fault in self.faults],
            "windows": [asdict(window) for window in windows],
            "denials": {
                "inside": [
                    {"window": w.kind, "at": round(w.begun, 1), "denials": _of(tally, w)}
                    for w in windows
                ],
                "outside": [asdict(d) for d in outside(tally.denials, windows)],
            },
            "let_through": [asdict(found) for found in tally.let_through],
            "vanished": [asdict(found) for found in tally.unexpected],
            "divergences": self.divergences,
            "checkpoints": self.checkpoints,
            "checked_at_the_end": self.checked,
            "memory": {
                name: asdict(found) | {"points": _points(self.samples[name])}
                for name, found in self.curves().items()
            },
        }

    def text(self) -> str:
        """Return it for a person."""
        tally, windows = self.tally, self.tally.windows
        denied_outside = outside(tally.denials, windows)
        explained = len(tally.denials) - len(denied_outside)
        lines = [
            "",
            f"soak: {self._what()}, seed {self.options['seed']}"
            + ("" if self.complete else " (INTERRUPTED: not everything was looked at)"),
            "set-up: " + ", ".join(f"{name} {s:.0f} s" for name, s in self.setup.items()),
            f"load: {self.seconds:.0f} s, {tally.asked} changes asked for, {tally.made} made",
            *(f"  {kind}: {_counts(found)}" for kind, found in sorted(tally.changes.items())),
            f"denials: {explained} in windows, {len(denied_outside)} outside",
            *self._shown("OUTSIDE", denied_outside),
            *self._shown("LET THROUGH", tally.let_through),
            *self._shown("VANISHED", tally.unexpected),
            f"faults: {len(self.faults)} (policies answer again, all equal and ready again)",
            *(_fault_line(fault, self.begun) for fault in self.faults),
            f"checkpoints: {self.checkpoints}; at the end: {_counts(self.checked)}",
            f"divergences: {len(self.divergences)}",
            *(f"  DIVERGED {found}" for found in self.divergences),
            "memory (MB: least, median, most; slope of the second half):",
            *(_memory_line(name, found) for name, found in self.curves().items()),
            *(f"promise: {name}: {kept.upper()}" for name, kept in self.promises().items()),
        ]
        return "\n".join(lines)

    def _shown(self, what: str, found: Sequence[Denial]) -> list[str]:
        first = found[:_SHOWN]
        return [f"  {what} {d.begun - self.begun:.1f} s: {d.what}: {d.message}" for d in first]

    def _what(self) -> str:
        counts = (f"{self.options[name]} {name}" for name in ("objects", "clusters", "policies"))
        return f"{', '.join(counts)}, {self.options['rate']} changes a second"

    def _kept(self, *, broken: bool) -> Kept:
        return "not judged" if not self.complete and not broken else _state(broken=broken)


def _state(*, broken: bool) -> Kept:
    return "broken" if broken else "kept"


def _counts(found: Mapping[Any, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in found.items() if count) or "nothing"


def _fault_line(fault: FaultDone, since: float) -> str:
    again = "" if fault.answering is None else f"{fault.answering:.1f} s, "
    whole = "NOT AGAIN" if fault.recovered is None else f"{fault.recovered:.1f} s"
    at, took = fault.begun - since, fault.ended - fault.begun
    return f"  {at:.0f} s: {fault.name}, {took:.1f} s: {again}{whole}"


def _memory_line(name: str, found: Curve) -> str:
    sizes = " ".join(f"{kb / 1024:.0f}" for kb in (found.least_kb, found.median_kb, found.most_kb))
    if found.kb_per_minute is None:
        return f"  {name}: {sizes}; too short for a slope"
    slope = f"{found.kb_per_minute:+.0f} KB a minute"
    if found.kb_per_1000_changes is not None:
        slope += f", {found.kb_per_1000_changes:+.1f} KB in 1,000 changes"
    judged = f"limit {found.limit_kb_per_minute:.0f}" if found.judged else "too short to judge"
    return f"  {name}: {sizes}; {slope} ({judged})"


def _of(tally: Tally, window: Window) -> int:
    return sum(disturbed(denial, [window]) for denial in tally.denials)


def _points(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    return [(round(s.at, 1), round(s.kb)) for s in samples[:: len(samples) // _POINTS + 1]]
