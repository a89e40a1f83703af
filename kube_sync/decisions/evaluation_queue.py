"""Which objects OPA is to be asked about next, and why: no I/O, and no decision.

An object that changed is asked about at once. A sweep asks about all objects, each class once; it
begins at once or is planned for later, and then for no more than a tenth of the time. While
policies change nobody knows which objects share a decision: a sweep waits for that, not for ever.
The queue holds keys, never objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kube_sync.decisions.records import Source
from kube_sync.objects import ObjectKey

# Until it is known what new policies read, on a busy machine too; ones that OPA never takes
# keep the decisions on a changed cluster waiting for so long.
_READ_SECONDS = 60.0
_SHARE = 10  # a sweep for no data's sake waits this many times as long as the last took

Key = tuple[str, ObjectKey]  # a collection's name, and an object of it


@dataclass(frozen=True, slots=True)
class Cause:
    """Why decisions are asked for."""

    kind: str  # as in records
    source: Source | None = None

    def merged(self, other: Cause | None) -> Cause:
        """Return one cause for both, of which `other` was first."""
        if other is None or other.kind != self.kind:
            return self
        if self.source is None or other.source is None:
            return other
        count = other.source.count + self.source.count
        return Cause(self.kind, Source(other.source.collection, other.source.object, count))


OWN = Cause("object")  # the object itself changed

Changed = dict[Key, Cause]  # why each is asked for


@dataclass(frozen=True, slots=True)
class Group:
    """Objects that were of one class when all were asked for, or one alone."""

    keys: list[ObjectKey]
    cause: Cause


Sweep = dict[tuple[str, bytes | ObjectKey], Group]  # by collection, and by class where known


@dataclass(frozen=True, slots=True)
class Question:
    """One evaluation: of the first of these objects, for all of them."""

    kind: bytes | None  # their class; None: of one object, for itself alone
    keys: dict[ObjectKey, Cause]  # and why each is asked for
    revision: int
    data: int  # how many writes OPA had taken

    @property
    def one(self) -> ObjectKey:
        """The one that is evaluated."""
        return next(iter(self.keys))

    @property
    def others(self) -> Question:
        """The same, without the one that is evaluated."""
        return replace(self, keys={k: c for k, c in self.keys.items() if k != self.one})


class EvaluationQueue:
    """The objects that changed, the rest of a sweep, and the sweeps to come."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Measure time by `clock`, which never goes back (seconds)."""
        self.changed: Changed = {}
        self.sweep: Sweep = {}
        self._clock = clock
        self._requested: Cause | None = None  # of a sweep that is to begin at once
        self._planned: dict[str, tuple[float, Cause]] = {}  # by the kind of cause
        self._began: float | None = None
        self._took = 0.0
        # Before that, what changing policies read may be known soon; None: it is known.
        self._unread_until: float | None = None

    def add(self, name: str, keys: Iterable[ObjectKey], cause: Cause) -> None:
        """Ask about these objects of a collection."""
        self.changed.update({(name, key): cause for key in keys})

    def add_again(self, keys: Changed) -> None:
        """Ask about these again, before all others; one that changed since has its own cause."""
        self.changed = keys | self.changed

    def sweep_again(self, name: str, questions: Iterable[Question]) -> None:
        """Ask the questions of a sweep again, before all others."""
        again: Sweep = {}
        for question in questions:
            for key, cause in question.keys.items():
                ident = name, key if question.kind is None else question.kind
                again.setdefault(ident, Group([], cause)).keys.append(key)
        self.sweep = again | self.sweep

    def drop(self, name: str) -> None:
        """Ask about no object of a collection."""
        self.changed = {key: cause for key, cause in self.changed.items() if key[0] != name}
        self.sweep = {ident: group for ident, group in self.sweep.items() if ident[0] != name}

    def request_sweep(self, cause: Cause) -> None:
        """Have a sweep begin at once, or as soon as one can."""
        self._requested = cause.merged(self._requested)

    def plan_sweep(self, cause: Cause, seconds: float) -> None:
        """Have a sweep begin later; what is planned already is not put off."""
        due, first = self._planned.get(cause.kind, (None, None))
        if due is None:
            due = self._clock() + max(seconds, _SHARE * self._took)
        self._planned[cause.kind] = due, cause.merged(first)

    @property
    def planned(self) -> tuple[float, Cause] | None:
        """In how many seconds the next planned sweep is due, and why; None: none is planned."""
        if not self._planned:
            return None
        due, cause = min(self._planned.values(), key=lambda planned: planned[0])
        return max(0.0, due - self._clock()), cause

    def begin_sweep(self) -> Cause | None:
        """Take the requested sweep, None where there is none; it stands for all planned ones."""
        cause, self._requested = self._requested, None
        if cause is not None:
            self._planned.clear()
            # Not from when it was wanted: waiting for classes keeps OPA from nothing.
            self._began = self._clock() if self._began is None else self._began
        return cause

    def replace_sweep(self, sweep: Sweep) -> None:
        """Ask about all of this instead of what is left of the last sweep."""
        # What waits already stays ahead: who was asked about last is asked about last again.
        ahead = {ident: sweep[ident] for ident in self.sweep if ident in sweep}
        self.sweep = ahead | sweep

    def end_sweep(self) -> bool:
        """Note how long the sweeps since the last call took; tell whether there was any."""
        began, self._began = self._began, None
        if began is not None:
            self._took = self._clock() - began
        return began is not None

    def policies_changing(self) -> None:
        """Let sweeps wait until it is known what the next policies read."""
        if self._unread_until is None:  # others that come meanwhile put nothing off
            self._unread_until = self._clock() + _READ_SECONDS

    def policies_changed(self) -> None:
        """Take note that it is known what the policies read."""
        self._unread_until = None

    @property
    def unread_seconds(self) -> float | None:
        """How long a sweep may wait for what policies read, None: it waits for nothing.

        It would ask for each object alone, and soon need not. To ask for all of them keeps OPA from
        taking the very policies that are waited for.
        """
        seconds = 0.0 if self._unread_until is None else self._unread_until - self._clock()
        return seconds if seconds > 0 else None

    @property
    def may_sweep(self) -> bool:
        """Whether a sweep waits for nothing that policies read."""
        return self.unread_seconds is None

    @property
    def is_due(self) -> bool:
        """Whether there is something to ask now."""
        return bool(self.changed) or (bool(self.sweep) and self.may_sweep)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be asked before there is news, or a planned sweep is due."""
        return not (self.changed or self.sweep or self._requested)
