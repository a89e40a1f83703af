"""A canary as decisions see it: which objects it decides on, and one question for both sides.

Keeps true: an object is decided by the set of its side, and by no other; whoever asks need not know
that there are two. What a canary decides on is of classes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from kube_sync.decisions.classes import Member
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.policysets import Division, PolicySetEvaluator, PolicySets, SinglePolicySet
from kube_sync.decisions.tracker import Tracker
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.reads import Reads, joined
from kube_sync.opa.sides import Side

_ON = b"+"  # behind the class of an object that the canary decides on: no digest is so long


@dataclass(frozen=True, slots=True)
class Canary:
    """What decides on the objects of one side, in OPA beside what is in force."""

    side: Side
    policy: str  # the digest of its modules
    reads: Reads
    modules: Mapping[str, str]  # by id, as they would be in force


@dataclass(frozen=True, slots=True)
class Sides:
    """What is in force and, on its side, a canary."""

    canary: Canary
    in_force: SinglePolicySet

    @property
    def reads(self) -> Reads | None:
        """What either of them reads."""
        reads = self.in_force.reads
        return None if reads is None else joined(reads, self.canary.reads)

    def policy(self, key: ObjectKey, /) -> str:
        """Return the digest of the set of an object's side."""
        return self.canary.policy if self.canary.side.has(key) else self.in_force.digest

    def member(self, member: Member, key: ObjectKey, /) -> Member:
        """Return the class of an object on its side."""
        return member._replace(kind=member.kind + _ON) if self.canary.side.has(key) else member


@dataclass(frozen=True, slots=True)
class SidedEvaluator:
    """The decisions of what is in force and, for its side, of a canary."""

    in_force: PolicySetEvaluator
    canary: PolicySetEvaluator
    side: Side

    @property
    def room(self) -> int:
        """How many decisions fit into the next query."""
        return min(self.in_force.room, self.canary.room)

    async def evaluate(
        self, collection: str, keys: Iterable[ObjectKey]
    ) -> dict[ObjectKey, Outcome]:
        """Decide all of `keys`; those that OPA does not hold are left out. Raises SyncError."""
        on: list[ObjectKey] = []
        off: list[ObjectKey] = []
        for key in keys:
            (on if self.side.has(key) else off).append(key)
        found = await self.in_force.evaluate(collection, off) if off else {}
        return found | (await self.canary.evaluate(collection, on) if on else {})


class CanaryDecider:
    """Has the objects of its side decided by a canary, in one epoch of OPA's data."""

    def __init__(
        self, decider: Tracker, in_force: PolicySetEvaluator, lane: PolicySetEvaluator
    ) -> None:
        """Decide by `in_force` and, on its side, by the `lane` of the canary."""
        self._decider = decider
        self._in_force = in_force
        self._lane = lane
        self._canary: Canary | None = None

    def changing(self) -> None:
        """Take note that OPA may hold another canary from now on."""
        self._decider.division_changing()

    def changed(self, canary: Canary | None) -> None:
        """Take note that OPA decides by this canary for its side, None by none."""
        old, self._canary = self._canary, canary
        same = old is not None and canary is not None and old.policy == canary.policy
        sides = [found.side for found in (old, canary) if found is not None]

        def is_touched(key: ObjectKey) -> bool:
            on = [side.has(key) for side in sides]
            return any(on) and not (same and all(on))

        def is_outdated(kind: bytes) -> bool:
            return not same and kind.endswith(_ON)

        divide: Callable[[SinglePolicySet], PolicySets] | None = None
        evaluator = self._in_force
        if canary is not None:
            divide = partial(Sides, canary)
            evaluator = SidedEvaluator(self._in_force, self._lane, canary.side)
        self._decider.divided(Division(divide, evaluator, is_touched, is_outdated))
