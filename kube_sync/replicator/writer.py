"""The only writer of OPA's data: one epoch from the first load to the day that OPA is lost.

A load begins with PUT of `/kube_sync/epoch` = `{<instance>: "loading"}` and ends with a PATCH
that replaces it by `"loaded"`. Every PATCH begins with `replace` of `/kube_sync/epoch/<instance>`,
so an OPA that was restarted, wiped or taken over by another replicator refuses it (404), in the
middle of a load too; a heartbeat finds the same without traffic, and has what OPA holds audited,
for it may have been changed by hand beside the epoch. Then `run` raises EpochLost and
whoever owns the Writer starts a new epoch. (PUT alone proves nothing: it creates its parents.)

A batch is applied once, whatever becomes of its answer: the Fence refuses a PATCH that arrives
late, and says of one that was refused whether it is in already.

Anything else that OPA answers is tried again, with the reason on the readiness page; what
arrives meanwhile waits in the Mirrors, one body a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NoReturn, Protocol

import msgspec
import structlog

from kube_sync.errors import EpochLost, SyncError
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa import paths
from kube_sync.opa.paths import DataPath
from kube_sync.replicator.fence import Fence
from kube_sync.replicator.mirror import Batch, Mirror
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

EPOCH: DataPath = ("kube_sync", "epoch")

# OPA's PATCH is quadratic in its operations: 100 cost 9 ms, 1,000 cost 118 ms, and every reader
# waits for the writer.
_KEYS_PER_PATCH = 100
_HEARTBEAT_SECONDS = 1.0


class DataApi(Protocol):
    """The part of OPA that is written to."""

    async def put_data(self, path: DataPath, document: bytes) -> None:
        """Replace everything at `path`."""
        ...

    async def stream_data(self, path: DataPath, chunks: AsyncIterator[bytes]) -> None:
        """Replace everything at `path` by a document that arrives in pieces."""
        ...

    async def patch_data(self, operations: Sequence[bytes]) -> None:
        """Apply all operations or none; EpochLost when a path is not there."""
        ...

    async def get_data(self, path: DataPath) -> bytes | None:
        """Return the document at `path`, None where there is none."""
        ...


# What was written: the collection's name and the keys that changed in it.
Written = Callable[[str, Collection[ObjectKey]], None]
# Raises EpochLost when OPA does not hold what was written.
Audits = Callable[[Iterable[Mirror]], Awaitable[None]]


class Writer:
    """Brings every Mirror's wanted state into OPA, in one epoch."""

    def __init__(
        self,
        opa: DataApi,
        instance: str,
        mirrors: Iterable[Mirror],
        readiness: Readiness,
        written: Written,
        *,
        backoff: Backoff | None = None,
        heartbeat: float = _HEARTBEAT_SECONDS,
        audit: Audits | None = None,
    ) -> None:
        self._opa = opa
        self._instance = instance
        self._mirrors = tuple(mirrors)
        self._readiness = readiness
        self._written = written
        self._backoff = backoff or Backoff(longest=5.0)
        self._heartbeat = heartbeat
        self._audit = audit
        self._fence = Fence(opa, instance)
        self._news = asyncio.Event()
        self.loaded = asyncio.Event()

    def wake(self) -> None:
        """Say that a Mirror has something to write."""
        self._news.set()

    async def run(self) -> NoReturn:
        """Load everything, then write what changes. Raises EpochLost."""
        await self._load()
        self.loaded.set()
        while True:
            await self._write_until(self._clock() + self._heartbeat)
            await self._insist(partial(self._opa.patch_data, [self._epoch("loaded")]))
            if self._audit is not None:
                await self._audit(self._mirrors)

    async def _write_until(self, due: float) -> None:
        """Write what changes until the next heartbeat; without a pause it comes all the same."""
        while True:
            # Before the batch: what comes while it is on its way is news again.
            self._news.clear()
            wrote = await self._flush()
            if self._clock() >= due:
                return
            if wrote:
                continue
            try:
                # Not wait_for: before Python 3.12 it swallows a cancellation that comes with news.
                async with asyncio.timeout_at(due):
                    await self._news.wait()
            except TimeoutError:
                return

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()

    async def _load(self) -> None:
        self._readiness.waiting("data", "the first load is under way")
        epoch = msgspec.json.encode({self._instance: "loading"})
        await self._insist(partial(self._opa.put_data, EPOCH, epoch))
        async with asyncio.TaskGroup() as group:
            for mirror in self._mirrors:
                group.create_task(self._put(mirror))
        end = [self._epoch("loaded"), self._fence.raised()]
        await self._insist(partial(self._opa.patch_data, end))
        self._readiness.met("data")
        log.info("opa_loaded", instance=self._instance)

    async def _put(self, mirror: Mirror) -> None:
        """Send the first LIST while it arrives; one that breaks off is sent again, whole."""
        while True:
            path, first = await mirror.first_load()
            try:
                await self._opa.stream_data(path, first.chunks())
            except SyncError as error:
                if first.abandoned:
                    continue
                # What was sent is gone, here and there: only another LIST has it.
                self._readiness.waiting("opa", str(error))
                raise EpochLost(str(error)) from error
            mirror.first_written(first)
            self._tell(mirror, first.versions.keys())
            return

    async def _flush(self) -> bool:
        """Write one batch; returns whether there was one."""
        batches = self._batches()
        operations = [o for mirror, batch in batches for o in mirror.operations(batch)]
        # Only removals of what OPA never held: nothing to say.
        if operations:
            await self._insist(partial(self._send, operations))
        for mirror, batch in batches:
            self._note(mirror, batch)
        return bool(batches)

    async def _send(self, operations: Sequence[bytes]) -> None:
        """Send one batch; one that an earlier attempt brought in counts as sent."""
        batch = [self._epoch("loaded"), *self._fence.step(), *operations]
        try:
            await self._opa.patch_data(batch)
        except EpochLost:
            if not await self._fence.let_through():
                raise
            metrics.opa_answers_lost.inc()
            log.info("opa_answer_lost", operations=len(operations))
        self._fence.passed()

    def _batches(self) -> list[tuple[Mirror, Batch]]:
        room = _KEYS_PER_PATCH
        batches: list[tuple[Mirror, Batch]] = []
        for mirror in self._mirrors:
            if room > 0 and (batch := mirror.batch(room)):
                batches.append((mirror, batch))
                room -= len(batch)
        return batches

    def _note(self, mirror: Mirror, batch: Batch) -> None:
        mirror.written(batch)
        self._tell(mirror, batch.keys())

    def _tell(self, mirror: Mirror, keys: Collection[ObjectKey]) -> None:
        metrics.replicated_objects.labels(mirror.name).set(mirror.held)
        metrics.pending_changes.set(sum(m.pending for m in self._mirrors))
        self._written(mirror.name, keys)

    def _epoch(self, state: str) -> bytes:
        path = paths.pointer((*EPOCH, self._instance))
        return msgspec.json.encode({"op": "replace", "path": path, "value": state})

    async def _insist(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write until OPA has taken it. Raises EpochLost."""
        while True:
            try:
                await write()
            except EpochLost:
                raise
            except SyncError as error:
                self._readiness.waiting("opa", str(error))
                await self._backoff.wait(getattr(error, "retry_after", None))
            else:
                self._readiness.met("opa")
                self._backoff.progressed()
                return
