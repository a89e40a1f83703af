"""Copies of a hub's policies: what a spoke is to have, what it has, and what it says of it.

Keeps true: equal copies have equal digests, in every process. The digest is an annotation of the
copy, so that whatever is read of a spoke's object tells which copy it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from kube_sync.objects import GroupVersionResource, ObjectKey

MANAGER: Final = "kube-sync-policy-sync"  # of fields, on the hub and, by us directly, on spokes

# Of a spoke's object, beside what the topology there reads (`topology/synced.py`).
MANAGED: Final = "kube-sync.io/policy-synced"  # label: "true"; by it copies are found again
GATEWAYS: Final = "kube-sync.io/gateways"  # annotation: the hub's Gateways that it is there for
DIGEST: Final = "kube-sync.io/digest"  # annotation: which copy it is

# Of the hub's policy: a JSON list of its copies (RFC 0007), and the extra status fields by cluster.
PLACED: Final = "kuadrant.io/policies-synced"
STATUS: Final = "kube-sync.io/synced-status"


class PolicyId(NamedTuple):
    """A policy on the hub; namespace is "" where the kind has none."""

    gvr: GroupVersionResource
    namespace: str
    name: str


class CopyKey(NamedTuple):
    """A policy's copy on one cluster."""

    policy: PolicyId
    cluster: str

    @property
    def origin(self) -> tuple[str, str, str, str]:
        """What it is a copy of, whatever the version that it was read in."""
        gvr, namespace, name = self.policy
        return gvr.group, gvr.resource, namespace, name


class FeedbackField(NamedTuple):
    """What is to be read of a spoke's object: one scalar."""

    name: str
    path: str  # a JSONPath without braces, as `.status.observedGeneration`


@dataclass(frozen=True, slots=True)
class Copy:
    """What one cluster is to have of a policy."""

    key: CopyKey
    kind: str
    body: Mapping[str, Any]  # the object as the spoke is to have it
    feedback: tuple[FeedbackField, ...]
    digest: str  # of body and feedback


class Report(NamedTuple):
    """What one entry of a copy's `status.ancestors` says of one condition."""

    gateway: str  # the name of its ancestor; "" where that is not known, or no Gateway
    condition: str
    status: str
    reason: str
    message: str
    observed: int | None  # generation


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a spoke last said of its copy, all read at one moment."""

    applied: bool | None  # None: not known of the copy as it is now
    values: Mapping[str, str | int | bool]  # by the name of the field
    trouble: str = ""  # why it could not be applied or read
    reports: tuple[Report, ...] = ()  # of the entries of its ancestors


@dataclass(frozen=True, slots=True)
class Placed:
    """A copy as it was found where it is placed."""

    key: CopyKey
    digest: str
    feedback: Feedback | None  # None: nothing was said yet
    leaving: float | None  # unix time from which it may be removed; None: it stays
    gateways: frozenset[ObjectKey] = frozenset()  # those it is there for; empty: not known


# Something of that policy's copies has changed: what lies where, or what a cluster says of it.
News = Callable[[PolicyId], None]


class Placer(Protocol):
    """Copies of the hub's policies as clusters have them; every step may be done twice."""

    @property
    def ready(self) -> bool:
        """Whether everything was listed, so that what is not placed is not there."""
        ...

    def policies(self) -> Iterable[PolicyId]:
        """Return every policy that there are copies of, also of one that the hub has no more."""
        ...

    def placed(self, policy: PolicyId) -> Mapping[str, Placed]:
        """Return the copies of a policy by cluster, without those that are on their way out."""
        ...

    async def apply(self, copy: Copy) -> None:
        """Make a copy as wanted, and let it stay; does nothing where it is so.

        Raises SyncError: Conflict when what has its name is somebody else's, Retriable while an
        earlier one is still on its way out.
        """
        ...

    async def leave(self, key: CopyKey, at: float) -> None:
        """Mark a copy: it may be removed from `at` on, in Unix seconds. Raises SyncError."""
        ...

    async def remove(self, key: CopyKey) -> None:
        """Remove a copy; one that is gone is fine. Raises SyncError."""
        ...
