"""The guard (`kube_sync.guard`) applied to objects, decisions and PATCHes.

Collects the wanted changes of placements, since the guard assesses all of them before it allows the
first one, and asks it about each. Other annotations and labels are not restrained. The limits that
policies tighten come from the decision stream, with names of objects; a lower limit applies at
once, while its end is delayed by a few seconds (`policy_limits.Easing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import structlog

from kube_sync.decisions.records import Budget
from kube_sync.guard import (
    Allowed,
    Change,
    Comparer,
    Fleet,
    Guard,
    Placements,
    Tightening,
    Withheld,
    read_history,
)
from kube_sync.guard.history import History
from kube_sync.observability import metrics
from kube_sync.remediation.add_first import eased
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Write, after, with_history
from kube_sync.remediation.policy_limits import Easing, LimitSource
from kube_sync.runtime.cooperative import in_slices

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Facts(Protocol):
    """Provides the state of the fleet."""

    def begin(self) -> None:
        """Start again from the placements of the objects."""

    def fleet(self, now: float) -> Fleet:
        """Return the state of the fleet at `now` (Unix seconds)."""

    def accept(self, clusters: int) -> None:
        """Accept this number of clusters as complete: an operator approved it."""


class Brakes:
    """Decides which of the wanted changes may be written."""

    def __init__(
        self,
        guard: Guard[str],
        placements: Placements,
        facts: Facts,
        approved: Callable[[], frozenset[str]],
        now: Callable[[], float],
        *,
        rehearsed: bool = False,
    ) -> None:
        """Take the fleet from `facts`, and from `approved` the names of operators' approvals.

        `now` returns Unix seconds that never decrease, as `guard` requires. `rehearsed`: nothing is
        written (dry run), so an approval here must have no effect on real writes.
        """
        self.holds: tuple[Withheld, ...] = ()
        self.tightened = LimitSource()
        self._by: Tightening | None = None  # in force: the present one and those that ended
        self._easing = Easing()
        self._not_before: dict[str, float] = {}
        self._guard = guard
        self._comparer = Comparer(placements)
        self._facts = facts
        self._approved = approved
        self._now = now
        self._rehearsed = rehearsed
        self._pending: dict[str, tuple[Change, History]] = {}
        self._warnings: dict[str, str] = {}  # of allowed changes
        self._ids: dict[Key, str] = {}
        self._last: object = None

    @property
    def waiting(self) -> bool:
        """Whether any change is wanted."""
        return bool(self._pending)

    @property
    def keys(self) -> Iterable[Key]:
        """Every object with a wanted change."""
        return [key for key, name in self._ids.items() if name in self._pending]

    async def begin(self, objects: Iterable[tuple[Key, Current]]) -> None:
        """Load the histories of all objects into the guard."""
        self._facts.begin()
        now, histories = self._now(), dict[str, tuple[str, History]]()
        async for key, current in in_slices(objects):
            histories[_id(key, current)] = (key[1].namespace, self._history(current, now))
        self._guard.recall(histories, now)
        self._pending, self._ids, self._last = {}, {}, None
        self._not_before.clear()

    def want(self, key: Key, current: Current, step: Write, *, evict: bool) -> bool:
        """Record the wanted change of an object; return whether all have to be weighed again."""
        change = self._change(key, current, step, evict=evict)
        if change is None:
            self.drop(key)
            return False
        name, found = _id(key, current), self._history(current, self._now())
        if self._ids.get(key, name) != name:  # another object of that name
            self.forget(key)
        known, self._ids[key] = self._pending.get(name), name
        self._wait_for(key, name)
        self._pending[name] = (change, found)
        return known != (change, found)

    def drop(self, key: Key) -> None:
        """Record that no change of an object is wanted."""
        self._pending.pop(self._ids.get(key, ""), None)

    def forget(self, key: Key) -> None:
        """Forget a deleted object."""
        if (name := self._ids.pop(key, None)) is not None:
            self._pending.pop(name, None)
            self._warnings.pop(name, None)
            self._not_before.pop(name, None)
            self._guard.forget(name)

    def tighten(self, budget: Budget | None) -> bool:
        """Apply the limits of policies; return whether all changes have to be weighed again."""
        before, self.tightened = self.tightened, self.tightened.updated(budget)
        trouble, by = self.tightened.trouble, self.tightened.by
        metrics.budget_unusable.set(trouble is not None)
        if self.tightened == before:
            return False
        if trouble is not None and not self._rehearsed:
            log.warning("budget_unusable", error=trouble)
        if by is None:
            self._guard.withhold(f"it is not known what policies limit: {trouble}")
        elif by != before.by:
            if not self._rehearsed and (before.by is not None or by != Tightening()):
                log.info("limits_tightened", by=by.named(), objects=len(by.not_before))
            if before.by is not None:
                self._easing.end(before.by, self._now())
        self._ease()
        self._last = None
        return True

    def weigh(self, workloads: Mapping[str, int]) -> bool:
        """Weigh all changes together; return whether the holds differ from before.

        `workloads`: the number of objects in each namespace that are not idle.
        """
        self._ease()
        now, approved = self._now(), self._approved()
        fleet = self._facts.fleet(now)
        found = self._guard.consider(self._pending, fleet, workloads, approved, now)
        if found.accepted and not self._rehearsed:
            self._facts.accept(fleet.clusters)
        now_held = (tuple(_same(h) for h in found.holds), approved, found.nowhere)
        before, self._last = self._last, now_held
        self.holds = found.holds
        return self._last != before

    def admit(self, key: Key, current: Current, step: Write, *, evict: bool) -> Write | Withheld:
        """Return the step with its history if it may be written now, or else the hold."""
        change = self._change(key, current, step, evict=evict)
        if change is None:
            return step
        now = self._now()
        name = _id(key, current)
        found = self._guard.admit(name, change, self._history(current, now), now)
        if not isinstance(found, Allowed):
            return found
        if found.warning:
            self._warnings[name] = found.warning
        return with_history(step, found.history)

    def moved(self, key: Key, current: Current) -> str:
        """Record that an allowed change was written; return a warning, "" if there is none."""
        name = _id(key, current)
        self._guard.moved(name)
        self.drop(key)
        return self._warnings.pop(name, "")

    def refund(self, key: Key, current: Current) -> None:
        """Record that an allowed change was surely not written."""
        name = _id(key, current)
        self._guard.refund(name, self._now())
        self._warnings.pop(name, None)

    def seconds_until(self, held: Withheld) -> float | None:
        """Return the seconds until a retry, None if time alone releases nothing."""
        return None if held.until is None else max(0.0, held.until - self._now())

    def _ease(self) -> None:
        """Apply the present limits together with those that ended a moment ago."""
        if (by := self.tightened.by) is None:
            return
        now = self._now()
        before, self._by = self._by, self._easing.with_(by, now)
        if self._by == before:
            return
        self._not_before, self._last = {}, None
        for key, name in self._ids.items():
            self._wait_for(key, name)
        self._guard.tighten(self._by, self._not_before, now)

    def _wait_for(self, key: Key, name: str) -> None:
        until = self._by.not_before.get(str(key[1])) if self._by else None
        if until is not None:
            self._not_before[name] = until

    def _change(self, key: Key, current: Current, step: Write, *, evict: bool) -> Change | None:
        has, then = current.annotations, after(step, current)
        where, idle = key[1].namespace, current.idle
        change = self._comparer.compare(where, has, then, evict=evict, idle=idle)
        return change and eased(change, then, self._now())

    @staticmethod
    def _history(current: Current, now: float) -> History:
        return read_history(current.annotations, now)


def _id(key: Key, current: Current) -> str:
    """Return an id of one object for its lifetime, the same in every process."""
    return f"{key[0]}/{key[1]}/{current.uid}"


def _same(held: Withheld) -> tuple[str, str, str | None]:
    """Return what identifies a hold, without its numbers of seconds and moves."""
    return (held.kind, held.release, held.approve)
