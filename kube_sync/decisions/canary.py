"""Divide objects between the policies in force and a canary, behind one evaluator.

Invariant: an object is decided by the policy set of its side, and by no other; callers need not
know that there are two. Objects on the canary's side are in classes of their own.
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
from kube_sync.opa.analysis.result import Reads, joined
from kube_sync.opa.sides import Side

_ON = b"+"  # appended to the class of an object on the canary's side: no digest is that long


@dataclass(frozen=True, slots=True)
class Canary:
    """The policy set that decides on the objects of one side, beside the one in force."""

    side: Side
    policy: str  # the digest of its modules
    reads: Reads
    modules: Mapping[str, str]  # by id, as they would be in force


@dataclass(frozen=True, slots=True)
class Sides:
    """The policy set in force and, for its side, a canary's."""

    canary: Canary
    in_force: SinglePolicySet

    @property
    def reads(self) -> Reads | None:
        """What either set reads."""
        reads = self.in_force.reads
        return None if reads is None else joined(reads, self.canary.reads)

    def policy(self, key: ObjectKey, /) -> str:
        """Return the digest of the set that decides on an object."""
        return self.canary.policy if self.canary.side.has(key) else self.in_force.digest

    def member(self, member: Member, key: ObjectKey, /) -> Member:
        """Return the class of an object on its side."""
        if not self.canary.side.has(key):
            return member
        return Member(member.kind + _ON, member.uid)


@dataclass(frozen=True, slots=True)
class SidedEvaluator:
    """Evaluates the policies in force and, for its side, a canary."""

    in_force: PolicySetEvaluator
    canary: PolicySetEvaluator
    side: Side

    @property
    def batch_size(self) -> int:
        """The number of decisions for the next query."""
        return min(self.in_force.batch_size, self.canary.batch_size)

    async def evaluate(
        self, collection: str, keys: Iterable[ObjectKey]
    ) -> dict[ObjectKey, Outcome]:
        """Evaluate all of `keys`; those that OPA does not hold are left out. Raises SyncError."""
        on: list[ObjectKey] = []
        off: list[ObjectKey] = []
        for key in keys:
            (on if self.side.has(key) else off).append(key)
        found = await self.in_force.evaluate(collection, off) if off else {}
        return found | (await self.canary.evaluate(collection, on) if on else {})


class CanaryDecider:
    """Lets a canary decide on the objects of its side, in one epoch of OPA's data."""

    def __init__(
        self, tracker: Tracker, in_force: PolicySetEvaluator, lane: PolicySetEvaluator
    ) -> None:
        """Evaluate by `in_force` and, for its side, by the `lane` of the canary."""
        self._tracker = tracker
        self._in_force = in_force
        self._lane = lane
        self._canary: Canary | None = None

    def changing(self) -> None:
        """Record that OPA may hold another canary from now on."""
        self._tracker.division_changing()

    def changed(self, canary: Canary | None) -> None:
        """Record that this canary decides on its side from now on, None: there is none."""
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
        self._tracker.division_changed(Division(divide, evaluator, is_touched, is_outdated))
