"""The only writer of OPA's data: one epoch, from the first load until OPA is lost.

A load begins with PUT of `/kube_sync/epoch` = `{<instance>: "loading"}` and ends with a PATCH that
replaces it by `"loaded"`. Every PATCH begins with `replace` of `/kube_sync/epoch/<instance>`, so an
OPA that was restarted, wiped or taken over by another replicator rejects it (404), also during a
load. A heartbeat detects the same without traffic, and runs the audit of OPA's data, which may have
been changed by hand. Then `run` raises EpochLost, and the Writer's owner starts a new epoch. (PUT
alone proves nothing: it creates its parents.)

A batch is applied once, even if its answer is lost: the Fence rejects a PATCH that arrives late,
and shows for a rejected one whether it has been applied already.

Any other error of OPA is retried, with the reason in readiness; changes that arrive meanwhile wait
in the Mirrors, one body for each key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NoReturn

import msgspec
import structlog

from kube_sync.decisions.input_reader import InputReader
from kube_sync.errors import EpochLost, SyncError
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics, tracing
from kube_sync.observability.readiness import Readiness
from kube_sync.opa import paths
from kube_sync.opa.client import OpaClient, PolicyRejected
from kube_sync.opa.paths import DataPath
from kube_sync.replicator.bookkeeping import Fence, RootIndex
from kube_sync.replicator.bulk_load import FirstLoad
from kube_sync.replicator.datamaps import DataMaps, Written
from kube_sync.replicator.mirror import Batch, Mirror
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

EPOCH: DataPath = ("kube_sync", "epoch")

# OPA's PATCH is quadratic in its operations: 100 cost 9 ms, 1,000 cost 118 ms, and readers wait for
# the writer.
_KEYS_PER_PATCH = 100
# Far behind, waiting for OPA's lock takes longer than the work itself.
_FAR_BEHIND, _KEYS_FAR_BEHIND = 1_000, 300
_HEARTBEAT_SECONDS = 1.0
_ENDED = "the epoch has ended"
_SETTLE_SECONDS = 5.0  # for a write in flight when it is cancelled

# Raises EpochLost if OPA does not hold what was written.
Audits = Callable[[Iterable[Mirror]], Awaitable[None]]


class Writer:
    """Writes every Mirror's wanted state into OPA, in one epoch."""

    def __init__(
        self,
        opa: OpaClient,
        instance: str,
        mirrors: Iterable[Mirror],
        readiness: Readiness,
        written: Written,
        holdings: RootIndex,
        *,
        documents: DataMaps | None = None,
        backoff: Backoff | None = None,
        heartbeat: float = _HEARTBEAT_SECONDS,
        audit: Audits | None = None,
        away: Callable[[str | None], None] = lambda _: None,
        input_reader: InputReader | None = None,
    ) -> None:
        """`away` receives why OPA does not accept writes, None when it does."""
        self._away = away
        self._input_reader = input_reader
        self._opa = opa
        self._instance = instance
        self._mirrors = list(mirrors)
        self._holdings = holdings
        self._readiness = readiness
        self._written = written
        self._documents = documents
        self._backoff = backoff or Backoff(longest=5.0)
        self._heartbeat = heartbeat
        self._audit = audit
        self._fence = Fence(opa, instance)
        self._state = "loading"
        self._changed = asyncio.Event()
        self._checks: list[asyncio.Future[None]] = []
        self._ended = False
        self._patching = asyncio.Lock()  # no other PATCH may come between the steps of one
        self.loaded = asyncio.Event()

    def wake(self) -> None:
        """Notify that a Mirror has something to write."""
        self._changed.set()

    async def verify_epoch(self) -> None:
        """Return once OPA was checked, after this call, to hold this epoch. Raises EpochLost."""
        if self._ended:
            raise EpochLost(_ENDED)
        check = asyncio.get_running_loop().create_future()
        self._checks.append(check)
        self._changed.set()
        await check

    async def run(self) -> NoReturn:
        """Load everything, then write changes. Raises EpochLost."""
        try:
            await self._load()
            self.loaded.set()
            while True:
                await self._write_until(self._clock() + self._heartbeat)
                await self._beat()
        finally:
            self._ended = True
            for check in self._checks:
                if not check.done():
                    check.set_exception(EpochLost(_ENDED))

    async def add(self, mirror: Mirror) -> None:
        """Load one more collection beside the others, and write its changes from then on.

        Raises SyncError when OPA did not accept the document: it takes another LIST.
        """
        async with self._patching:
            await self._patch([self._holdings.enter(mirror.name)])
        await self._send(mirror)
        self._mirrors.append(mirror)
        self._report_written(mirror, mirror.keys())
        self.wake()  # for changes that arrived meanwhile

    async def drop(self, mirror: Mirror) -> None:
        """Stop writing `mirror`; afterwards none of its writes is in flight."""
        async with self._patching:
            if mirror in self._mirrors:
                self._mirrors.remove(mirror)

    async def withdraw(self, name: str) -> None:
        """Remove a dropped collection from OPA. Raises EpochLost."""
        async with self._patching:
            await self._remove(name)

    async def _remove(self, name: str) -> None:
        """Remove a collection, whether or not it exists."""
        with self._whole(name):
            await self._clear(name)

    async def _clear(self, name: str) -> None:
        await self._patch([self._holdings.enter(name)])
        # OPA rejects removing a missing path. The PATCH before proves that this is our OPA.
        await self._insist(partial(self._opa.put_data, self._holdings.path(name), b"{}"))
        await self._patch(self._holdings.strike(name))

    async def _write_until(self, due: float) -> None:
        """Write changes until the next heartbeat, which is due even under constant load."""
        while True:
            # Cleared before the batch: changes during the batch count as news.
            self._changed.clear()
            wrote = await self._flush()
            if self._checks or self._clock() >= due:
                return
            if wrote:
                continue
            try:
                # Not wait_for: before Python 3.12 it swallows a cancellation that comes with the
                # event.
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def _beat(self) -> None:
        """Check that OPA holds the epoch, and audit its data."""
        checks = list(self._checks)
        async with self._patching:
            await self._insist(partial(self._opa.patch_data, [self._epoch()]))
            if self._audit is not None:
                await self._audit(self._mirrors)
        for check in checks:
            self._checks.remove(check)
            if not check.done():
                check.set_result(None)

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()

    async def _load(self) -> None:
        self._readiness.waiting("data", "the first load is under way")
        epoch = msgspec.json.encode({self._instance: "loading"})
        await self._insist(partial(self._opa.put_data, EPOCH, epoch))
        await self._insist(partial(self._opa.patch_data, [self._epoch(), self._fence.raised()]))
        await self._insist(self._holdings.open)
        async with asyncio.TaskGroup() as group:
            for mirror in self._mirrors:
                group.create_task(self._put(mirror))
        for name in self._holdings.stale:
            await self._remove(name)
            log.info("collection_removed", resource=name, reason="not configured any more")
        if self._documents is not None:
            await self._insist(partial(self._documents.load, self._offer))
        self._state = "loaded"
        await self._insist(partial(self._opa.patch_data, [self._epoch()]))
        self._readiness.met("data")
        log.info("opa_loaded", instance=self._instance)

    async def _put(self, mirror: Mirror) -> None:
        try:
            await self._send(mirror)
        except SyncError as error:
            # The document was streamed and is gone: it takes another LIST.
            self._delayed(error)
            raise EpochLost(str(error)) from error
        self._report_written(mirror, mirror.keys())

    async def _send(self, mirror: Mirror) -> None:
        """Stream the first LIST while it arrives; after one that broke off stream the next one."""
        with self._whole(mirror.name):
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

    def _whole(self, name: str) -> AbstractContextManager[None]:
        return (
            nullcontext() if self._input_reader is None else self._input_reader.writing_whole(name)
        )

    async def _stream(self, path: DataPath, first: FirstLoad) -> None:
        # Its own task: if it were cancelled after the last byte, OPA might apply it after a later
        # write.
        sending = asyncio.create_task(self._opa.stream_data(path, first.chunks()))
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            first.abandon()
            await asyncio.wait([sending], timeout=_SETTLE_SECONDS)
            if not sending.cancel():
                sending.exception()  # mark the exception as retrieved
            raise

    async def _flush(self) -> bool:
        """Write one batch and pending documents; return whether there was anything."""
        # Locked from the choice of a batch to its end: no Mirror of it may be dropped in between.
        async with self._patching:
            if batches := self._batches():
                with nullcontext() if tracing.recorder is None else _span(batches):
                    await self._write(batches)
            return await self._write_documents() or bool(batches)

    async def _write(self, batches: list[tuple[Mirror, Batch]]) -> None:
        operations = [o for mirror, batch in batches for o in mirror.operations(batch)]
        # No operations: only removals of what OPA never held.
        if operations:
            if (
                self._input_reader is not None
            ):  # before the PATCH: an answer may show it at any moment
                changes = {mirror.name: frozenset(batch) for mirror, batch in batches}
                self._input_reader.batch(changes, self._fence.next)
            await self._patch(operations)
        for mirror, batch in batches:
            self._note(mirror, batch)

    async def _write_documents(self) -> bool:
        if self._documents is None or not self._documents.pending:
            return False
        await self._insist(partial(self._documents.write, self._offer))
        return True

    async def _offer(self, operations: Sequence[bytes]) -> None:
        """Send operations that OPA may reject for good. Raises PolicyRejected then."""
        await self._patch(operations, final=(EpochLost, PolicyRejected))

    async def _patch(
        self, operations: Sequence[bytes], final: tuple[type[SyncError], ...] = (EpochLost,)
    ) -> None:
        """Send one batch until OPA has applied it, once. Raises EpochLost."""
        # Retrying the same operations is safe: the fence counts them as one.
        await self._insist(partial(self._once, operations), final)

    async def _once(self, operations: Sequence[bytes]) -> None:
        """Send one batch; if an earlier attempt was applied it counts as sent."""
        try:
            await self._opa.patch_data([self._epoch(), *self._fence.step(), *operations])
        except EpochLost:
            if not await self._fence.is_applied():
                raise
            metrics.opa_answers_lost.inc()
            log.info("opa_answer_lost", operations=len(operations))
        self._fence.passed()

    def _batches(self) -> list[tuple[Mirror, Batch]]:
        behind = sum(mirror.pending for mirror in self._mirrors) > _FAR_BEHIND
        room = _KEYS_FAR_BEHIND if behind else _KEYS_PER_PATCH
        batches: list[tuple[Mirror, Batch]] = []
        for mirror in self._mirrors:
            if room > 0 and (batch := mirror.batch(room)):
                batches.append((mirror, batch))
                room -= len(batch)
        return batches

    def _note(self, mirror: Mirror, batch: Batch) -> None:
        mirror.written(batch)
        self._report_written(mirror, batch.keys())

    def _report_written(self, mirror: Mirror, keys: Collection[ObjectKey]) -> None:
        metrics.replicated_objects.labels(mirror.name).set(mirror.object_count)
        self._written(mirror.name, keys)

    def _epoch(self) -> bytes:
        path = paths.pointer((*EPOCH, self._instance))
        return msgspec.json.encode({"op": "replace", "path": path, "value": self._state})

    async def _insist(
        self,
        write: Callable[[], Awaitable[None]],
        final: tuple[type[SyncError], ...] = (EpochLost,),
    ) -> None:
        """Retry until OPA has accepted the write. Raises errors in `final`."""
        while True:
            try:
                await write()
            except final:
                raise
            except SyncError as error:
                self._delayed(error)
                await self._backoff.wait(getattr(error, "retry_after", None))
            else:
                self._readiness.met("opa")
                self._away(None)
                self._backoff.progressed()
                return

    def _delayed(self, error: SyncError) -> None:
        self._readiness.waiting("opa", str(error))
        self._away(f"OPA does not take what is written: {error}")


def _span(batches: list[tuple[Mirror, Batch]]) -> AbstractContextManager[object]:
    """Record a span from the first event of a batch until OPA holds it."""
    names = [f"{mirror.name} {key}" for mirror, batch in batches for key in batch]
    arrived = [change.arrived for _, batch in batches for change in batch.values()]
    since = min(filter(None, arrived), default=None)
    return tracing.span("replicate", tracing.objects(names), since=since)
