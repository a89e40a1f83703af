"""A whole plan as a value: what is printed, in whichever form, and what it means to a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kube_sync.guard import Withheld
from kube_sync.inspect.plan.candidates import Staged
from kube_sync.inspect.plan.causes import Cause, Way, way
from kube_sync.inspect.plan.effects import KINDS, Effect
from kube_sync.inspect.plan.forecast import Forecast

NOTHING, SOMETHING, BREAKS = 0, 2, 3  # exit statuses
_RANK: Final = {kind: number for number, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of which workloads, why, and when."""

    workloads: int
    classes: int
    effects: Sequence[Effect] = ()
    causes: Mapping[Way, Sequence[Cause]] = field(default_factory=dict)
    forecast: Forecast = field(default_factory=lambda: Forecast({}, {}))
    notes: tuple[str, ...] = ()
    staged: tuple[Staged, ...] = ()  # the staged policies that were planned with

    @property
    def ordered(self) -> list[Effect]:
        """What becomes of workloads, the worst first, and what is not the edit's doing last."""
        return sorted(self.effects, key=lambda e: (e.pending, _RANK[e.kind], e.resource, e.key))

    @property
    def counts(self) -> dict[str, int]:
        """How many workloads go which way by this edit, and how many would anyway."""
        found = Counter[str](e.kind for e in self.effects if not e.pending)
        pending = sum(e.pending for e in self.effects)
        return {kind: found[kind] for kind in KINDS} | {"pending": pending}

    @property
    def status(self) -> int:
        """The exit status of the command."""
        if any(effect.breaks for effect in self.effects):
            return BREAKS
        return SOMETHING if any(not effect.pending for effect in self.effects) else NOTHING

    def why(self, effect: Effect) -> Sequence[Cause]:
        """Return the rules that are responsible, as far as they were asked for."""
        return self.causes.get(way(effect), ())

    def when(self, effect: Effect) -> float | None:
        """Return after how many seconds it goes, None where it does not, or waits for nothing."""
        return self.forecast.seconds.get(identity(effect))

    def held(self, effect: Effect) -> Withheld | None:
        """Return what holds it for good."""
        return self.forecast.held.get(identity(effect))


def identity(effect: Effect) -> str:
    """Name one object for as long as it lives, as the remediator does."""
    return f"{effect.resource}/{effect.key}/{effect.uid}"
