"""Make objects as they were decided to be: one key at a time, as often as it takes.

Level-based: the queue carries keys; each turn compares the latest decision with what the API
server holds and takes at most one step. While the decisions are held (OPA is being loaded, a
kind is missing, the stream is new and incomplete) nothing is written; what a new stream has not
confirmed yet is not written either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Literal, NoReturn

import structlog

from kube_sync.decisions.decision import REQUESTED
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    Record,
    StatusRecord,
    Target,
)
from kube_sync.errors import NotFound, SyncError, Terminal
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.remediator.overheard import Records
from kube_sync.remediator.plan import Apply, Current, Forget, Held, Wanted, plan
from kube_sync.remediator.targets import Targets
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Mode = Literal["off", "dry-run", "manual", "enforce"]
Key = tuple[GroupVersionResource, ObjectKey]
Patch = Callable[[GroupVersionResource, ObjectKey, Apply | Forget], Awaitable[None]]

_RETRY_SECONDS = 1.0


class Reconciler:
    """Everything the remediator knows, and the loop that acts on it."""

    def __init__(self, patch: Patch, mode: Mode) -> None:
        self._patch = patch
        self._mode = mode
        self._wanted: dict[Key, Wanted] = {}
        self._unconfirmed: set[Key] = set()
        self._targets: dict[GroupVersionResource, Targets] = {}
        self._queue: WorkQueue[Key] = WorkQueue()
        self._backoffs: dict[Key, Backoff] = {}
        self._holds: tuple[str, ...] = ("the decision stream has not begun",)

    def targets(self, gvr: GroupVersionResource) -> Targets:
        """Return the Store for one target collection."""
        return self._targets.setdefault(gvr, Targets(lambda key: self._queue.add((gvr, key))))

    async def follow(self, stream: Records) -> None:
        """Take every record in, for ever."""
        async with aclosing(stream.records()) as records:
            async for record in records:
                self.take(record)

    def take(self, record: Record | None) -> None:
        """Take one record in; None: a new stream begins."""
        match record:
            case None:
                self._unconfirmed = set(self._wanted)
                self._hold(("the decision stream is new",))
            case DecisionRecord():
                key = _key(record.object)
                self._wanted[key] = Wanted(record.uid, record.decision, record.failure)
                self._unconfirmed.discard(key)
                self._queue.add(key)
            case DeletedRecord():
                key = _key(record.object)
                self._wanted.pop(key, None)
                self._unconfirmed.discard(key)
            case StatusRecord():
                self._hold(record.held)
            case BookmarkRecord():
                # What a complete stream did not mention is not decided any more.
                for key in self._unconfirmed:
                    del self._wanted[key]
                self._unconfirmed = set()

    async def run(self) -> NoReturn:
        """Reconcile keys until cancelled; more than one of these may run side by side."""
        while True:
            key = await self._queue.get()
            try:
                await self._reconcile(key)
            finally:
                self._queue.done(key)

    async def _reconcile(self, key: Key) -> None:
        if self._holds or self._mode == "off":
            return  # every key is queued again when the hold ends
        if key in self._unconfirmed:
            return  # it is queued again when it is confirmed
        gvr, name = key
        current: Current | None = self._targets[gvr].get(name) if gvr in self._targets else None
        step = plan(self._wanted.get(key), current)
        if not isinstance(step, Apply | Forget):
            self._backoffs.pop(key, None)
        match step:
            case Held(reason):
                metrics.remediations.labels("held").inc()
                log.info("remediation_held", gvr=str(gvr), key=str(name), reason=reason)
            case Apply() | Forget():
                await self._write(key, step)

    async def _write(self, key: Key, step: Apply | Forget) -> None:
        gvr, name = key
        said = log.bind(gvr=str(gvr), key=str(name), **_named(step))
        if self._mode != "enforce":
            metrics.remediations.labels(self._mode).inc()
            said.info("remediation_not_written", mode=self._mode)
            return
        try:
            await self._patch(gvr, name, step)
        except NotFound:
            metrics.remediations.labels("gone").inc()
        except Terminal as error:
            metrics.remediations.labels("refused").inc()
            said.warning("remediation_refused", error=str(error))
        except SyncError as error:
            # A conflict too: by then the watch has told what is there instead.
            metrics.remediations.labels("retried").inc()
            said.warning("remediation_delayed", error=str(error))
            backoff = self._backoffs.setdefault(key, Backoff(_RETRY_SECONDS))
            self._queue.add_after(
                key, max(backoff.next_delay(), getattr(error, "retry_after", None) or 0.0)
            )
            return
        else:
            metrics.remediations.labels("applied").inc()
            said.info("remediated")
        self._backoffs.pop(key, None)

    def _hold(self, reasons: tuple[str, ...]) -> None:
        if reasons != self._holds:
            log.info("remediation_holds" if reasons else "remediation_resumes", reasons=reasons)
        self._holds = reasons
        if not reasons:
            for key in self._wanted:
                self._queue.add(key)


def _named(step: Apply | Forget) -> dict[str, list[str]]:
    """Return what a step writes, by name only."""
    if isinstance(step, Forget):
        return {"forgotten": [REQUESTED]}
    labels = {"labels": sorted(step.labels)} if step.labels else {}
    return {"annotations": sorted(step.annotations), **labels}


def _key(target: Target) -> Key:
    return (target.gvr, target.key)
