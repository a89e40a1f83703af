"""Which clusters there are, and how many there were: what placements are compared with.

A metadata-only watch of the collection that is called `clusters` in OPA. The most there were is not
written anywhere: after a restart it is what the placements in force name that policies gave (owners
can name clusters that never were), and what is seen since.
It is lowered when an operator approves moves on fewer.

A cluster that comes back is seen here before the decisions on it are: those on the smaller fleet
are still what is wanted. So the fleet counts as what it was at its smallest in the last seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from kube_sync.errors import NO_JSON
from kube_sync.guard import Fleet, Inventory
from kube_sync.kube.cache import Cache
from kube_sync.kube.collection import Item
from kube_sync.kube.meta import object_meta
from kube_sync.objects import ObjectKey
from kube_sync.runtime.freshness import Stale

STEADY_SECONDS = 5.0

Labels = dict[str, str]


class Clusters(Cache[Labels]):
    """The clusters' names and labels; a kind that is unknown has no clusters."""

    def __init__(
        self,
        counts: Callable[[ObjectKey], bool],
        changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """Hold those that `counts` takes for replicated; call `changed` when there are others."""
        super().__init__(
            lambda item: labels_of(item) if counts(item.key) else None,
            self._differs_now,
            when_unknown="empty",
        )
        self._clock = clock
        self._number = self._most = 0
        # How many there were until when, less than before: a fleet that only grows is no smaller.
        self._were: deque[tuple[float, int]] = deque()
        self._changed = changed
        self._inventory: Inventory | None = None  # None: made anew when it is asked for

    @property
    def inventory(self) -> Inventory:
        """The clusters as placements name them, with their labels."""
        if self._inventory is None:
            self._inventory = inventory(self.objects)
        return self._inventory

    def lowest(self, since: float) -> int:
        """Return the fewest that there were at any time after `since`."""
        while self._were and self._were[0][0] <= since:
            self._were.popleft()
        return min([len(self), *(count for _, count in self._were)])

    def _differs_now(self, _changes: object) -> None:
        self._inventory = None
        before, self._number = self._number, len(self)
        if before < self._most and before != self._number:
            self._were.append((self._clock(), before))
        self._most = max(self._most, self._number)
        self._changed()


def inventory(clusters: Mapping[ObjectKey, Labels]) -> Inventory:
    """Return what placements are compared with, of clusters with their labels."""
    names = frozenset(key.name for key in clusters)
    qualified = frozenset(str(key) for key in clusters if key.namespace)
    return Inventory(names, tuple(clusters.values()), qualified)


def labels_of(item: Item) -> Labels:
    """Return the labels of a cluster, none where they cannot be read."""
    try:
        return object_meta(item.body).labels or {}
    except NO_JSON:  # of an object that is there all the same
        return {}


class FleetFacts:
    """What the guard is told of the fleet."""

    def __init__(
        self,
        clusters: Clusters | None,
        named: Callable[[], int],
        seen_at: Callable[[], float | None],
        stale: Callable[[], Stale | None] = lambda: None,
        *,
        compares: bool = True,
    ) -> None:
        """Without `clusters` none are counted, and none are missed.

        `compares`: placements name clusters as they are called here, and are compared with them.

        `named`: how many clusters the placements in force name; `seen_at`: when the decisions last
        gave a sign of life, in Unix seconds; `stale`: what they stand on that is not current now.
        """
        self._clusters = clusters
        self._named = named
        self._seen_at = seen_at
        self._stale = stale
        self._compares = compares
        self._best = 0
        self._begun = False

    def begin(self) -> None:
        """Ask again what the placements in force name; what was seen is not forgotten."""
        self._begun = False

    def fleet(self, now: float) -> Fleet:
        """Return what is known."""
        return replace(self._fleet(now), stale=self._stale())

    def _fleet(self, now: float) -> Fleet:
        seen_at = self._seen_at()
        age = None if seen_at is None else now - seen_at
        if self._clusters is None:
            return Fleet(age, 1, 1, epoch_matches=True)
        if not self._clusters.listed:
            return Fleet(None, 0, 0, epoch_matches=True)
        count = self._clusters.lowest(now - STEADY_SECONDS)
        if not self._begun:
            self._begun = True
            self._best = max(self._best, self._named())
        self._best = max(self._best, len(self._clusters))
        known = self._clusters.inventory if self._compares else None
        return Fleet(age, count, self._best, epoch_matches=True, inventory=known)

    def accept(self, clusters: int) -> None:
        """Take so few clusters for all that there are, until there are more."""
        self._best = clusters
