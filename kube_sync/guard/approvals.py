"""Approvals by an operator of mass moves, and of moves on a fleet that shrank.

The name of an approval is a digest of the set of moves that it was asked for: of each object its
placement before and after, and the time of the one before; on a shrunk fleet also the number of
clusters left. The set may be that of one namespace, and then approves nothing in others. So an
approval covers each of these moves once, and no other, not even the same move at another time.
Revoking it stops the moves that have not been written yet. The set that is asked for does not
change while only a few moves are added, or some go, so that an operator has time to answer; the few
count by themselves. When it does change, an approval of an earlier set still covers the moves of
that set.

After a restart the set is rebuilt from the moves that are left and from the objects whose history
names the approval. If the digest of the rebuilt set differs, the approval has no effect and another
one is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from kube_sync.guard.digests import digest
from kube_sync.guard.history import History

K = TypeVar("K", bound=Hashable)
# Digests of the placement before and after, and the time of the first (Unix seconds).
Step = tuple[str, str, int]

_MOVES, _FLEET = "moves-", "fleet-"
# Sets that were asked for lately and can still be approved: how many, and of how many moves.
_OFFERS, _OFFERED = 32, 100_000


class Approvals(Generic[K]):
    """Sets that are asked for, moves that are approved, and moves that earlier processes wrote."""

    def __init__(self) -> None:
        self._offers: dict[str, frozenset[tuple[K, Step]]] = {}  # newest last
        self._current: dict[Hashable, str] = {}  # name of the set asked for last, by its owner
        self._requested_now: set[str] = set()  # since the last `weigh`
        self._approved: dict[K, tuple[Step, str]] = {}
        self._moved: dict[str, dict[K, Step]] = {}
        self._on_fewer: set[K] = set()  # approved with the present, smaller number of clusters

    def of(self, key: K, step: Step) -> str | None:
        """Return the approval that covers this move, or None."""
        known = self._approved.get(key)
        return known[1] if known and known[0] == step else None

    def is_on_fewer(self, key: K) -> bool:
        """Return whether the move was approved on a fleet as small as it is now."""
        return key in self._on_fewer

    def recall(self, histories: Iterable[tuple[K, History]]) -> None:
        """Load the approved moves that earlier processes recorded in the histories of objects."""
        for key, history in histories:
            if len(history) > 1 and history[-1].approval:
                step = (history[-2].placement, history[-1].placement, history[-2].at)
                self._moved.setdefault(history[-1].approval, {})[key] = step

    def weigh(
        self,
        requested: Mapping[K, Step],
        given: Collection[str],
        clusters: int,
        parts: Sequence[Mapping[K, Step]] = (),
    ) -> list[K]:
        """Apply the approvals in `given` and return the moves that none of them covers.

        `clusters`: their present number; `parts`: subsets of `requested` that may have an approval.
        """
        self._current = {of: n for of, n in self._current.items() if n in self._requested_now}
        self._requested_now.clear()
        self._approved = {
            key: known
            for key, known in self._approved.items()
            if key in requested and requested[key] == known[0] and known[1] in given
        }
        self._moved = {name: steps for name, steps in self._moved.items() if name in given}
        self._on_fewer = set()
        for name in sorted(given):
            covered = self._covered(name, (requested, *parts), clusters)
            if name.startswith(_FLEET):
                self._on_fewer.update(covered)
            for key in covered:
                self._approved.setdefault(key, (requested[key], name))
        return [key for key in requested if key not in self._approved]

    def accepts(self, requested: Collection[K], few: float) -> bool:
        """Return whether all but a few of these moves were approved on a fleet of this size."""
        others = sum(key not in self._on_fewer for key in requested)
        return bool(requested) and _are_few(others, len(requested), few)

    def offer(
        self,
        waiting: Collection[K],
        requested: Mapping[K, Step],
        few: float,
        of: Hashable = None,
    ) -> str:
        """Return the name of the approval that `waiting` need; each `of` has one current set."""
        name = self._current.get(of, "")
        known = self._offers.get(name, frozenset())
        new = sum((key, requested[key]) not in known for key in waiting)
        if not known or not _are_few(new, len(waiting), few):
            steps = {key: requested[key] for key in waiting}
            name = _name(steps)
            self._offers.pop(name, None)
            self._offers[name] = frozenset(steps.items())
            self._current[of] = name
            self._prune()
        self._requested_now.add(name)
        return name

    def _prune(self) -> None:
        number = sum(map(len, self._offers.values()))
        current = set(self._current.values())
        for name in [name for name in self._offers if name not in current]:
            if len(self._offers) <= _OFFERS and number <= _OFFERED:
                return
            number -= len(self._offers.pop(name))

    def _covered(self, name: str, sets: Sequence[Mapping[K, Step]], clusters: int) -> list[K]:
        """Return the moves that an approval covers, in the set of all moves or in its subsets."""
        if not name.startswith((_MOVES, _FLEET)):
            return []
        for offered, known in self._offers.items():
            if _names(name, offered, clusters):
                return [key for key, step in sets[0].items() if (key, step) in known]
        moved = self._moved.get(name, {})
        for one in sets:
            if _names(name, _name({**moved, **one}), clusters):
                return list(one)
        return []


def on_fewer(moves: str, clusters: int) -> str:
    """Return the name of the approval of these moves on a fleet of `clusters` clusters."""
    return _FLEET + digest([clusters, moves])


def _names(name: str, moves: str, clusters: int) -> bool:
    return name == (on_fewer(moves, clusters) if name.startswith(_FLEET) else moves)


def _are_few(new: int, of: int, few: float) -> bool:
    """Return whether the new moves are few: no mass by themselves, and at most half of all."""
    return new <= few and 2 * new <= of


def _name(steps: Mapping[K, Step]) -> str:
    return _MOVES + digest(sorted((str(key), *step) for key, step in steps.items()))
