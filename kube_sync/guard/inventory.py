"""The names and labels of the clusters of the fleet, which placements are compared with. Pure.

What is not known takes nothing away: without labels, selectors are not evaluated; an open set (all
clusters but some) has no cluster only if all are excluded.

Owners of workloads can invent names, and a search for similar ones takes a millisecond per thousand
clusters: so only the first few unknown names get proposals, until the fleet changes.
"""

from __future__ import annotations

import heapq
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Final

from kube_sync.guard.placements import Clusters
from kube_sync.guard.selectors import matches

_NEAREST: Final = 3  # names proposed in place of one
_COMPARED: Final = 20  # names compared closely
_AROUND: Final = 1_000  # names compared roughly, of those before and after it in sorted order
_PROPOSED: Final = 50  # unknown names that get proposals
_LONGEST: Final = 253  # characters of a name (RFC 1123, subdomain)
_NAMED: Final = 3  # unknown names in a message
_REMEMBERED: Final = 256  # cached results

Labels = Mapping[str, str]
_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Inventory:
    """The names of all clusters, and their labels if these are known.

    `qualified`: the names as `namespace/name`, of clusters that are namespaced.
    """

    names: frozenset[str]
    labels: tuple[Labels, ...] | None = None
    qualified: frozenset[str] = frozenset()
    _known: dict[Clusters, str | None] = field(default_factory=dict, compare=False, repr=False)
    _descriptions: dict[frozenset[str], str] = field(
        default_factory=dict, compare=False, repr=False
    )
    _near: dict[str, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)

    def unknown(self, clusters: Clusters) -> frozenset[str]:
        """Return the names that no cluster has; exclusions of an open set do not count."""
        if clusters.open or clusters.selector is not None or clusters.names <= self.names:
            return _NONE
        return clusters.names - self.names - self.qualified

    def nowhere(self, clusters: Clusters) -> str | None:
        """Return why no cluster of the fleet is in a set that is not empty, None if one is."""
        if clusters.selector is None and self._has_some(clusters):
            return None  # the common case first
        if clusters not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[clusters] = self._why(clusters)
        return self._known[clusters]

    def _has_some(self, clusters: Clusters) -> bool:
        if not clusters.open:
            return not clusters.names.isdisjoint(self.names) or not self.unknown(clusters)
        return not self.names or not self.names <= clusters.names

    def _why(self, clusters: Clusters) -> str | None:
        if clusters.selector is not None:
            if self.labels is None or any(matches(clusters.selector, one) for one in self.labels):
                return None
            return f"none of {len(self.names)} clusters has the labels that are selected"
        if clusters.open:
            return f"each of {len(self.names)} clusters is excluded"
        return self.description(clusters.names)

    def description(self, unknown: frozenset[str]) -> str:
        """Describe the unknown names and the clusters with the most similar names."""
        if unknown not in self._descriptions:
            if len(self._descriptions) >= _REMEMBERED:
                self._descriptions.clear()
            self._descriptions[unknown] = self._text(sorted(unknown))
        return self._descriptions[unknown]

    def _text(self, names: Sequence[str]) -> str:
        found = [self._one(name[:_LONGEST]) for name in names[:_NAMED]]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"the fleet has no cluster {', '.join(found)}{more}"

    def _one(self, name: str) -> str:
        near = ", ".join(self.nearest(name))
        return f"{name!r} (nearest: {near})" if near else repr(name)

    def nearest(self, name: str) -> tuple[str, ...]:
        """Return the clusters whose names are most similar to this one, the nearest first."""
        if name not in self._near:
            if len(self._near) >= _PROPOSED:
                return ()
            self._near[name] = self._nearest(name)
        return self._near[name]

    def _nearest(self, name: str) -> tuple[str, ...]:
        match = SequenceMatcher(None, b=name, autojunk=False)

        def roughly(other: str) -> float:
            match.set_seq1(other)
            return match.quick_ratio()

        def closely(other: str) -> float:
            match.set_seq1(other)
            return match.ratio()

        names = sorted(self.names)
        at = bisect(names, name)
        around = names[max(0, at - _AROUND) : at + _AROUND]
        some = heapq.nlargest(_COMPARED, around, key=roughly)
        return tuple(heapq.nlargest(_NEAREST, some, key=closely))
