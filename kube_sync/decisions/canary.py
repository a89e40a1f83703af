"""A canary as decisions see it: which objects it decides on, and one question for both sides.

Keeps true: an object is decided by the set of its side, and by no other; whoever asks need not know
that there are two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kube_sync.analysis.reads import Reads
from kube_sync.decisions.evaluator import Outcome
from kube_sync.objects import ObjectKey
from kube_sync.opa.sides import Side


@dataclass(frozen=True, slots=True)
class Canary:
    """What decides on the objects of one side, in OPA beside what is in force."""

    side: Side
    policy: str  # the digest of its modules
    reads: Reads
    modules: Mapping[str, str]  # by id, as they would be in force


class Asked(Protocol):
    """The decisions of one set of policies."""

    @property
    def room(self) -> int:
        """How many decisions fit into the next query."""
        ...

    async def evaluate(
        self, collection: str, keys: Iterable[ObjectKey]
    ) -> dict[ObjectKey, Outcome]:
        """Decide all of `keys`; those that OPA does not hold are left out. Raises SyncError."""
        ...


class InForce(Asked, Protocol):
    """The decisions of what is in force, which is told when that changes."""

    def policies_changing(self) -> None:
        """Take note that OPA may hold another set of policies from now on."""
        ...

    def policies_changed(self, reads: Reads) -> None:
        """Take note that OPA holds policies that read this."""
        ...


class SidedEvaluator:
    """The decisions of what is in force and, for its side, of a canary."""

    def __init__(self, in_force: InForce, canary: Asked) -> None:
        self._in_force = in_force
        self._canary = canary
        self.side: Side | None = None  # None: there is no canary

    @property
    def room(self) -> int:
        """How many decisions fit into the next query."""
        if self.side is None:
            return self._in_force.room
        return min(self._in_force.room, self._canary.room)

    async def evaluate(
        self, collection: str, keys: Iterable[ObjectKey]
    ) -> dict[ObjectKey, Outcome]:
        """Decide all of `keys`; those that OPA does not hold are left out. Raises SyncError."""
        side, asked = self.side, [*keys]
        if side is None:
            return await self._in_force.evaluate(collection, asked)
        on = [key for key in asked if side.has(key)]
        off = [key for key in asked if not side.has(key)]
        found = await self._in_force.evaluate(collection, off) if off else {}
        return found | (await self._canary.evaluate(collection, on) if on else {})

    def policies_changing(self) -> None:
        """Take note that OPA may hold another set of policies from now on."""
        self._in_force.policies_changing()

    def policies_changed(self, reads: Reads) -> None:
        """Take note that OPA holds policies that read this."""
        self._in_force.policies_changed(reads)
