"""Moves in two steps: new clusters are added, and old ones taken away once the new are healthy.

Carries out `guard.add_first` on decisions: the step of an object is planned for a decision with the
placement that it is to have now, so notes, seals and ownership are those of any other write. What a
restart needs is on the object (`guard.additions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

import msgspec

from kube_sync.guard import Change, Inventory, Placements, read_addition
from kube_sync.guard.add_first import Names, Partial, State, Terms, Whole, next_step
from kube_sync.guard.additions import write_addition
from kube_sync.guard.digests import digest
from kube_sync.objects import GroupVersionResource
from kube_sync.observability import metrics
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Wanted, Write, after
from kube_sync.remediation.planner import Parts, Planned, PlanStep, ReadHealth, Unfinished

ADDING: Final = "adding"
UNHEALTHY: Final = "unhealthy"
UNMATCHED: Final = "unmatched"


class HealthSource(Protocol):
    """Tells which clusters of an object are healthy."""

    @property
    def trouble(self) -> str | None:
        """Why the health is not current, None if it is."""

    def healthy(self, key: Key, current: Current, clusters: Names) -> Names:
        """Return which of these clusters are healthy for the object, as far as known."""

    def unmatched(self, key: Key) -> str | None:
        """Return what of the object's health is of no known cluster, None if nothing is."""

    def reader(self, gvr: GroupVersionResource) -> ReadHealth | None:
        """Return what reads the health from the objects of a collection, None: nothing does."""


class AddFirst:
    """Makes each move in two steps."""

    in_steps = True

    def __init__(
        self,
        terms: Terms,
        placements: Placements,
        health: HealthSource,
        now: Callable[[], float],
        *,
        inventory: Callable[[], Inventory | None] = lambda: None,
        labels: Callable[[str], Mapping[str, str] | None] = lambda _cluster: None,
        approved: Callable[[], Names] = frozenset,
    ) -> None:
        """`now` returns Unix seconds.

        `inventory`: the clusters that placements are compared with, None: with none. `labels`
        returns those of a cluster by its name, `approved` the names of operators' approvals.
        """
        self._terms = terms
        self._placements = placements
        self._health = health
        self._now = now
        self._inventory = inventory
        self._labels = labels
        self._approved = approved

    def read_health(self, gvr: GroupVersionResource) -> ReadHealth | None:
        """Return what reads the clusters where an object is healthy from it; None: nothing."""
        return self._health.reader(gvr)

    def planned(self, key: Key, wanted: Wanted, current: Current, plan_step: PlanStep) -> Planned:
        """Return what to write now for a decision."""
        whole = plan_step(wanted)
        # Without replicas it is nowhere healthy.
        if not isinstance(whole, Write) or wanted.decision is None or current.idle:
            return Planned(wanted, current, whole)
        state = self._state(key, wanted, current, after(whole, current))
        found = next_step(self._placements, state, self._terms)
        if isinstance(found, Whole):
            return Planned(wanted, current, whole, Parts(wanted, whole))
        annotations = {**wanted.decision.annotations, **found.placements}
        decision = msgspec.structs.replace(wanted.decision, annotations=annotations)
        record = None if found.record is None else write_addition(found.record)
        now = replace(wanted, decision=decision, addition=record)
        step = plan_step(now)
        # Weighed while it waits: a mass of moves has to be seen before the first of them is ready.
        is_there = found.placements.items() <= current.annotations.items()
        is_waiting = found.record is not None and found.record.step == "added"
        weighed = whole if is_waiting and is_there else step
        parts = Parts(now, weighed, self._left(key, found, whole))
        return Planned(wanted, current, step, parts)

    def _state(
        self, key: Key, wanted: Wanted, current: Current, annotations: Mapping[str, str]
    ) -> State:
        inventory, known = self._inventory(), self._health.trouble is None

        def healthy(clusters: Names) -> Names:
            return self._health.healthy(key, current, clusters) if known else frozenset()

        return State(
            current.annotations,
            annotations,
            healthy,
            self._now(),
            f"{key[0]}/{key[1]}/{current.uid}",
            wanted.policy,
            lambda clusters: self._seen(current, clusters),
            None if inventory is None else inventory.names | inventory.qualified,
            self._approved(),
            known,
        )

    def _seen(self, current: Current, clusters: Names) -> str:
        return digest([current.spec, [(name, self._labels(name)) for name in sorted(clusters)]])

    def _left(self, key: Key, found: Partial, whole: Write) -> Unfinished:
        left = self._unfinished(found, whole)
        if (unmatched := self._health.unmatched(key)) is None:
            return left
        kind = UNMATCHED if left.kind == ADDING else left.kind
        return replace(left, kind=kind, reason=f"{left.reason}; {unmatched}")

    def _unfinished(self, found: Partial, whole: Write) -> Unfinished:
        names, record, within = ", ".join(sorted(found.missing)), found.record, self._terms.within
        if found.until is not None:
            then = "it is taken back" if self._terms.on_unhealthy == "revert" else "it is held"
            release = f"healthy there, or after {within:.0f} s {then}"
            reason = f"added to {names}, and not healthy there yet"
            return Unfinished(ADDING, reason, release, whole, found.until)
        healthy = "it is healthy there, or another decision"
        if (trouble := self._health.trouble) is not None and not found.retry:
            reason = f"it is not known whether it is healthy in {names}: {trouble}"
            return Unfinished(ADDING, reason, "it is known", whole)
        if record is None:
            reason = f"not healthy in any cluster that would be left: {names}"
            return Unfinished(UNHEALTHY, reason, healthy, whole)
        late = f"not healthy in {names} within {within:.0f} s"
        if found.retry is None:
            reason = f"{late}: nothing is taken away elsewhere"
            return Unfinished(UNHEALTHY, reason, healthy, whole)
        release = "another decision, spec or cluster, or approve " + found.retry
        reason = f"{late}: the addition was taken back"
        return Unfinished(UNHEALTHY, reason, release, whole, approve=found.retry)


def count_progress(current: Current, step: Write, now: float) -> None:
    """Count the write of a step that is part of a move."""
    if (what := progress(current, step, now)) is not None:
        metrics.remediation_additions.labels(what).inc()


def progress(current: Current, step: Write, now: float) -> str | None:
    """Return what the write of a step is to a move: a step of `Addition`, `ended`, or None."""
    before = read_addition(current.annotations, now)
    record = read_addition(after(step, current), now)
    if record is None:
        return "ended" if before is not None and before.step != "reverted" else None
    return None if record == before else record.step


def eased(change: Change, then: Mapping[str, str], now: float) -> Change:
    """Return a change as the guard counts it, by the annotations that it leads to.

    An addition counts as the begin of its move, which it must not repeat while that is frozen. What
    takes it back is no move: nothing was healthy there.
    """
    record = read_addition(then, now)
    if record is None:
        return change
    if record.step == "reverted":
        return replace(change, left=frozenset())
    return change if change.is_move else replace(change, toward=record.to)
