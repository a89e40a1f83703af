"""Cache of the fleet's clusters, from a metadata-only watch, and the highest number of them.

Watches the collection that is called `clusters` in OPA. The highest number is not stored: after a
restart it is the number of clusters that the placements decided by policies name (owners can name
clusters that never existed), and then what is seen. An approval of moves on fewer lowers it.

A cluster that returns is seen here before the decisions on it arrive: until then, those for the
smaller fleet are wanted. So the fleet counts as its smallest size within the last seconds.
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
    """The clusters' names and labels; empty while their kind is not served."""

    def __init__(
        self,
        counts: Callable[[ObjectKey], bool],
        changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """Cache the clusters that `counts` accepts; call `changed` when the set differs."""
        super().__init__(
            lambda item: labels_of(item) if counts(item.key) else None,
            self._differs_now,
            when_unknown="empty",
        )
        self._clock = clock
        self._number = self._most = 0
        # Lower numbers, and until when each was true; none while the fleet only grows.
        self._were: deque[tuple[float, int]] = deque()
        self._changed = changed
        self._inventory: Inventory | None = None  # None: rebuilt on the next use

    @property
    def inventory(self) -> Inventory:
        """The clusters as placements name them, with their labels."""
        if self._inventory is None:
            self._inventory = inventory(self.objects)
        return self._inventory

    def lowest(self, since: float) -> int:
        """Return the lowest number of clusters at any time after `since`."""
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
    """Build the inventory from the clusters and their labels."""
    names = frozenset(key.name for key in clusters)
    qualified = frozenset(str(key) for key in clusters if key.namespace)
    return Inventory(names, tuple(clusters.values()), qualified)


def labels_of(item: Item) -> Labels:
    """Return the labels of a cluster, none if they cannot be decoded."""
    try:
        return object_meta(item.body).labels or {}
    except NO_JSON:  # the object exists all the same
        return {}


class FleetFacts:
    """Reports the state of the fleet to the guard."""

    def __init__(
        self,
        clusters: Clusters | None,
        named: Callable[[], int],
        seen_at: Callable[[], float | None],
        stale: Callable[[], Stale | None] = lambda: None,
        *,
        compares: bool = True,
    ) -> None:
        """Without `clusters` no number is compared.

        `compares`: placements use the names of these clusters, and are compared with them.

        `named`: the number of clusters that the current placements name; `seen_at`: the last sign
        of life of the decision stream, in Unix seconds; `stale`: which of its sources is stale now.
        """
        self._clusters = clusters
        self._named = named
        self._seen_at = seen_at
        self._stale = stale
        self._compares = compares
        self._best = 0
        self._begun = False

    def begin(self) -> None:
        """Read `named` again; the highest number seen is kept."""
        self._begun = False

    def fleet(self, now: float) -> Fleet:
        """Return the state of the fleet."""
        return replace(self._fleet(now), stale=self._stale())

    def _fleet(self, now: float) -> Fleet:
        seen_at = self._seen_at()
        age = None if seen_at is None else now - seen_at
        if self._clusters is None:
            return Fleet(age, 1, 1, epoch_matches=True)
        if not self._clusters.listed:
            return Fleet(None, 0, 0, epoch_matches=True, unlisted=self._compares)
        count = self._clusters.lowest(now - STEADY_SECONDS)
        if not self._begun:
            self._begun = True
            self._best = max(self._best, self._named())
        self._best = max(self._best, len(self._clusters))
        known = self._clusters.inventory if self._compares else None
        return Fleet(age, count, self._best, epoch_matches=True, inventory=known)

    def accept(self, clusters: int) -> None:
        """Take this number of clusters as complete, until there are more."""
        self._best = clusters
