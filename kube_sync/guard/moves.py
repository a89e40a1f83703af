"""Comparison of placement annotations: which clusters a change takes away from a workload.

A change that takes a cluster away is a move. A first placement is none, nor is one that only adds
clusters; other annotations and other weights do not change the placement. Where the clusters are
not known the change counts as a move away from `?`:
- an invalid value is replaced by another, or another by it;
- an annotation is removed: what it named is taken away;
- a second placement annotation is added to a first one: until then it did not restrict anything, so
  all but what it names is taken away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kube_sync.guard.digests import digest
from kube_sync.guard.placements import EVERYWHERE, NOWHERE, UNKNOWN, Clusters, Placements

_Read = Mapping[str, Clusters | None]
_UNKNOWN = frozenset([UNKNOWN])
_REMEMBERED = 256  # cached changes


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one object's placement; `before` and `after` are digests of the placements."""

    namespace: str
    before: str
    after: str
    left: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()
    empties: bool = False
    evict: bool = False  # the policy allows it to be emptied
    places: tuple[Clusters, ...] = ()  # the wanted placements that differ and are not empty
    idle: bool = False  # zero replicas are wanted: it does not count towards a mass
    toward: str = ""  # of an addition that a move begins with: the digest that it leads to

    @property
    def is_move(self) -> bool:
        """Return whether a cluster is taken away."""
        return bool(self.left)

    @property
    def is_forbidden(self) -> bool:
        """Return whether it empties the workload without the policy's permission."""
        return self.empties and not self.evict


def compare(
    placements: Placements,
    namespace: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    *,
    evict: bool = False,
) -> Change | None:
    """Return the change of the placement when the annotations `before` become `after`.

    Both are all annotations of the object. None: the placement does not change.
    """
    old, new = placements.read(before), placements.read(after)
    was, will_be = _digest(old, before), _digest(new, after)
    if was == will_be:
        return None
    left, joined = set[str](), set[str]()
    changed = [key for key in {**old, **new} if before.get(key) != after.get(key)]
    for key in changed:
        left |= _left(key, old, new)
        joined |= _joined(key, old, new)
    # Without a first placement a workload may run anywhere, so an empty one takes that away.
    empties = any(new.get(key, EVERYWHERE) == NOWHERE != old.get(key) for key in changed)
    wanted = tuple([c for key in changed if (c := _placed(key, old, new)) is not None])
    left_, joined_ = frozenset(left), frozenset(joined)
    return Change(namespace, was, will_be, left_, joined_, empties, evict, wanted)


class Comparer:
    """Compares as `compare` does, and caches the results.

    In a mass, thousands of objects change from a few placements to a few others.
    """

    def __init__(self, placements: Placements) -> None:
        self._placements = placements
        self._known: dict[tuple[object, ...], Change | None] = {}

    def compare(
        self,
        namespace: str,
        before: Mapping[str, str],
        after: Mapping[str, str],
        *,
        evict: bool = False,
        idle: bool = False,
    ) -> Change | None:
        """Return the change of the placement when the annotations `before` become `after`.

        `idle`: zero replicas are wanted.
        """
        was, will_be = self._placements.texts(before), self._placements.texts(after)
        if was == will_be:
            return None
        pair = (was, will_be, evict)
        if pair not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[pair] = compare(self._placements, namespace, before, after, evict=evict)
        change = self._known[pair]
        return change and replace(change, namespace=namespace, idle=idle)


def placement_digest(placements: Placements, annotations: Mapping[str, str]) -> str:
    """Return the digest of an object's placement, as its history has it."""
    return _digest(placements.read(annotations), annotations)


def _left(key: str, old: _Read, new: _Read) -> frozenset[str]:
    if not old and new[key] != NOWHERE:
        return frozenset()  # a first placement
    return _without(old.get(key, EVERYWHERE), new.get(key, NOWHERE))


def _joined(key: str, old: _Read, new: _Read) -> frozenset[str]:
    return _without(new.get(key, NOWHERE), old.get(key, EVERYWHERE if old else NOWHERE))


def _placed(key: str, old: _Read, new: _Read) -> Clusters | None:
    """Return the wanted placement if it differs and is not empty, or else None."""
    wanted = new.get(key)
    if wanted is None or not (wanted.names or wanted.open) or wanted == old.get(key):
        return None
    return wanted


def _without(some: Clusters | None, other: Clusters | None) -> frozenset[str]:
    if some == NOWHERE:
        return frozenset()
    if some is None or other is None:
        return _UNKNOWN
    return some.without(other)


def _digest(read: _Read, annotations: Mapping[str, str]) -> str:
    """Return a digest of the clusters, which does not depend on weights."""
    return digest(
        [
            (key, annotations[key] if clusters is None else (clusters.open, sorted(clusters.names)))
            for key, clusters in sorted(read.items())
        ]
    )
