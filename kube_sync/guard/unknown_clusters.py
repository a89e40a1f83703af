"""Holds on placements that name no cluster of the fleet.

Such a placement empties a workload like one that names no cluster at all. It is held unless the
policy sets `evict: true`. Invariants: a held placement stays held while the fleet is not current,
so that a flapping fleet releases nothing; a name counts as unknown only after a grace period, since
a decision may name a new cluster before the watch delivers it here; after a start nothing is
placed before the clusters are listed, so that a restart releases nothing. Placements that an object
already has are not checked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kube_sync.guard.assessment import NOT_KNOWN
from kube_sync.guard.inventory import Inventory
from kube_sync.guard.moves import Change
from kube_sync.guard.verdicts import Withheld

K = TypeVar("K", bound=Hashable)

GRACE_SECONDS = 2.0
_RELEASE = "the policy places it on a cluster of the fleet, or says `evict: true`"


@dataclass(frozen=True, slots=True)
class _Found:
    """A change that had no cluster when it was last compared."""

    after: str
    since: float
    reason: str


class Nowhere(Generic[K]):
    """Compares changes with the clusters of the fleet."""

    def __init__(self) -> None:
        self._unlisted = True
        self._inventory: Inventory | None = None
        self._found: dict[K, _Found] = {}

    def compare(
        self,
        inventory: Inventory | None,
        wanted: Iterable[tuple[K, Change]],
        now: float,
        *,
        unlisted: bool = False,
    ) -> frozenset[K]:
        """Set the inventory and return which of all changes have no cluster in it.

        None: the fleet is stale or not known. `unlisted`: it will be known, so `held` holds all.
        """
        self._inventory, self._unlisted = inventory, unlisted
        before, self._found = self._found, {}
        for key, change in wanted:
            if key in before:
                self._found[key] = before[key]
            # Fast path: most have a cluster, and thousands are compared.
            elif inventory is None or change.evict or reason_of(inventory, change) is None:
                continue
            self._check(key, change, now)
        return frozenset(self._found)

    def held(self, key: K, change: Change, now: float) -> Withheld | None:
        """Return the hold of a change that has no cluster or cannot be compared yet, or None."""
        if self._unlisted and change.places and not change.evict:
            return NOT_KNOWN
        if (found := self._check(key, change, now)) is None:
            return None
        reason = f"it would run on no cluster: {found.reason}"
        if now < (until := found.since + GRACE_SECONDS):
            return Withheld("unseen", reason, "a cluster of that name is seen", until)
        return Withheld("nowhere", reason, _RELEASE)

    def warning(self, change: Change) -> str:
        """Describe the clusters of a placement that the fleet does not have, "" if it has all."""
        unknown = None if self._inventory is None else unknown_in(self._inventory, change)
        return self._inventory.description(unknown) if self._inventory and unknown else ""

    def forget(self, key: K) -> None:
        """Forget a deleted object."""
        self._found.pop(key, None)

    def _check(self, key: K, change: Change, now: float) -> _Found | None:
        known = self._found.get(key)
        if known is not None and (change.evict or known.after != change.after):
            known = None
            del self._found[key]
        if change.evict or self._inventory is None:
            return known
        if (reason := reason_of(self._inventory, change)) is None:
            if known is not None:
                del self._found[key]
            return None
        since = now if known is None else known.since
        found = self._found[key] = _Found(change.after, since, reason)
        return found


def reason_of(inventory: Inventory | None, change: Change) -> str | None:
    """Return why a change places a workload on no cluster of the fleet, None if it does not."""
    if inventory is not None:
        for clusters in change.places:
            if (reason := inventory.nowhere(clusters)) is not None:
                return reason
    return None


def unknown_in(inventory: Inventory, change: Change) -> frozenset[str]:
    """Return the clusters of a wanted placement that the fleet does not have."""
    found: frozenset[str] = frozenset()
    for clusters in change.places:
        if unknown := inventory.unknown(clusters):
            found |= unknown
    return found
