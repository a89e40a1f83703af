"""What the decision stream says: of each object, and whether any of it may be acted on.

While the decisions are held (OPA is being loaded, a kind is missing, the stream is new and
incomplete) nothing is written; what a new stream has not confirmed yet is not wanted either. How
much may move is told before nothing is held any more, and before all that is decided later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
from kube_sync.remediator.plan import Wanted
from kube_sync.remediator.settling import Settling
from kube_sync.runtime.freshness import SETTLE_SECONDS, Freshness, Stale

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Key = tuple[GroupVersionResource, ObjectKey]


class Decided:
    """The latest decision on every object."""

    def __init__(
        self,
        changed: Callable[[Iterable[Key]], None],
        clock: Callable[[], float],
        limited: Callable[[Budget | None], None] = lambda _: None,
    ) -> None:
        """Tell `changed` what may have to be done differently from before, if only by now.

        `limited` hears how much may move, as often as the stream says so.
        """
        self.holds: tuple[str, ...] = ("the decision stream has not begun",)
        self.settling = Settling()
        self.freshness = Freshness[None](clock, settle_seconds=SETTLE_SECONDS)
        self.seen_at: float | None = None  # by `clock`: the last sign of life
        self._changed = changed
        self._clock = clock
        self._limited = limited
        self._wanted: dict[Key, Wanted] = {}
        self._unconfirmed: set[Key] = set()

    def get(self, key: Key) -> Wanted | None:
        """Return what is wanted of an object now."""
        return None if key in self._unconfirmed else self._wanted.get(key)

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
                self._wanted[key] = Wanted(record.uid, record.decision, record.failure)
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
            self._changed(list(self._wanted))


def _key(target: Target) -> Key:
    return (target.gvr, target.key)
