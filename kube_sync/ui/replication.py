"""What the replicator knows of itself, as the page asks for it.

It is the Replicator that the wiring hands over; here is only what of it is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from kube_sync.decisions.canary import Canary
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import Stale, stale_records
from kube_sync.opa.analysis.reads import Reads


class Collection(Protocol):
    """One collection."""

    name: str
    known: bool

    @property
    def loaded(self) -> bool:
        """Whether OPA holds what was listed first."""
        ...

    @property
    def held(self) -> int:
        """How many objects OPA holds."""
        ...

    @property
    def pending(self) -> int:
        """How many changes OPA does not hold yet."""
        ...

    @property
    def pending_seconds(self) -> float:
        """For how long the oldest of them waits."""
        ...


class Policies(Protocol):
    """The policies in force, the PolicyReconciler."""

    @property
    def in_force(self) -> Mapping[str, str]:
        """Sources by id."""
        ...

    @property
    def rejected(self) -> Mapping[str, str]:
        """Why a policy is not in force as it is, by its name."""
        ...

    @property
    def reads(self) -> Reads | None:
        """What the decision reads."""
        ...

    @property
    def digest(self) -> str:
        """The digest of what is in force, as in decisions."""
        ...

    @property
    def canary(self) -> Canary | None:
        """What decides on the objects of its side, None: what is in force does."""
        ...


class Replication(Protocol):
    """All of it."""

    @property
    def collections(self) -> Sequence[Collection]:
        """What is replicated."""
        ...

    @property
    def policies(self) -> Policies:
        """By what is decided."""
        ...


class Readiness(Protocol):
    """Why the process is not ready."""

    @property
    def reasons(self) -> dict[str, str]:
        """What it waits for, by condition."""
        ...

    @property
    def conditions(self) -> dict[str, str]:
        """Every condition, for people."""
        ...


class Line(msgspec.Struct, frozen=True):
    """One collection, for people."""

    name: str
    objects: int
    pending: int
    lag_seconds: float
    known: bool
    loaded: bool


class Rejected(msgspec.Struct, frozen=True):
    """A policy that is not in force as it is."""

    name: str
    error: str


class InForce(msgspec.Struct, frozen=True):
    """The policies."""

    digest: str
    modules: tuple[str, ...]
    rejected: tuple[Rejected, ...]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How replication fares: what is not ready, what is held, what is late, what is in force."""

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
    """Return how it is now."""
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
        ),
    )


def _line(found: Collection) -> Line:
    lag = round(found.pending_seconds, 3)
    return Line(found.name, found.held, found.pending, lag, found.known, found.loaded)
