"""The values of policy sync: the desired copy of a policy, the placed one, and its feedback.

Invariant: equal copies have equal digests, in every process. The digest is an annotation of the
copy, so that every read of a spoke's object identifies the copy that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from kube_sync.objects import GroupVersionResource, ObjectKey

MANAGER: Final = "kube-sync-policy-sync"  # field manager, on the hub and, directly, on spokes

# Of a spoke's object, beside what the topology there reads (`topology/synced_policies.py`).
MANAGED: Final = "kube-sync.io/policy-synced"  # label: "true"; selects the copies
GATEWAYS: Final = "kube-sync.io/gateways"  # annotation: the hub's Gateways that it is there for
DIGEST: Final = "kube-sync.io/digest"  # annotation: the digest of the copy

# Of the hub's policy: a JSON list of its copies (RFC 0007), and the extra status fields by cluster.
PLACED: Final = "kuadrant.io/policies-synced"
STATUS: Final = "kube-sync.io/synced-status"


class PolicyId(NamedTuple):
    """A policy on the hub; namespace is "" for a cluster-scoped kind."""

    gvr: GroupVersionResource
    namespace: str
    name: str


class CopyKey(NamedTuple):
    """A policy's copy on one cluster."""

    policy: PolicyId
    cluster: str

    @property
    def origin(self) -> tuple[str, str, str, str]:
        """The policy and cluster of the copy, without the version that it was read in."""
        gvr, namespace, name = self.policy
        return gvr.group, gvr.resource, namespace, name


class FeedbackField(NamedTuple):
    """One scalar to read of a spoke's object."""

    name: str
    path: str  # a JSONPath without braces, as `.status.observedGeneration`


@dataclass(frozen=True, slots=True)
class Copy:
    """The desired copy of a policy on one cluster."""

    key: CopyKey
    kind: str
    body: Mapping[str, Any]  # the object as the spoke is to have it
    feedback: tuple[FeedbackField, ...]
    digest: str  # of body and feedback


class Report(NamedTuple):
    """One condition in one entry of a copy's `status.ancestors`."""

    gateway: str  # the name of its ancestor; "" if unknown, or no Gateway
    condition: str
    status: str
    reason: str
    message: str
    observed: int | None  # generation


@dataclass(frozen=True, slots=True)
class Feedback:
    """The last feedback of a spoke on its copy, all read at one moment."""

    applied: bool | None  # None: unknown for the current copy
    values: Mapping[str, str | int | bool]  # by the name of the field
    problem: str = ""  # why it could not be applied or read
    reports: tuple[Report, ...] = ()  # of the entries of its ancestors


@dataclass(frozen=True, slots=True)
class Placed:
    """A copy as it was found on its cluster."""

    key: CopyKey
    digest: str
    feedback: Feedback | None  # None: no feedback yet
    remove_after: float | None  # Unix time from which it may be removed; None: it stays
    gateways: frozenset[ObjectKey] = frozenset()  # those it is there for; empty: unknown


# Callback for a change of a policy's copies: their places, or the feedback of a cluster.
OnChange = Callable[[PolicyId], None]


class Placer(Protocol):
    """Lists, writes and removes the copies of policies on clusters; every step is idempotent."""

    @property
    def ready(self) -> bool:
        """Whether everything was listed, so that a copy that is not found does not exist."""

    def policies(self) -> Iterable[PolicyId]:
        """Return every policy with copies, also those that the hub no longer has."""

    def placed(self, policy: PolicyId) -> Mapping[str, Placed]:
        """Return the copies of a policy by cluster, without those that are being deleted."""

    async def apply(self, copy: Copy) -> None:
        """Create or update a copy, and clear its removal mark; does nothing if it is right.

        Raises SyncError: Conflict when another owner's object has its name, Retriable while an
        earlier copy is being deleted.
        """

    async def mark_for_removal(self, key: CopyKey, at: float) -> None:
        """Mark a copy: it may be removed from `at` on, in Unix seconds. Raises SyncError."""

    async def remove(self, key: CopyKey) -> None:
        """Remove a copy; one that is gone is no error. Raises SyncError."""
