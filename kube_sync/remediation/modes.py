"""The remediation mode of each namespace, and the steps that a person approved in mode `manual`.

Written namespaces and those in mode `dry-run` have guards of their own: a change that is only shown
must have no effect on changes that are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, Literal

from kube_sync.config import Remediate
from kube_sync.decisions.records import Budget
from kube_sync.remediation.brakes import Brakes
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.holds import name_of
from kube_sync.remediation.plan import Current, Write
from kube_sync.remediation.policy_limits import LimitSource

Mode = Literal["off", "dry-run", "manual", "enforce"]

_WRITTEN: Final[tuple[Mode, ...]] = ("enforce", "manual")
_REHEARSED: Final[tuple[Mode, ...]] = ("dry-run",)


class Modes:
    """The modes from the configuration, and approved steps."""

    def __init__(self, settings: Remediate) -> None:
        self._settings = settings
        self._applied: dict[Key, str] = {}

    def of(self, namespace: str) -> Mode:
        """Return the mode of a namespace; empty for cluster-scoped objects."""
        return self._settings.namespaces.get(namespace, self._settings.mode)

    def apply(self, key: Key, step: str) -> None:
        """Approve the step of this name, and no other."""
        self._applied[key] = step

    def is_eligible(self, key: Key, step: Write) -> bool:
        """Return whether a step is to be carried out, or shown in dry run."""
        match self.of(key[1].namespace):
            case "enforce" | "dry-run":
                return True
            case "manual":  # only here: a step's name is expensive
                return key in self._applied and self._applied[key] == name_of(step)
            case "off":
                return False

    def forget(self, key: Key) -> None:
        """Remove an approval: the step is done, or none is wanted any more."""
        self._applied.pop(key, None)


class BrakesByMode:
    """The brakes of namespaces that are written, and those of namespaces in dry run."""

    def __init__(self, modes: Modes, brakes: Brakes, rehearsal: Brakes) -> None:
        self._modes = modes
        self._brakes = brakes
        self._rehearsal = rehearsal

    @property
    def tightened(self) -> LimitSource:
        """The limits that policies tighten."""
        return self._brakes.tightened

    @property
    def waiting(self) -> bool:
        """Whether any change is wanted."""
        return self._brakes.waiting or self._rehearsal.waiting

    def is_rehearsed(self, key: Key) -> bool:
        """Return whether an object is in a dry-run namespace."""
        return self._modes.of(key[1].namespace) in _REHEARSED

    def of(self, key: Key) -> Brakes:
        """Return the brakes for an object."""
        return self._rehearsal if self.is_rehearsed(key) else self._brakes

    async def begin(self, objects: Collection[tuple[Key, Current]]) -> None:
        """Load the histories of all objects."""
        await self._brakes.begin(objects)
        await self._rehearsal.begin([one for one in objects if self.is_rehearsed(one[0])])

    def tighten(self, budget: Budget | None) -> bool:
        """Apply the limits of policies; return whether all changes have to be weighed again."""
        changed = [brakes.tighten(budget) for brakes in (self._brakes, self._rehearsal)]
        return any(changed)

    def weigh(self, workloads: Mapping[str, int]) -> list[Key]:
        """Weigh all changes; return the keys to reconcile since holds differ.

        `workloads`: the number of objects in each namespace that are not idle.
        """
        found = list[Key]()
        for brakes, modes in ((self._brakes, _WRITTEN), (self._rehearsal, _REHEARSED)):
            counts = {n: count for n, count in workloads.items() if self._modes.of(n) in modes}
            if brakes.weigh(Counter(counts)):
                found += brakes.keys
        return found
