"""How far remediation goes in a namespace, and what a person let through where it waits for one.

Where it goes as far as writing, and where it is only shown what would be written (`dry-run`), are
two worlds: a change that is not made must count for nothing where changes are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, Literal

from kube_sync.config import Remediate
from kube_sync.decisions.records import Budget
from kube_sync.remediation.brakes import Brakes
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current
from kube_sync.remediation.policy_limits import LimitSource

Mode = Literal["off", "dry-run", "manual", "enforce"]

_WRITTEN: Final[tuple[Mode, ...]] = ("enforce", "manual")
_REHEARSED: Final[tuple[Mode, ...]] = ("dry-run",)


class Modes:
    """The modes that the configuration gives."""

    def __init__(self, settings: Remediate) -> None:
        self._settings = settings
        self._applied: dict[Key, str] = {}

    def of(self, namespace: str) -> Mode:
        """Return the mode of a namespace; empty for what lies in none."""
        return self._settings.namespaces.get(namespace, self._settings.mode)

    def apply(self, key: Key, step: str) -> None:
        """Let the step of this name through, and no other."""
        self._applied[key] = step

    def goes(self, key: Key, step: str) -> bool:
        """Tell whether a step is meant to be carried out, if only on paper."""
        mode = self.of(key[1].namespace)
        return mode in ("enforce", "dry-run") or (
            mode == "manual" and self._applied.get(key) == step
        )

    def forget(self, key: Key) -> None:
        """Forget what was let through: it is done, or nothing is to be done any more."""
        self._applied.pop(key, None)


class BrakesByMode:
    """The brakes of what is written, and those of what is only shown."""

    def __init__(self, modes: Modes, brakes: Brakes, rehearsal: Brakes) -> None:
        self._modes = modes
        self._brakes = brakes
        self._rehearsal = rehearsal

    @property
    def tightened(self) -> LimitSource:
        """What policies make less of."""
        return self._brakes.tightened

    @property
    def waiting(self) -> bool:
        """Whether there is any change to weigh."""
        return self._brakes.waiting or self._rehearsal.waiting

    def is_rehearsed(self, key: Key) -> bool:
        """Tell whether nothing is written of an object, but shown."""
        return self._modes.of(key[1].namespace) in _REHEARSED

    def of(self, key: Key) -> Brakes:
        """Return the brakes that hold for an object."""
        return self._rehearsal if self.is_rehearsed(key) else self._brakes

    async def begin(self, objects: Collection[tuple[Key, Current]]) -> None:
        """Begin with what all objects tell of how they were moved."""
        await self._brakes.begin(objects)
        await self._rehearsal.begin([one for one in objects if self.is_rehearsed(one[0])])

    def tighten(self, budget: Budget | None) -> bool:
        """Let moves be as limited as policies say; tell whether all have to be weighed again."""
        changed = [brakes.tighten(budget) for brakes in (self._brakes, self._rehearsal)]
        return any(changed)

    def weigh(self, workloads: Mapping[str, int]) -> list[Key]:
        """Weigh all changes; return those of which it may be told otherwise than before.

        `workloads`: how many objects there are in each namespace, but for idle ones.
        """
        found = list[Key]()
        for brakes, modes in ((self._brakes, _WRITTEN), (self._rehearsal, _REHEARSED)):
            counts = {n: count for n, count in workloads.items() if self._modes.of(n) in modes}
            if brakes.weigh(Counter(counts)):
                found += brakes.keys
        return found
