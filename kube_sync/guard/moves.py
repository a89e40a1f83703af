"""What a change of annotations means to where a workload runs.

A move takes a cluster away. A first placement is none, nor is one that only adds; other annotations
and other weights are no change of the placement at all. Where nothing can be concluded the change
counts as a move, away from `?`:
- a value that cannot be read gives way to another, or another to it;
- an annotation is removed: what it named is taken away;
- a second placement annotation comes beside a first one: until then it did not restrict anything,
  so all but what it names is taken away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kube_sync.guard.digests import digest
from kube_sync.guard.placements import EVERYWHERE, NOWHERE, UNKNOWN, Clusters, Placements

_Read = Mapping[str, Clusters | None]
_UNKNOWN = frozenset([UNKNOWN])


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one object's placement; `before` and `after` are digests of what they mean."""

    namespace: str
    before: str
    after: str
    left: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()
    empties: bool = False
    evict: bool = False  # the policy says that it may be emptied
    places: tuple[Clusters, ...] = ()  # what changes, as it is wanted; what is empty is not here
    idle: bool = False  # no replicas are wanted: it is no part of a mass

    @property
    def is_move(self) -> bool:
        """Tell whether a cluster is taken away."""
        return bool(self.left)

    @property
    def is_forbidden(self) -> bool:
        """Tell whether it would empty the workload although the policy did not say so."""
        return self.empties and not self.evict


def compare(
    placements: Placements,
    namespace: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    *,
    evict: bool = False,
) -> Change | None:
    """Return what happens to the placement when the annotations `before` become `after`.

    Both are all annotations of the object; None: the placement stays as it is.
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
    # Without its first placement a workload runs wherever it did: that too is taken away.
    empties = any(new.get(key, EVERYWHERE) == NOWHERE != old.get(key) for key in changed)
    wanted = tuple([c for key in changed if (c := _placed(key, old, new)) is not None])
    left_, joined_ = frozenset(left), frozenset(joined)
    return Change(namespace, was, will_be, left_, joined_, empties, evict, wanted)


def _left(key: str, old: _Read, new: _Read) -> frozenset[str]:
    if not old and new[key] != NOWHERE:
        return frozenset()  # a first placement
    return _without(old.get(key, EVERYWHERE), new.get(key, NOWHERE))


def _joined(key: str, old: _Read, new: _Read) -> frozenset[str]:
    return _without(new.get(key, NOWHERE), old.get(key, EVERYWHERE if old else NOWHERE))


def _placed(key: str, old: _Read, new: _Read) -> Clusters | None:
    """Return where a placement is wanted that is another one, None where that is empty."""
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
    """Digest what the annotations mean, so that A stays A whatever its weights are."""
    return digest(
        [
            (key, annotations[key] if clusters is None else (clusters.open, sorted(clusters.names)))
            for key, clusters in sorted(read.items())
        ]
    )
