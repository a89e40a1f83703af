"""How many clusters there are, and how many there were: what a fleet that shrinks is told by.

A metadata-only watch of the collection that is called `clusters` in OPA. The most there were is not
written anywhere: after a restart it is what the placements in force name that policies gave (owners
can name clusters that never were), and what is seen since.
It is lowered when an operator approves moves on fewer.

A cluster that comes back is seen here before the decisions on it are: those on the smaller fleet
are still what is wanted. So the fleet counts as what it was at its smallest in the last seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from kube_sync.kube.collection import Event, Item
from kube_sync.objects import ObjectKey
from kube_sync.safety import Fleet, Stale

STEADY_SECONDS = 5.0


class Clusters:
    """The Store of the clusters' keys."""

    def __init__(
        self,
        counts: Callable[[ObjectKey], bool],
        changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """Hold those that `counts` takes for replicated; tell `changed` when there are others."""
        self.listed = False
        self._clock = clock
        self._most = 0
        # How many there were until when, less than before: a fleet that only grows is no smaller.
        self._were: deque[tuple[float, int]] = deque()
        self._counts = counts
        self._changed = changed
        self._keys: set[ObjectKey] = set()
        self._listing: set[ObjectKey] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def lowest(self, since: float) -> int:
        """Return the fewest that there were at any time after `since`."""
        while self._were and self._were[0][0] <= since:
            self._were.popleft()
        return min([len(self), *(count for _, count in self._were)])

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        self._listing.update(item.key for item in items if self._counts(item.key))

    def finish(self, *, known: bool) -> None:  # noqa: ARG002 - an unknown kind has no clusters
        """Hold exactly the objects of the LIST."""
        before = len(self)
        self._keys, self._listing = self._listing, set()
        self._note(before)
        self.listed = True
        self._changed()

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._listing = set()

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        if event.item is None or not self._counts(event.item.key):
            return
        before = len(self)
        if event.type == "DELETED":
            self._keys.discard(event.item.key)
        else:
            self._keys.add(event.item.key)
        if len(self) != before:
            self._note(before)
            self._changed()

    def _note(self, before: int) -> None:
        if before < self._most:
            self._were.append((self._clock(), before))
        self._most = max(self._most, len(self))


class FleetFacts:
    """What the guard is told of the fleet."""

    def __init__(
        self,
        clusters: Clusters | None,
        named: Callable[[], int],
        seen_at: Callable[[], float | None],
        stale: Callable[[float], Stale | None] = lambda _now: None,
    ) -> None:
        """Without `clusters` none are counted, and none are missed.

        `named`: how many clusters the placements in force name; `seen_at`: when the decisions last
        gave a sign of life, in Unix seconds; `stale`: what they stand on that is not current now.
        """
        self._clusters = clusters
        self._named = named
        self._seen_at = seen_at
        self._stale = stale
        self._best = 0
        self._begun = False

    def begin(self) -> None:
        """Ask again what the placements in force name; what was seen is not forgotten."""
        self._begun = False

    def fleet(self, now: float) -> Fleet:
        """Return what is known."""
        return replace(self._fleet(now), stale=self._stale(now))

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
        return Fleet(age, count, self._best, epoch_matches=True)

    def accept(self, clusters: int) -> None:
        """Take so few clusters for all that there are, until there are more."""
        self._best = clusters
