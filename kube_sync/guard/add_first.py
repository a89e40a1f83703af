"""The next step of a move that adds the new clusters first, and takes the old ones away later.

Pure. Invariants, as long as each step is taken from the state that it was computed from:
- A step takes a healthy cluster away only if the clusters that the decision adds are all healthy
  or, where it adds none, one of those that stay is.
- Otherwise a step takes away only clusters that an addition of ours added and that are not healthy.
- The same state gives the same step, so a process may end between any two.
- An addition that was taken back is not tried again for the same decision until the object's spec
  or one of the clusters differs, or a person approves it.

A move that has no union (`unions`), that empties the workload, or that leads to no cluster of the
fleet is made whole: the guard decides on it as on any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from kube_sync.guard.additions import Addition, read_addition
from kube_sync.guard.digests import digest
from kube_sync.guard.history import stamp
from kube_sync.guard.moves import Change, compare
from kube_sync.guard.placements import Placements
from kube_sync.guard.unions import named, reduced, united

Names = frozenset[str]
OnUnhealthy = Literal["revert", "keep"]
_NONE: Names = frozenset()


@dataclass(frozen=True, slots=True)
class State:
    """What a step is computed from.

    `has` and `wanted` are all annotations of the object, now and as decided. `healthy` returns
    which of some clusters are healthy now. `exists`: the clusters of the fleet, None if placements
    are not compared with it. `seen` returns a digest of the object's spec and these clusters;
    `policy` is that of the policies that decided; `identity` is unique for the object's lifetime.
    `knows_health` is False while what says which are healthy is not current: nothing is taken away.
    """

    has: Mapping[str, str]
    wanted: Mapping[str, str]
    healthy: Callable[[Names], Names]
    now: float
    identity: str = ""
    policy: str = ""
    seen: Callable[[Names], str] = lambda _clusters: ""
    exists: Names | None = None
    approved: Names = _NONE
    knows_health: bool = True


@dataclass(frozen=True, slots=True)
class Terms:
    """How long new clusters may take to be healthy (seconds), and what happens then."""

    within: float
    on_unhealthy: OnUnhealthy = "revert"


@dataclass(frozen=True, slots=True)
class Whole:
    """The change is made as decided; nothing has to be added first, or it is healthy."""


@dataclass(frozen=True, slots=True)
class Partial:
    """Placements to have now, by annotation, and the record beside them.

    `missing`: the clusters that are to be healthy first. `until`: when that ends (Unix seconds).
    `retry`: the name of an approval that lets the addition be tried again.
    """

    placements: Mapping[str, str]
    record: Addition | None
    missing: Names
    until: float | None = None
    retry: str | None = None


def next_step(placements: Placements, state: State, terms: Terms) -> Whole | Partial:
    """Return how much of a decision to carry out now."""
    change = compare(placements, "", state.has, state.wanted)
    if change is None or not change.is_move or change.empties:
        return Whole()
    union = united(placements, state.has, state.wanted)
    wanted = named(placements, state.wanted)
    if union is None or (state.exists is not None and wanted.isdisjoint(state.exists)):
        return Whole()
    return _Move(placements, state, terms, change, union, wanted).step()


@dataclass(frozen=True, slots=True)
class _Move:
    """One move whose placements have a union."""

    placements: Placements
    state: State
    terms: Terms
    change: Change
    union: Mapping[str, str]
    wanted: Names

    def step(self) -> Whole | Partial:
        found = read_addition(self.state.has, self.state.now)
        if found is not None and self._is_taken_back(found):
            return Whole()
        record = found if found is not None and found.to == self.change.after else None
        if self.change.joined:
            return self._add(found, record)
        missing = self._missing(record)
        if not missing:
            return Whole()
        if record is None or record.step != "added" or not self.state.knows_health:
            return Partial(self._present(), record, missing)
        until = self._until(record)
        if until is not None and self.state.now < until:
            return Partial(self._present(), record, missing, until)
        return self._give_up(record, missing)

    def _until(self, record: Addition) -> float | None:
        return record.at + self.terms.within if record.step == "added" else None

    def _is_taken_back(self, record: Addition) -> bool:
        """Return whether the change only takes away what was added and is not healthy."""
        left = self.change.left
        if not self.state.knows_health or not left <= {*record.added}:
            return False
        return not self.state.healthy(left)

    def _add(self, found: Addition | None, record: Addition | None) -> Partial:
        """Add the new clusters, or hold: that was taken back before."""
        joined, now = self.change.joined, self.state.now
        if record is not None and record.step == "reverted" and not self._is_retried(record):
            missing = self._missing(record) or joined
            return Partial(self._present(), record, missing, None, self._retry(record))
        # Somebody else took them away: their time goes on.
        began = record if record is not None and record.step != "reverted" else None
        earlier = _NONE if found is None else self._left_of(found)
        added = tuple(sorted(joined | earlier))
        at, step = (began.at, began.step) if began is not None else (stamp(now), "added")
        new = Addition(self.change.after, at, added, step, self.state.policy)
        return Partial(self.union, new, joined, self._until(new))

    def _left_of(self, record: Addition) -> Names:
        """Return what an earlier addition added and is still there."""
        if record.step == "reverted":
            return _NONE
        return frozenset(record.added) & named(self.placements, self.state.has)

    def _missing(self, record: Addition | None) -> Names:
        """Return the clusters that have to be healthy before any is taken away."""
        new = frozenset(() if record is None else record.added) & self.wanted
        if record is not None and record.step == "reverted":
            new |= self.change.joined
        if self.state.exists is not None:
            new &= self.state.exists
        if new:
            return new - self.state.healthy(self.wanted)
        return _NONE if self.state.healthy(self.wanted) else self.wanted

    def _give_up(self, record: Addition, missing: Names) -> Partial:
        """Take back what is not healthy in time, or record that it is left."""
        added = frozenset(record.added)
        lost = added - self.state.healthy(added)
        stays = named(self.placements, self.state.has) - lost
        if self.state.exists is not None:
            stays &= self.state.exists
        policy, now = self.state.policy, stamp(self.state.now)
        if self.terms.on_unhealthy == "revert" and lost and stays:
            seen = self.state.seen(added)
            new = Addition(record.to, now, record.added, "reverted", policy, seen)
            less = reduced(self.placements, self.state.has, lost)
            return Partial({**self._present(), **less}, new, missing, None, self._retry(new))
        new = Addition(record.to, now, record.added, "kept", policy)
        return Partial(self._present(), new, missing)

    def _present(self) -> dict[str, str]:
        return {key: self.state.has[key] for key in self.union}

    def _is_retried(self, record: Addition) -> bool:
        is_changed = record.seen != self.state.seen(frozenset(record.added))
        return is_changed or self._retry(record) in self.state.approved

    def _retry(self, record: Addition) -> str:
        return "retry-" + digest([self.state.identity, record.to, record.at])
