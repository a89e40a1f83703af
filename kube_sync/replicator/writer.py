"""The only writer of OPA's data: one epoch from the first load to the day that OPA is lost.

A load begins with PUT of `/kube_sync/epoch` = `{<instance>: "loading"}` and ends with a PATCH
that replaces it by `"loaded"`. Every PATCH begins with `replace` of `/kube_sync/epoch/<instance>`,
so an OPA that was restarted, wiped or taken over by another replicator refuses it (404), in the
middle of a load too; a heartbeat finds the same without traffic. Then `run` raises EpochLost and
whoever owns the Writer starts a new epoch. (PUT alone proves nothing: it creates its parents.)

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
from kube_sync.replicator.firstload import FirstLoad
from kube_sync.replicator.ledger import Ledger
from kube_sync.replicator.mirror import Batch, Mirror
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

EPOCH: DataPath = ("kube_sync", "epoch")

# OPA's PATCH is quadratic in its operations: 100 cost 9 ms, 1,000 cost 118 ms, and every reader
# waits for the writer.
_KEYS_PER_PATCH = 100
_HEARTBEAT_SECONDS = 1.0
_SETTLE_SECONDS = 5.0  # what a write that is under way gets to end, when nobody wants it any more


class DataApi(Protocol):
    """The part of OPA that is written to."""

    async def get_data(self, path: DataPath) -> bytes | None:
        """Return the document at `path`, None where there is none."""
        ...

    async def put_data(self, path: DataPath, document: bytes) -> None:
        """Replace everything at `path`."""
        ...

    async def stream_data(self, path: DataPath, chunks: AsyncIterator[bytes]) -> None:
        """Replace everything at `path` by a document that arrives in pieces."""
        ...

    async def patch_data(self, operations: Sequence[bytes]) -> None:
        """Apply all operations or none; EpochLost when a path is not there."""
        ...


# What was written: the collection's name and the keys that changed in it.
Written = Callable[[str, Collection[ObjectKey]], None]


class Writer:
    """Brings every Mirror's wanted state into OPA, in one epoch."""

    def __init__(
        self,
        opa: DataApi,
        instance: str,
        mirrors: Iterable[Mirror],
        readiness: Readiness,
        written: Written,
        ledger: Ledger,
        *,
        backoff: Backoff | None = None,
        heartbeat: float = _HEARTBEAT_SECONDS,
    ) -> None:
        self._opa = opa
        self._instance = instance
        self._mirrors = list(mirrors)
        self._ledger = ledger
        self._readiness = readiness
        self._written = written
        self._backoff = backoff or Backoff(longest=5.0)
        self._heartbeat = heartbeat
        self._news = asyncio.Event()
        self._looks: list[asyncio.Future[None]] = []
        self._patching = asyncio.Lock()  # what one PATCH stands on may not go in another
        self.loaded = asyncio.Event()

    def wake(self) -> None:
        """Say that a Mirror has something to write."""
        self._news.set()

    async def stands(self) -> None:
        """Return once OPA was found, from now on, to hold this epoch. Raises EpochLost."""
        look = asyncio.get_running_loop().create_future()
        self._looks.append(look)
        self._news.set()
        await look

    async def run(self) -> NoReturn:
        """Load everything, then write what changes. Raises EpochLost."""
        try:
            await self._load()
            self.loaded.set()
            while True:
                await self._flush()
                await self._wait()
        finally:
            for look in self._looks:
                if not look.done():
                    look.set_exception(EpochLost("the epoch has ended"))

    async def _wait(self) -> None:
        """Wait for news; without, or when asked to, find out whether OPA holds the epoch."""
        try:
            # Not wait_for: before Python 3.12 it swallows a cancellation that comes with news.
            async with asyncio.timeout(self._heartbeat):
                await self._news.wait()
            looks, idle = list(self._looks), False
        except TimeoutError:
            looks, idle = list(self._looks), True
        self._news.clear()
        if looks or idle:
            await self._patch([self._epoch("loaded")])
        for look in looks:
            self._looks.remove(look)
            if not look.done():
                look.set_result(None)

    async def add(self, mirror: Mirror) -> None:
        """Load one more collection beside those that are in, and write what changes in it.

        Raises SyncError when OPA did not take the document: only another LIST has it.
        """
        await self._patch([self._epoch("loaded"), self._ledger.enter(mirror.name)])
        await self._send(mirror)
        self._mirrors.append(mirror)
        self._tell(mirror, tuple(mirror.keys()))
        self.wake()  # for what came meanwhile

    async def drop(self, mirror: Mirror) -> None:
        """Write nothing of `mirror` any more; nothing of it is under way afterwards."""
        async with self._patching:
            if mirror in self._mirrors:
                self._mirrors.remove(mirror)
            self._count()

    async def withdraw(self, name: str) -> None:
        """Remove a collection that was dropped from OPA. Raises EpochLost."""
        async with self._patching:
            await self._insist(partial(self._remove, name, "loaded"))

    async def _remove(self, name: str, state: str) -> None:
        """Remove a collection that may be there or not, in steps that can all be made again."""
        epoch = self._epoch(state)
        await self._opa.patch_data([epoch, self._ledger.enter(name)])
        # OPA refuses to remove what is not there, as after an answer that was lost. The PATCH
        # before proves that this is our OPA still.
        await self._opa.put_data(self._ledger.path(name), b"{}")
        await self._opa.patch_data([epoch, *self._ledger.strike(name)])

    async def _patch(self, operations: Sequence[bytes]) -> None:
        async with self._patching:
            await self._insist(partial(self._opa.patch_data, operations))

    async def _load(self) -> None:
        self._readiness.waiting("data", "the first load is under way")
        epoch = msgspec.json.encode({self._instance: "loading"})
        await self._insist(partial(self._opa.put_data, EPOCH, epoch))
        await self._insist(self._ledger.open)
        async with asyncio.TaskGroup() as group:
            for mirror in self._mirrors:
                group.create_task(self._put(mirror))
        for name in self._ledger.stale:
            await self._insist(partial(self._remove, name, "loading"))
            log.info("collection_removed", resource=name, reason="not configured any more")
        await self._insist(partial(self._opa.patch_data, [self._epoch("loaded")]))
        self._readiness.met("data")
        log.info("opa_loaded", instance=self._instance)

    async def _put(self, mirror: Mirror) -> None:
        try:
            await self._send(mirror)
        except SyncError as error:
            # What was sent is gone, here and there: only another LIST has it.
            self._readiness.waiting("opa", str(error))
            raise EpochLost(str(error)) from error
        self._tell(mirror, tuple(mirror.keys()))

    async def _send(self, mirror: Mirror) -> None:
        """Send the first LIST while it arrives; one that breaks off is sent again, whole."""
        while True:
            path, first = await mirror.first_load()
            try:
                await self._stream(path, first)
            except SyncError:
                if first.abandoned:
                    continue
                raise
            mirror.first_written(first)
            return

    async def _stream(self, path: DataPath, first: FirstLoad) -> None:
        # A task of its own: cancelled when all is sent, OPA might apply it after what comes next.
        sending = asyncio.create_task(self._opa.stream_data(path, first.chunks()))
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            first.abandon()
            await asyncio.wait([sending], timeout=_SETTLE_SECONDS)
            if not sending.cancel():
                sending.exception()  # so that nobody complains that it was never looked at
            raise

    async def _flush(self) -> None:
        while True:
            # From the choice of a batch to its end: nothing of it may be dropped in between.
            async with self._patching:
                if not (batches := self._batches()):
                    return
                await self._write(batches)

    async def _write(self, batches: list[tuple[Mirror, Batch]]) -> None:
        operations = [self._epoch("loaded")]
        for mirror, batch in batches:
            operations += mirror.operations(batch)
        # Only removals of what OPA never held: nothing to say.
        if len(operations) > 1:
            await self._insist(partial(self._opa.patch_data, operations))
        for mirror, batch in batches:
            self._note(mirror, batch)

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
        self._count()
        self._written(mirror.name, keys)

    def _count(self) -> None:
        metrics.pending_changes.set(sum(mirror.pending for mirror in self._mirrors))

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
