"""What the decision stream says: of each object, and whether any of it may be acted on.

While the decisions are held (OPA is being loaded, a kind is missing, the stream is new and
incomplete) nothing is written; what a new stream has not confirmed yet is not wanted either. How
much may move is told before nothing is held any more, and before all that is decided later.
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
from kube_sync.remediation.plan import Wanted
from kube_sync.runtime.freshness import SETTLE_SECONDS, Freshness, Stale

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Key = tuple[GroupVersionResource, ObjectKey]

_PAUSE = 0.2  # seconds without a decision
_LONGEST = 2.0  # seconds; a fleet that never rests is acted on nevertheless


class Records(Protocol):
    """Where records come from; None says that a new stream begins."""

    def records(self) -> AsyncGenerator[Record | None]:
        """Yield records for ever."""
        ...


async def follow(stream: Records, *readers: Callable[[Record | None], None]) -> None:
    """Hand each record of a stream to every reader, in their order, for ever."""
    async with aclosing(stream.records()) as records:
        async for record in records:
            for take in readers:
                take(record)


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
        """`limited` hears how much may move, as often as the stream says so."""
        self.holds: tuple[str, ...] = ("the decision stream has not begun",)
        self.settling = Settling()
        self.freshness = Freshness[None](clock, settle_seconds=SETTLE_SECONDS)
        self.seen_at: float | None = None  # by `clock`: the last sign of life
        self._clock = clock
        self._limited = limited
        self._subscribers: list[_Subscriber] = []
        self._wanted: dict[Key, Wanted] = {}
        self._unconfirmed: set[Key] = set()

    def subscribe(
        self, changed: Callable[[Iterable[Key]], None], released: Callable[[], None] = lambda: None
    ) -> None:
        """Tell `changed` what may have to be done differently from before, if only by now.

        `released` hears that nothing is held any more.
        """
        self._subscribers.append(_Subscriber(changed, released))

    def get(self, key: Key) -> Wanted | None:
        """Return what is wanted of an object now."""
        return None if key in self._unconfirmed else self._wanted.get(key)

    def may_act(self, key: Key) -> bool:
        """Tell whether what is known of an object may be acted on now."""
        return not self.holds and key not in self._unconfirmed

    def known(self) -> Iterable[Key]:
        """Return every object that was decided on."""
        return tuple(self._wanted)

    def take(self, record: Record | None) -> None:
        """Take one record in; None: a new stream begins."""
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
                self._changed([key])
            case DeletedRecord():
                self._forget([_key(record.object)])
            case StatusRecord():
                self.freshness.replace(Stale(s.source, s.seconds, s.reason) for s in record.stale)
                # While nothing moves it may be what an engine knows that has just begun.
                if not record.held:
                    self._limited(record.budget)
                self._hold(record.held)
            case BookmarkRecord():
                self.settling.bookmark()
                # What a complete stream did not mention is not decided any more.
                self._forget(list(self._unconfirmed))

    def _forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._wanted.pop(key, None)
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
    """When the decisions that have come are all that there are for now.

    A change of one object ends with its bookmark. What changes the fleet or the policies may change
    the decisions on thousands of objects, in many batches with a bookmark after each; all of them
    have to be known before the first object is moved, so such a change ends with a pause.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._whole = True
        self._alone = True

    def decided(self, cause: str, now: float) -> None:
        """Take note of a decision, made because of `cause`."""
        self._first = now if self._first is None else self._first
        self._last = now
        self._whole = False
        self._alone &= cause == "object"

    def bookmark(self) -> None:
        """Take note that a batch is complete."""
        self._whole = True

    def wait(self, now: float) -> float:
        """Return for how many seconds more to wait; 0: what has come is complete."""
        if self._first is None or (self._whole and self._alone):
            return 0.0
        return max(0.0, min(self._last + _PAUSE, self._first + _LONGEST) - now)

    def begin(self) -> None:
        """Begin anew: what has come is acted on."""
        self._first, self._alone = None, True


def _key(target: Target) -> Key:
    return (target.gvr, target.key)
