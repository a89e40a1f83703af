"""Which set of policies decides on which object: the one in force, unless they are divided.

The evaluation depends only on this interface. Which other sets there are, and for which objects, is
known to the code that divides them (`canary.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from kube_sync.decisions.classes import Member
from kube_sync.decisions.evaluator import Outcome
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Reads


class PolicySetEvaluator(Protocol):
    """Evaluates one set of policies, or several on the objects of each."""

    @property
    def batch_size(self) -> int:
        """The number of decisions for the next query."""

    async def evaluate(
        self, collection: str, keys: Iterable[ObjectKey]
    ) -> dict[ObjectKey, Outcome]:
        """Evaluate all of `keys`; those that OPA does not hold are left out. Raises SyncError."""


class PolicySets(Protocol):
    """Maps objects to the sets of policies that decide on them."""

    @property
    def reads(self) -> Reads | None:
        """What any of the sets reads, None before that is known."""

    def policy(self, key: ObjectKey, /) -> str:
        """Return the digest of the set that decides on an object."""

    def member(self, member: Member, key: ObjectKey, /) -> Member:
        """Return the class of an object, distinct for each set."""


@dataclass(frozen=True, slots=True)
class SinglePolicySet:
    """The one set that decides on every object."""

    digest: str = ""
    reads: Reads | None = None

    def policy(self, _key: ObjectKey, /) -> str:
        """Return its digest."""
        return self.digest

    def member(self, member: Member, _key: ObjectKey, /) -> Member:
        """Return the class unchanged."""
        return member


@dataclass(frozen=True, slots=True)
class Division:
    """How objects are divided among sets of policies from now on."""

    divide: Callable[[SinglePolicySet], PolicySets] | None  # None: the set in force decides on all
    evaluator: PolicySetEvaluator
    is_touched: Callable[[ObjectKey], bool]  # objects to evaluate again
    is_outdated: Callable[[bytes], bool]  # classes whose decisions are out of date
