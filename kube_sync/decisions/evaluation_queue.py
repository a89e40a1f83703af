"""The queue of objects to evaluate next, and why: no I/O, and no decision.

A changed object is evaluated at once. A sweep evaluates all objects, once for each class; it begins
at once or is scheduled, and then takes at most a tenth of the time. While policies change it is
unknown which objects share a decision: a sweep waits for that, up to a limit. The queue holds keys,
never objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from kube_sync.decisions.records import Source
from kube_sync.objects import ObjectKey

# The time until it is known what new policies read, also on a busy machine; policies that OPA never
# accepts delay the decisions on a changed cluster for so long.
_SWEEP_WAIT_SECONDS = 60.0
_SHARE = 10  # the pause before a scheduled sweep, as a multiple of the last sweep's time

Key = tuple[str, ObjectKey]  # a collection's name, and an object of it


@dataclass(frozen=True, slots=True)
class Cause:
    """Why decisions are evaluated."""

    kind: str  # as in records
    source: Source | None = None
    trace: str = field(default="", compare=False)  # the context of the write; "": none

    def merged(self, other: Cause | None) -> Cause:
        """Return one cause for both, of which `other` came first."""
        if other is None or other.kind != self.kind:
            return self
        if self.source is None or other.source is None:
            return other
        count = other.source.count + self.source.count
        source = Source(other.source.collection, other.source.object, count)
        return Cause(self.kind, source, other.trace or self.trace)


OBJECT_CHANGED = Cause("object")  # the object itself changed

Changed = dict[Key, Cause]  # why each is evaluated


@dataclass(frozen=True, slots=True)
class Group:
    """Objects that were of one class when they were enqueued, or one object alone."""

    keys: list[ObjectKey]
    cause: Cause
    # Their uids, while the classes of the collection have this revision; None: not known.
    uids: list[str] | None = field(default=None, compare=False)
    revision: int = field(default=0, compare=False)

    def begin_with(self, index: int) -> None:
        """Put this object before all others."""
        self.keys.insert(0, self.keys.pop(index))
        if self.uids is not None:
            self.uids.insert(0, self.uids.pop(index))

    def part(self, start: int, end: int) -> Group:
        """Return a part of it."""
        uids = None if self.uids is None else self.uids[start:end]
        return Group(self.keys[start:end], self.cause, uids, self.revision)


Sweep = dict[tuple[str, bytes | ObjectKey], Group]  # by collection, and by class if known


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation: of the first of these objects, for all of them."""

    kind: bytes | None  # their class; None: one object, for itself alone
    groups: list[Group]  # by why each is evaluated
    revision: int
    data: int  # number of writes that OPA had applied

    @property
    def representative(self) -> ObjectKey:
        """The object that is evaluated."""
        return self.groups[0].keys[0]

    @property
    def without_representative(self) -> Evaluation:
        """The evaluation without the object that represents the others."""
        first, *others = self.groups
        return replace(self, groups=[first.part(1, len(first.keys)), *others])

    def with_causes(self) -> Iterator[tuple[ObjectKey, Cause]]:
        """Yield all objects, and why each is evaluated."""
        for group in self.groups:
            for key in group.keys:
                yield key, group.cause

    def add(self, key: ObjectKey, cause: Cause) -> None:
        """Evaluate for one more object."""
        if self.groups and self.groups[-1].cause is cause and self.groups[-1].uids is None:
            self.groups[-1].keys.append(key)
        else:
            self.groups.append(Group([key], cause))


