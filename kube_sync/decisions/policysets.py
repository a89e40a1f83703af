"""Which set of policies decides on which object: what is in force, where nobody divides them.

Who decides knows this alone. What stands beside what is in force, and for which objects, is known
to who divides them (`canary.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from kube_sync.decisions.classes import Member
from kube_sync.decisions.evaluator import Outcome
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.reads import Reads


class PolicySetEvaluator(Protocol):
    """The decisions of one set of policies, or of several on the objects of each."""

    @property
    def room(self) -> int:
        """How many decisions fit into the next query."""
        ...

    async def evaluate(
        self, collection: str, keys: Iterable[ObjectKey]
    ) -> dict[ObjectKey, Outcome]:
        """Decide all of `keys`; those that OPA does not hold are left out. Raises SyncError."""
        ...


class PolicySets(Protocol):
    """Which set decides on which object."""

    @property
    def reads(self) -> Reads | None:
        """What any of them reads, None before that is known."""
        ...

    def policy(self, key: ObjectKey, /) -> str:
        """Return the digest of the set that decides on an object."""
        ...

    def member(self, member: Member, key: ObjectKey, /) -> Member:
        """Return the class of an object, apart from those that another set decides on."""
        ...


@dataclass(frozen=True, slots=True)
class SinglePolicySet:
    """The one set that decides on every object."""

    digest: str = ""
    reads: Reads | None = None

    def policy(self, _key: ObjectKey, /) -> str:
        """Return its digest."""
        return self.digest

    def member(self, member: Member, _key: ObjectKey, /) -> Member:
        """Return the class as it is."""
        return member


@dataclass(frozen=True, slots=True)
class Division:
    """How objects are divided among sets of policies from now on."""

    divide: Callable[[SinglePolicySet], PolicySets] | None  # None: what is in force decides on all
    evaluator: PolicySetEvaluator
    is_touched: Callable[[ObjectKey], bool]  # which objects have to be asked about anew
    is_outdated: Callable[[bytes], bool]  # of which classes what was decided is of the past
