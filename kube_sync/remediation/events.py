"""Tell by Events of objects that are not as they were decided to be, and why.

Level-based: it is told keys, and tells what they wait for when their turn has come; what waits no
longer then is not told. The recorder counts what happens again, and bounds how much is told.

Also of objects that decisions stand on and that the replicator cannot read: it may write no Events
beside them. Each is told once, until it can be read again, by whoever may write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import structlog

from kube_sync.decisions.records import Record, StatusRecord, Unreadable
from kube_sync.errors import SyncError
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import Occurrence, Reference, cut
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.holds import Wait, Waiting
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

CONTROLLER = "kube-sync.io/remediator"
_HOLDS = "; where decisions may depend on it, moves are held (until it can be read, or is gone)"
_QUIET = frozenset(["unseen", "dry-run"])  # over in a moment, or what was asked for


@dataclass(frozen=True, slots=True)
class _Warning:
    """What is wrong with a placement that was written."""

    key: Key
    uid: str
    text: str


_Subject = Key | Unreadable | _Warning


class EventReporter:
    """The Events of one remediator."""

    def __init__(
        self,
        recorder: EventRecorder,
        kind_of: Callable[[GroupVersionResource], Awaitable[str]],
        may_write: Callable[[], bool],
    ) -> None:
        """`kind_of` asks for the kind of a resource. Raises SyncError.

        `may_write` tells whether this process may write now.
        """
        self._recorder = recorder
        self._kind_of = kind_of
        self._may_write = may_write
        self._queue = WorkQueue[_Subject]("remediation_events")
        self._unreadable: frozenset[Unreadable] = frozenset()
        self._told: frozenset[Unreadable] = frozenset()
        self.tell: Callable[[Key], None] = self._queue.add

    def warn(self, key: Key, uid: str, text: str) -> None:
        """Tell what is wrong with a placement that was written."""
        self._queue.add(_Warning(key, uid, text))

    def take(self, record: Record | None) -> None:
        """Take in what the stream says of objects that cannot be read."""
        if isinstance(record, StatusRecord):
            self._unreadable = frozenset(u for late in record.stale for u in late.unreadable)
            if not record.held:  # or it may only not have been read yet
                self._told &= self._unreadable
            self.lead()

    def lead(self) -> None:
        """Tell what was not told yet, if this process may write: it may be so from now on."""
        for found in self._unreadable - self._told if self._may_write() else ():
            self._queue.add(found)

    async def run(self, waiting: Waiting) -> NoReturn:
        """Tell what is in `waiting`, until cancelled."""
        await work(self._queue, partial(self._reconcile, waiting))

    async def _reconcile(self, waiting: Waiting, turn: _Subject) -> Result:
        try:
            if isinstance(turn, Unreadable):
                await self._tell_unreadable(turn)
            elif isinstance(turn, _Warning):
                await self._occurred(turn.key, turn.uid, "unknown_clusters", turn.text)
            elif (wait := waiting.get(turn)) is not None and wait.kind not in _QUIET:
                await self._tell(turn, wait)
        except SyncError as error:
            # Not tried again: what keeps kinds from being known keeps Events from being written.
            log.info("event_not_told", key=str(_object_of(turn)), error=str(error))
        return Result()

    async def _tell(self, key: Key, wait: Wait) -> None:
        # A time would make each Event another one.
        release = "" if wait.until is not None and wait.approve is None else f" ({wait.release})"
        await self._occurred(key, wait.uid, wait.kind, wait.reason + release)

    async def _tell_unreadable(self, found: Unreadable) -> None:
        if found in self._unreadable:
            key = found.object.gvr, found.object.key
            await self._occurred(key, found.uid, "unreadable", found.reason + _HOLDS)
            self._told |= {found}

    async def _occurred(self, key: Key, uid: str, kind: str, note: str) -> None:
        gvr, name = key
        api_version = gvr.api_version
        regarding = Reference(api_version, await self._kind_of(gvr), name.namespace, name.name, uid)
        reason = "Remediation" + "".join(map(str.capitalize, kind.split("_")))
        what = Occurrence(regarding, None, reason, "Hold", cut(note))
        self._recorder.occurred(what, name.namespace)


def _object_of(turn: _Subject) -> ObjectKey:
    if isinstance(turn, Unreadable):
        return turn.object.key
    return turn.key[1] if isinstance(turn, _Warning) else turn[1]
