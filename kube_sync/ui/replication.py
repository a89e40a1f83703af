"""The state of the replicator for the page.

These protocols are the parts of the Replicator that the page reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from kube_sync.decisions.canary import Canary
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import Stale, stale_records
from kube_sync.opa.analysis.result import Reads


class Collection(Protocol):
    """One replicated collection."""

    name: str
    known: bool

    @property
    def loaded(self) -> bool:
        """Whether OPA holds the first LIST."""

    @property
    def object_count(self) -> int:
        """How many objects OPA holds."""

    @property
    def pending(self) -> int:
        """The number of changes that OPA does not hold yet."""

    @property
    def pending_seconds(self) -> float:
        """The age of the oldest of them."""


class Policies(Protocol):
    """The policies in force, the PolicyReconciler."""

    @property
    def in_force(self) -> Mapping[str, str]:
        """Sources by id."""

    @property
    def rejected(self) -> Mapping[str, str]:
        """Why a policy is not in force in its current version, by its name."""

    @property
    def warned(self) -> Mapping[str, Sequence[str]]:
        """The warnings on policies in force, each a line, by the policy's name."""

    @property
    def reads(self) -> Reads | None:
        """What the decision reads."""

    @property
    def digest(self) -> str:
        """The digest of the policies in force, as in decisions."""

    @property
    def canary(self) -> Canary | None:
        """The canary that decides on the objects of its side, None if there is none."""


class Replication(Protocol):
    """The replicator."""

    @property
    def collections(self) -> Sequence[Collection]:
        """The replicated collections."""

    @property
    def policies(self) -> Policies:
        """The policies that decide."""


class Readiness(Protocol):
    """The readiness of the process."""

    @property
    def reasons(self) -> dict[str, str]:
        """The reasons of conditions that are not met."""

    @property
    def conditions(self) -> dict[str, str]:
        """Every condition, for people."""


class Line(msgspec.Struct, frozen=True):
    """One collection, for people."""

    name: str
    objects: int
    pending: int
    lag_seconds: float
    known: bool
    loaded: bool


class Rejected(msgspec.Struct, frozen=True):
    """A policy that is not in force in its current version."""

    name: str
    error: str


class Warned(msgspec.Struct, frozen=True):
    """A policy in force with warnings."""

    name: str
    warnings: tuple[str, ...]


class InForce(msgspec.Struct, frozen=True):
    """The policies."""

    digest: str
    modules: tuple[str, ...]
    rejected: tuple[Rejected, ...]
    warned: tuple[Warned, ...] = ()


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of replication: failed conditions, counts, delays, and policies in force."""

    v: int = 1
    instance: str
    waiting: Mapping[str, str]
    conditions: Mapping[str, str]
    held: tuple[str, ...]
    notes: tuple[str, ...]
    stale: tuple[Stale, ...]
    decisions: int
    collections: tuple[Line, ...]
    policies: InForce


def health(replication: Replication, hub: DecisionHub, readiness: Readiness) -> Health:
    """Return the current state."""
    policies = replication.policies
    rejected = sorted(policies.rejected.items())
    return Health(
        instance=hub.instance,
        waiting=readiness.reasons,
        conditions=readiness.conditions,
        held=hub.held,
        notes=hub.notes,
        stale=stale_records(hub.freshness, hub.freshness.sources),
        decisions=hub.count,
        collections=tuple(map(_line, replication.collections)),
        policies=InForce(
            policies.digest,
            tuple(sorted(policies.in_force)),
            tuple(Rejected(name, error) for name, error in rejected),
            tuple(Warned(name, tuple(lines)) for name, lines in sorted(policies.warned.items())),
        ),
    )


def _line(found: Collection) -> Line:
    lag = round(found.pending_seconds, 3)
    return Line(found.name, found.object_count, found.pending, lag, found.known, found.loaded)
