"""A complete plan as a value: the content of every output format, and the exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kube_sync.guard import Withheld
from kube_sync.inspect.plan.candidates import Staged
from kube_sync.inspect.plan.causes import Cause, EffectGroup, group_of
from kube_sync.inspect.plan.effects import KINDS, Effect
from kube_sync.inspect.plan.forecast import Forecast
from kube_sync.policies.policywarning import PolicyWarning

NOTHING, SOMETHING, BREAKS = 0, 2, 3  # exit statuses
_RANK: Final = {kind: number for number, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects on workloads, their causes, and their times."""

    workloads: int
    classes: int
    effects: Sequence[Effect] = ()
    causes: Mapping[EffectGroup, Sequence[Cause]] = field(default_factory=dict)
    forecast: Forecast = field(default_factory=lambda: Forecast({}, {}))
    notes: tuple[str, ...] = ()
    staged: tuple[Staged, ...] = ()  # the staged policies that are part of the plan
    warnings: tuple[PolicyWarning, ...] = ()  # on the policies after the edit
    # The files of the edit, by the id of the module or the ConfigMap of data they stand for.
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def ordered(self) -> list[Effect]:
        """The effects, the worst first, and those that are not caused by the edit last."""
        return sorted(self.effects, key=lambda e: (e.pending, _RANK[e.kind], e.resource, e.key))

    @property
    def counts(self) -> dict[str, int]:
        """The number of workloads by effect of this edit, and of those that change anyway."""
        found = Counter[str](e.kind for e in self.effects if not e.pending)
        pending = sum(e.pending for e in self.effects)
        return {kind: found[kind] for kind in KINDS} | {"pending": pending}

    @property
    def status(self) -> int:
        """The exit status of the command."""
        if any(effect.breaks for effect in self.effects):
            return BREAKS
        return SOMETHING if any(not effect.pending for effect in self.effects) else NOTHING

    def causes_of(self, effect: Effect) -> Sequence[Cause]:
        """Return the rules that cause an effect, as far as they were determined."""
        return self.causes.get(group_of(effect), ())

    def seconds_until(self, effect: Effect) -> float | None:
        """Return after how many seconds it goes, None if it does not, or waits for nothing."""
        return self.forecast.seconds.get(identity(effect))

    def hold_of(self, effect: Effect) -> Withheld | None:
        """Return the hold that keeps it for good."""
        return self.forecast.held.get(identity(effect))


def identity(effect: Effect) -> str:
    """Return the identity of one object during its life, as the remediator has it."""
    return f"{effect.resource}/{effect.key}/{effect.uid}"