class EvaluationQueue:
    """The changed objects, the rest of a sweep, and the scheduled sweeps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Measure time by `clock`, which never goes back (seconds)."""
        self.changed: Changed = {}
        self.sweep: Sweep = {}
        self._clock = clock
        self._requested: Cause | None = None  # of a sweep that is to begin at once
        self._scheduled: dict[str, tuple[float, Cause]] = {}  # by the kind of cause
        self._sweep_began: float | None = None
        self._sweep_seconds = 0.0
        # Until then sweeps wait for what new policies read; None: it is known.
        self._sweeps_wait_until: float | None = None

    def add(self, name: str, keys: Iterable[ObjectKey], cause: Cause) -> None:
        """Enqueue these objects of a collection."""
        self.changed.update({(name, key): cause for key in keys})

    def requeue(self, keys: Changed) -> None:
        """Enqueue these again, before all others; one that changed since keeps its newer cause."""
        self.changed = keys | self.changed

    def requeue_sweep(self, name: str, evaluations: Iterable[Evaluation]) -> None:
        """Enqueue the evaluations of a sweep again, before all others."""
        requeued: Sweep = {}
        for evaluation in evaluations:
            for key, cause in evaluation.with_causes():
                ident = name, key if evaluation.kind is None else evaluation.kind
                requeued.setdefault(ident, Group([], cause)).keys.append(key)
        self.sweep = requeued | self.sweep

    def drop(self, name: str) -> None:
        """Remove the objects of a collection."""
        self.changed = {key: cause for key, cause in self.changed.items() if key[0] != name}
        self.sweep = {ident: group for ident, group in self.sweep.items() if ident[0] != name}

    def request_sweep(self, cause: Cause) -> None:
        """Request a sweep at once, or as soon as one can begin."""
        self._requested = cause.merged(self._requested)

    def schedule_sweep(self, cause: Cause, seconds: float) -> None:
        """Schedule a sweep; one that is scheduled already is not delayed."""
        due, first = self._scheduled.get(cause.kind, (None, None))
        if due is None:
            due = self._clock() + max(seconds, _SHARE * self._sweep_seconds)
        self._scheduled[cause.kind] = due, cause.merged(first)

    @property
    def scheduled(self) -> tuple[float, Cause] | None:
        """Seconds until the next scheduled sweep, and its cause; None: none is scheduled."""
        if not self._scheduled:
            return None
        due, cause = min(self._scheduled.values(), key=lambda entry: entry[0])
        return max(0.0, due - self._clock()), cause

    def begin_sweep(self) -> Cause | None:
        """Take the requested sweep, None if there is none; it replaces all scheduled ones."""
        cause, self._requested = self._requested, None
        if cause is not None:
            self._scheduled.clear()
            # Not from its request: waiting for classes does not occupy OPA.
            self._sweep_began = self._clock() if self._sweep_began is None else self._sweep_began
        return cause

    def replace_sweep(self, sweep: Sweep) -> None:
        """Replace what is left of the last sweep by this one."""
        # Waiting groups keep their place, so that the last ones of each sweep do not starve.
        waiting = {ident: sweep[ident] for ident in self.sweep if ident in sweep}
        self.sweep = waiting | sweep

    def end_sweep(self) -> bool:
        """Record the time of the sweeps since the last call; return whether there were any."""
        began, self._sweep_began = self._sweep_began, None
        if began is not None:
            self._sweep_seconds = self._clock() - began
        return began is not None

    def policies_changing(self) -> None:
        """Let sweeps wait until it is known what the next policies read."""
        if self._sweeps_wait_until is None:  # further changes extend nothing
            self._sweeps_wait_until = self._clock() + _SWEEP_WAIT_SECONDS

    def policies_changed(self) -> None:
        """Record that it is known what the policies read."""
        self._sweeps_wait_until = None

    @property
    def sweep_wait_seconds(self) -> float | None:
        """Seconds for which a sweep may wait for what policies read, None: it need not wait.

        Without that, it would evaluate each object alone, and keep OPA from activating the very
        policies that it waits for.
        """
        seconds = (
            0.0 if self._sweeps_wait_until is None else self._sweeps_wait_until - self._clock()
        )
        return seconds if seconds > 0 else None

    @property
    def may_sweep(self) -> bool:
        """Whether sweeps need not wait for what policies read."""
        return self.sweep_wait_seconds is None

    @property
    def is_due(self) -> bool:
        """Whether something can be evaluated now."""
        return bool(self.changed) or (bool(self.sweep) and self.may_sweep)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be evaluated before a change, or a scheduled sweep."""
        return not (self.changed or self.sweep or self._requested)
