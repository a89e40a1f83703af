"""Cache of the latest decision on every object, filled from the decision stream.

No decision may be acted on while the stream reports a hold (OPA is loading, a kind is missing, the
stream is new and incomplete), nor one that a new stream has not confirmed yet. The stream reports
the limits on moves before it lifts a hold, and before any decision that follows.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

import structlog

from kube_sync.decisions.records import (
    BookmarkRecord,
    Budget,
    DecisionRecord,
    DeletedRecord,
    Record,
    StatusRecord,
    Target,
)
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import tracing
from kube_sync.remediation.plan import Wanted
from kube_sync.runtime.freshness import SETTLE_SECONDS, Freshness, Stale

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Key = tuple[GroupVersionResource, ObjectKey]

_PAUSE = 0.2  # seconds without a decision
_LONGEST = 2.0  # seconds; the limit for a stream that never pauses


class Records(Protocol):
    """A source of records; None marks the start of a new stream."""

    def records(self) -> AsyncGenerator[Record | None]:
        """Yield records for ever."""


async def follow(stream: Records, *readers: Callable[[Record | None], None]) -> None:
    """Pass each record of a stream to every reader, in order, for ever."""
    async with aclosing(stream.records()) as records:
        async for record in records:
            for read in readers:
                read(record)


@dataclass(frozen=True, slots=True)
class _Subscriber:
    changed: Callable[[Iterable[Key]], None]
    released: Callable[[], None]


class DecisionCache:
    """The latest decision on every object."""

    def __init__(
        self,
        clock: Callable[[], float],
        limited: Callable[[Budget | None], None] = lambda _: None,
    ) -> None:
        """Call `limited` with the limits on moves whenever the stream reports them."""
        self.holds: tuple[str, ...] = ("the decision stream has not begun",)
        self.settling = Settling()
        self.freshness = Freshness[None](clock, settle_seconds=SETTLE_SECONDS)
        self.seen_at: float | None = None  # by `clock`: the last record
        self._clock = clock
        self._limited = limited
        self._subscribers: list[_Subscriber] = []
        # Of decisions that are not carried out yet: the context of the trace, and `seq`.
        self.traces: dict[Key, tuple[str, int]] = {}
        self._wanted: dict[Key, Wanted] = {}
        self._unconfirmed: set[Key] = set()

    def subscribe(
        self, changed: Callable[[Iterable[Key]], None], released: Callable[[], None] = lambda: None
    ) -> None:
        """Call `changed` with the keys whose decision or usability changed.

        `released` is called when the last hold is lifted.
        """
        self._subscribers.append(_Subscriber(changed, released))

    def get(self, key: Key) -> Wanted | None:
        """Return the present decision on an object."""
        return None if key in self._unconfirmed else self._wanted.get(key)

    def may_act(self, key: Key) -> bool:
        """Return whether the decision on an object may be acted on now."""
        return not self.holds and key not in self._unconfirmed

    def known(self) -> Iterable[Key]:
        """Return every object with a decision."""
        return tuple(self._wanted)

    def apply_record(self, record: Record | None) -> None:
        """Apply one record; None: a new stream begins."""
        if record is not None:
            self.seen_at = self._clock()
        match record:
            case None:
                self._unconfirmed = set(self._wanted)
                self._hold(("the decision stream is new",))
            case DecisionRecord():
                self.settling.decided(record.cause, self._clock())
                key = _key(record.object)
                self._wanted[key] = Wanted(
                    record.uid, record.decision, record.failure, record.policy
                )
                self._unconfirmed.discard(key)
                if tracing.recorder is not None:
                    self._note_trace(key, record)
                self._changed([key])
            case DeletedRecord():
                self._forget([_key(record.object)])
            case StatusRecord():
                self.freshness.replace(Stale(s.source, s.seconds, s.reason) for s in record.stale)
                # While it holds, these may be the limits of an engine that is starting.
                if not record.held:
                    self._limited(record.budget)
                self._hold(record.held)
            case BookmarkRecord():
                self.settling.bookmark()
                # A complete stream that does not mention an object has no decision on it.
                self._forget(list(self._unconfirmed))

    def _note_trace(self, key: Key, record: DecisionRecord) -> None:
        if record.trace:
            self.traces[key] = record.trace, record.seq
        else:
            self.traces.pop(key, None)

    def _forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._wanted.pop(key, None)
            self.traces.pop(key, None)
            self._unconfirmed.discard(key)
        self._changed(keys)

    def _hold(self, reasons: tuple[str, ...]) -> None:
        if reasons == self.holds:
            return
        log.info("remediation_holds" if reasons else "remediation_resumes", reasons=reasons)
        self.holds = reasons
        if not reasons:
            self._changed(self.known())
            for subscriber in self._subscribers:
                subscriber.released()

    def _changed(self, keys: Iterable[Key]) -> None:
        for subscriber in self._subscribers:
            subscriber.changed(keys)


class Settling:
    """Detects when a batch of decisions is complete.

    A change of one object ends with its bookmark. A change of the fleet or the policies may change
    the decisions on thousands of objects, in many batches with a bookmark after each; all of them
    have to be known before the first object is moved, so such a change ends with a pause.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._whole = True
        self._alone = True

    def decided(self, cause: str, now: float) -> None:
        """Record a decision and its cause."""
        self._first = now if self._first is None else self._first
        self._last = now
        self._whole = False
        self._alone &= cause == "object"

    def bookmark(self) -> None:
        """Record that a batch is complete."""
        self._whole = True

    def wait(self, now: float) -> float:
        """Return the seconds to wait; 0: the decisions are complete."""
        if self._first is None or (self._whole and self._alone):
            return 0.0
        return max(0.0, min(self._last + _PAUSE, self._first + _LONGEST) - now)

    def begin(self) -> None:
        """Start a new batch: the decisions so far are acted on."""
        self._first, self._alone = None, True


def _key(target: Target) -> Key:
    return (target.gvr, target.key)
