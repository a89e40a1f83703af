"""Tell by Events of objects that are not as they were decided to be, and why.

Level-based: it is told keys, and tells what they wait for when their turn has come; what waits no
longer then is not told. The recorder counts what happens again, and bounds how much is told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog

from kube_sync.errors import SyncError
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import Occurrence, Reference, cut
from kube_sync.objects import GroupVersionResource
from kube_sync.remediator.decided import Key
from kube_sync.remediator.waiting import Wait, Waiting
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

CONTROLLER = "kube-sync.io/remediator"
_QUIET = frozenset(["unseen", "dry-run"])  # over in a moment, or what was asked for


class Telling:
    """The Events of one remediator."""

    def __init__(
        self,
        recorder: EventRecorder,
        kind_of: Callable[[GroupVersionResource], Awaitable[str]],
    ) -> None:
        """`kind_of` asks for the kind of a resource. Raises SyncError."""
        self._recorder = recorder
        self._kind_of = kind_of
        self._queue: WorkQueue[Key] = WorkQueue()
        self.tell = self._queue.add

    async def run(self, waiting: Waiting) -> NoReturn:
        """Tell what is in `waiting`, until cancelled."""
        while True:
            key = await self._queue.get()
            try:
                wait = waiting.get(key)
                if wait is not None and wait.kind not in _QUIET:
                    await self._tell(key, wait)
            except SyncError as error:
                # What keeps kinds from being known keeps Events from being written, too.
                log.info("event_not_told", key=str(key[1]), error=str(error))
            finally:
                self._queue.done(key)

    async def _tell(self, key: Key, wait: Wait) -> None:
        gvr, name = key
        api_version = f"{gvr.group}/{gvr.version}" if gvr.group else gvr.version
        kind = await self._kind_of(gvr)
        regarding = Reference(api_version, kind, name.namespace, name.name, wait.uid)
        # A time would make each Event another one.
        release = "" if wait.until is not None and wait.approve is None else f" ({wait.release})"
        reason = "Remediation" + "".join(map(str.capitalize, wait.kind.split("_")))
        what = Occurrence(regarding, None, reason, "Hold", cut(wait.reason + release))
        self._recorder.occurred(what, name.namespace)
