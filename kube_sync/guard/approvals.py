"""Which moves of a mass, or on a fleet that shrank, an operator let through.

An approval names the set of moves that it was asked for: a digest of every object with its
placement before and after, and since when it has had the one before; one for a fleet that shrank
names how many clusters are left as well. A set may be that of one namespace: then it opens nothing
for the others. So it lets each of these moves through once, and no other,
the same move at another time least of all; what has not gone when it is taken back stays. The set
that is asked for stays the same while only a few more moves come, or some go, so that there is time
to read and to answer; those few count by themselves. Where it changes nevertheless, an answer to
what was asked a moment ago still lets the moves through that it named.

After a restart the set is put together again from what is left of it and from the objects whose
history says that this approval moved them; where that does not give the same set any more, the
approval says nothing and another is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from kube_sync.guard.digests import digest
from kube_sync.guard.history import History

K = TypeVar("K", bound=Hashable)
# Digests of the placement before and after, and since when the first was there (Unix seconds).
Step = tuple[str, str, int]

_MOVES, _FLEET = "moves-", "fleet-"
# What was asked lately and may be answered yet: so many sets, and of so many moves in all.
_OFFERS, _OFFERED = 32, 100_000


class Approvals(Generic[K]):
    """What is asked for, what was let through, and what that has moved in earlier processes."""

    def __init__(self) -> None:
        self._offers: dict[str, frozenset[tuple[K, Step]]] = {}  # the newest is the last
        self._standing: dict[Hashable, str] = {}  # what was asked for last, by whom it is of
        self._asked_now: set[str] = set()  # since all were weighed last
        self._approved: dict[K, tuple[Step, str]] = {}
        self._moved: dict[str, dict[K, Step]] = {}
        self._on_fewer: set[K] = set()  # approved on as few clusters as there are now

    def of(self, key: K, step: Step) -> str | None:
        """Return the approval that lets this move through."""
        known = self._approved.get(key)
        return known[1] if known and known[0] == step else None

    def is_on_fewer(self, key: K) -> bool:
        """Tell whether its move was approved on a fleet as small as it is."""
        return key in self._on_fewer

    def recall(self, histories: Iterable[tuple[K, History]]) -> None:
        """Take in what the histories of objects tell of earlier processes."""
        for key, history in histories:
            if len(history) > 1 and history[-1].approval:
                step = (history[-2].placement, history[-1].placement, history[-2].at)
                self._moved.setdefault(history[-1].approval, {})[key] = step

    def weigh(
        self,
        asked: Mapping[K, Step],
        given: Collection[str],
        clusters: int,
        parts: Sequence[Mapping[K, Step]] = (),
    ) -> list[K]:
        """Let through what `given` approves, and return the moves that nothing lets through.

        `clusters`: how many there are now; `parts`: what of `asked` may have been asked for alone.
        """
        self._standing = {of: n for of, n in self._standing.items() if n in self._asked_now}
        self._asked_now.clear()
        self._approved = {
            key: known
            for key, known in self._approved.items()
            if key in asked and asked[key] == known[0] and known[1] in given
        }
        self._moved = {name: steps for name, steps in self._moved.items() if name in given}
        self._on_fewer = set()
        for name in sorted(given):
            covered = self._covered(name, (asked, *parts), clusters)
            if name.startswith(_FLEET):
                self._on_fewer.update(covered)
            for key in covered:
                self._approved.setdefault(key, (asked[key], name))
        return [key for key in asked if key not in self._approved]

    def accepts(self, asked: Collection[K], few: float) -> bool:
        """Tell whether these moves, but for a few, were approved on a fleet as small as it is."""
        others = sum(key not in self._on_fewer for key in asked)
        return bool(asked) and _are_few(others, len(asked), few)

    def offer(
        self,
        waiting: Collection[K],
        asked: Mapping[K, Step],
        few: float,
        of: Hashable = None,
    ) -> str:
        """Return the name of the approval that `waiting` need; each `of` has one that stands."""
        name = self._standing.get(of, "")
        known = self._offers.get(name, frozenset())
        new = sum((key, asked[key]) not in known for key in waiting)
        if not known or not _are_few(new, len(waiting), few):
            steps = {key: asked[key] for key in waiting}
            name = _name(steps)
            self._offers.pop(name, None)
            self._offers[name] = frozenset(steps.items())
            self._standing[of] = name
            self._prune()
        self._asked_now.add(name)
        return name

    def _prune(self) -> None:
        number = sum(map(len, self._offers.values()))
        standing = set(self._standing.values())
        for name in [name for name in self._offers if name not in standing]:
            if len(self._offers) <= _OFFERS and number <= _OFFERED:
                return
            number -= len(self._offers.pop(name))

    def _covered(self, name: str, sets: Sequence[Mapping[K, Step]], clusters: int) -> list[K]:
        """Return which moves a name names, of the set of all and sets that are parts of it."""
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
    """Return the name of the approval of these moves on a fleet of so few clusters."""
    return _FLEET + digest([clusters, moves])


def _names(name: str, moves: str, clusters: int) -> bool:
    return name == (on_fewer(moves, clusters) if name.startswith(_FLEET) else moves)


def _are_few(new: int, of: int, few: float) -> bool:
    """Tell whether so many stand for the others: no mass by themselves, nor most of them."""
    return new <= few and 2 * new <= of


def _name(steps: Mapping[K, Step]) -> str:
    return _MOVES + digest(sorted((str(key), *step) for key, step in steps.items()))
