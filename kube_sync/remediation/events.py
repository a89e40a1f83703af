"""Kubernetes Events about objects that are held, with the reason.

Level-based: a queue carries keys, and the worker reads what each is held by when it gets the key; a
hold that has ended by then gets no Event. The recorder counts repetitions and limits the rate.

Also about objects that decisions depend on and that the replicator cannot decode, since it may not
write Events itself: one Event each until it is readable again, from the leader.
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
_QUIET = frozenset(["unseen", "dry-run", "adding"])  # over in a moment, or as configured


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should know about an object."""

    key: Key
    uid: str
    kind: str  # one word
    text: str


_Subject = Key | Unreadable | Notice


class EventReporter:
    """Writes the Events of one remediator."""

    def __init__(
        self,
        recorder: EventRecorder,
        kind_of: Callable[[GroupVersionResource], Awaitable[str]],
        may_write: Callable[[], bool],
    ) -> None:
        """Look up the kind of a resource with `kind_of`, which raises SyncError.

        `may_write` returns whether this process may write now.
        """
        self._recorder = recorder
        self._kind_of = kind_of
        self._may_write = may_write
        self._queue = WorkQueue[_Subject]("remediation_events")
        self._unreadable: frozenset[Unreadable] = frozenset()
        self._reported: frozenset[Unreadable] = frozenset()
        self.enqueue: Callable[[Key], None] = self._queue.add

    def warn(self, key: Key, uid: str, text: str) -> None:
        """Enqueue a warning about a placement that was written."""
        self.notify(Notice(key, uid, "unknown_clusters", text))

    def notify(self, notice: Notice) -> None:
        """Enqueue a notice."""
        self._queue.add(notice)

    def apply_record(self, record: Record | None) -> None:
        """Read from a status record the objects that cannot be decoded."""
        if isinstance(record, StatusRecord):
            self._unreadable = frozenset(u for late in record.stale for u in late.unreadable)
            if not record.held:  # otherwise it may only not have been read yet
                self._reported &= self._unreadable
            self.lead()

    def lead(self) -> None:
        """Enqueue the Events not sent yet, if this process may write; called when it may."""
        for found in self._unreadable - self._reported if self._may_write() else ():
            self._queue.add(found)

    async def run(self, waiting: Waiting) -> NoReturn:
        """Write Events about what is in `waiting`, until cancelled."""
        await work(self._queue, partial(self._reconcile, waiting))

    async def _reconcile(self, waiting: Waiting, subject: _Subject) -> Result:
        try:
            if isinstance(subject, Unreadable):
                await self._report_unreadable(subject)
            elif isinstance(subject, Notice):
                await self._occurred(subject.key, subject.uid, subject.kind, subject.text)
            elif (wait := waiting.get(subject)) is not None and wait.kind not in _QUIET:
                await self._report(subject, wait)
        except SyncError as error:
            # No retry: what makes kinds unknown prevents Events too.
            log.info("event_not_told", key=str(_object_of(subject)), error=str(error))
        return Result()

    async def _report(self, key: Key, wait: Wait) -> None:
        # Without times, which would make each Event a new one.
        release = "" if wait.until is not None and wait.approve is None else f" ({wait.release})"
        await self._occurred(key, wait.uid, wait.kind, wait.reason + release)

    async def _report_unreadable(self, found: Unreadable) -> None:
        if found in self._unreadable:
            key = found.object.gvr, found.object.key
            await self._occurred(key, found.uid, "unreadable", found.reason + _HOLDS)
            self._reported |= {found}

    async def _occurred(self, key: Key, uid: str, kind: str, note: str) -> None:
        gvr, name = key
        api_version = gvr.api_version
        regarding = Reference(api_version, await self._kind_of(gvr), name.namespace, name.name, uid)
        reason = "Remediation" + "".join(map(str.capitalize, kind.split("_")))
        occurrence = Occurrence(regarding, None, reason, "Hold", cut(note))
        self._recorder.occurred(occurrence, name.namespace)


def _object_of(subject: _Subject) -> ObjectKey:
    if isinstance(subject, Unreadable):
        return subject.object.key
    return subject.key[1] if isinstance(subject, Notice) else subject[1]
