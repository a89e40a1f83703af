"""The only writer of the ledger: entries are queued at any time, a thread writes them in groups.

Invariant: the evaluation of decisions never waits for the file; the publisher may wait until the
entries so far are recorded, for a bounded time. Entries are written in their order of arrival. A
bounded number is queued while the file cannot be written; entries over it are counted, and a gap
takes their place as soon as the file can be written again, or in the next process if this one
ends before (`outage`). A file that is no ledger is renamed, which is recorded as a gap too. At its
end the journal writes all queued entries, if the file takes them.

An entry that can be encoded is first written to a file beside the ledger (`write_ahead`), by the
caller, and counts as recorded from then on: the thread may then take its time, and does not take
the interpreter lock from the event loop. A killed process leaves that file to the next one, which
reads it first.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from kube_sync.ledger.database import Torn
from kube_sync.ledger.entries import Entry, GapNote, Text
from kube_sync.ledger.entry_queue import EntryQueue, EntrySource, Queued, gap
from kube_sync.ledger.file import LedgerFile, Outage
from kube_sync.ledger.recovery import Recall, Recovery
from kube_sync.ledger.store import Store
from kube_sync.ledger.waker import Waker
from kube_sync.ledger.write_ahead import Ahead
from kube_sync.observability import metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()

KEPT: Final = 10_000  # entries that are queued while the file cannot be written

_GROUP = 500  # entries in one transaction
_AGAIN_SECONDS = 1.0
_PATIENCE_SECONDS = 0.25
_ENDING_SECONDS = 5.0


class Journal:
    """The replicator's and the remediator's interface to the ledger."""

    def __init__(
        self,
        path: Path,
        *,
        max_age: float,
        max_size: int,
        kept: int = KEPT,
        clock: Callable[[], float] = time.time,
        on_status: Callable[[str | None], None] = lambda _reason: None,
        recall: Recall | None = None,
        again: float = _AGAIN_SECONDS,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        """Keep rows for `max_age` seconds, in `max_size` bytes; `clock` is Unix seconds.

        A failed write is retried after `again` seconds; `on_status` is called with the error of the
        file, None: it can be written. No caller waits longer than `patience` (seconds).
        Without `recall` there is no write-ahead file.
        """
        self._path = path
        self._clock = clock
        self._on_status = on_status
        self._shown: str | None = ""
        self._again = again
        self._patience = patience
        self._queue = queue = EntryQueue(kept, clock)
        self._file = LedgerFile(
            path, max_age=max_age, max_size=max_size, clock=clock, begin_with=queue.put_first
        )
        self._ahead = Ahead(recall and path.with_name(f"{path.name}.ahead"))
        # The file of the queued entries, and the last of them in the ledger.
        self._generation, self._ingested = self._ahead.generation, 0
        self._recovery = Recovery(self._ahead, recall, clock)
        self._outage = Outage(path.with_name(f"{path.name}.outage"))
        self._wake, self._ending = threading.Event(), threading.Event()
        self._waker = Waker(self._wake.set, lambda: queue.accepted, self._is_ahead)
        self._waiting: set[asyncio.Event] = set()
        self._recover()
        metrics.ledger_unwritable.set(0)

    def _recover(self) -> None:
        """Queue the entries that an earlier process left, and a gap for those that it lost."""
        for source, number in self._recovery.entries():
            self._queue.put(source, partial(int, number))
        if not self._ahead.is_whole:
            self._miss("what was written ahead is not what an earlier process wrote", 0.0)
        if self._outage.since is not None:
            reason = "a process ended while it could not write all that it had to"
            self._miss(reason, self._outage.since)

    def _miss(self, reason: str, since: float) -> None:
        log.error("ledger_gap", entries=0, since=since, reason=reason)
        metrics.ledger_gaps.inc()
        self._queue.put(gap(GapNote(0, since, self._clock(), reason)))

    @property
    def failing(self) -> str | None:
        """Why the file cannot be written now, None: it can."""
        return self._queue.failing

    @property
    def head(self) -> tuple[int, str] | None:
        """Number and hash of the last row in the file, None: unknown yet."""
        return self._file.head

    @property
    def losing(self) -> bool:
        """Whether new entries are dropped and become part of a gap."""
        return self._queue.losing

    def enqueue(self, entry: Entry, texts: Sequence[Text] = ()) -> bool:
        """Queue one entry; return whether it was accepted."""
        entries = ((entry, texts),)
        return self.enqueue_source(lambda _store: entries)

    def enqueue_source(self, source: EntrySource, ahead: object = None) -> bool:
        """Queue the entries that `source` returns when they are written, in the thread of the file.

        It is called again if the write failed. `ahead` is their form in the write-ahead file, from
        which `recall` makes them; None: there is none. Returns whether they were accepted.
        """
        number = int if ahead is None else partial(self._ahead.add, ahead)
        if accepted := self._queue.put(source, number):
            self._waker.rouse()
        return accepted

    @property
    def generation(self) -> int:
        """The generation of the write-ahead file, 0: there is none."""
        return self._ahead.generation if self._waker.is_here else 0

    def precede(self, ahead: object) -> bool:
        """Write ahead an item that later ones refer to, no entry; return whether it is accepted."""
        return self._ahead.add(ahead) != 0

    def _is_ahead(self) -> bool:
        """Return whether all entries are written, ahead or in the ledger."""
        if self._queue.settled < self._queue.alone:
            return False
        return self._ahead.flush() and self._generation == self._ahead.generation

    async def recorded(self) -> bool:
        """Wait until all entries so far are on disk, ahead or in the ledger; return if they are.

        They are not if neither file can be written, or the ledger takes too long.
        """
        wanted = self._queue.accepted

        def is_recorded() -> bool:
            return self._queue.settled >= wanted or self._is_ahead()

        if is_recorded():
            return True
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            async with asyncio.timeout(self._patience):
                while not (is_recorded() or self.failing):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(changed)
        return is_recorded()

    async def run(self) -> None:
        """Write until cancelled; an unexpected error of the thread ends it."""
        loop = asyncio.get_running_loop()
        self._waker.start(loop)
        ended = loop.create_future()
        thread = threading.Thread(target=self._thread, args=[loop, ended], name="ledger")
        thread.daemon = True
        thread.start()
        try:
            await ended
        finally:
            self._waker.stop()
            self._ending.set()
            self._wake.set()
            thread.join(_ENDING_SECONDS)
            self._ahead.flush()
            self._ahead.close()

    def _thread(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        try:
            self._work(loop)
        except BaseException as error:
            # A ledger without a writer must not look like a working one.
            loop.call_soon_threadsafe(_failed, ended, error)
            raise

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        ended = False
        while not ended:
            ended = self._ending.is_set()  # then one last turn writes the entries before it
            self._wake.clear()
            while self._turn(loop):
                pass
            if self.failing is not None:
                self._ending.wait(self._again)
            elif not ended:
                self._wake.wait(self._again)
        self._file.end()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Write one group; return whether more may be written now."""
        try:
            store = self._opened()
            group = self._queue.group(_GROUP)
            self._write(store, group)
            self._succeed(len(group))  # before pruning, which may fail after the write
            self._file.prune(store, lambda: self._queue.is_empty)
        except (sqlite3.Error, OSError, Torn) as error:
            self._fail(str(error))
            if type(error) is sqlite3.DatabaseError:  # corrupted since it was opened
                with suppress(OSError):  # then the same file is tried again
                    self._file.put_aside(str(error))
        try:
            loop.call_soon_threadsafe(self._notify)
        except RuntimeError:
            return False  # the loop is closed: nobody waits any more
        self._file.tidy()
        return self.failing is None and (not self._queue.is_empty or self.losing)

    def _opened(self) -> Store:
        if self._file.store is not None:
            return self._file.store
        store, had = self._file.open()
        self._recovery.opened(had)
        if had.generation == self._generation:  # the position never goes back
            self._ingested = max(self._ingested, had.number)
        return store

    def _write(self, store: Store, group: Sequence[Queued]) -> None:
        if group:
            ingested = max(self._ingested, *(number for _, number in group))
            is_ours = self._generation and not self._recovery.is_doubtful(group)
            entries = [one for source, _ in group for one in source(store)]
            self._file.append(store, entries, (self._generation, ingested) if is_ours else None)
            self._ingested = ingested
            self._recovery.settle(group)
        else:
            self._file.summarise(store)

    def _succeed(self, count: int) -> None:
        lost = self._queue.settle(count)
        self._outage.note(on=self.losing or (self._outage.on and not self._queue.is_empty))
        if lost is not None:
            log.warning("ledger_gap", entries=lost.entries, reason=lost.reason)
        if self.failing is not None:
            metrics.ledger_unwritable.set(0)
            self._queue.failing = None
            log.info("ledger_writable", path=str(self._path))

    def _fail(self, reason: str) -> None:
        self._file.close()
        if self.failing is None:
            log.error("ledger_unwritable", path=str(self._path), reason=reason)
        metrics.ledger_unwritable.set(1)  # first: who sees the failure sees it in the metrics
        self._outage.note(on=True)
        self._queue.failing = reason

    def _notify(self) -> None:
        if (now := self.failing) != self._shown:
            self._shown = now
            self._on_status(now)
        for changed in self._waiting:
            changed.set()
        self._queue.if_settled(self._begin_anew)

    def _begin_anew(self) -> None:
        """Begin the write-ahead file anew if the ledger has all of it."""
        self._ahead.begin_anew()
        if self._ahead.generation != self._generation:
            self._generation, self._ingested = self._ahead.generation, 0


def _failed(ended: asyncio.Future[None], error: BaseException) -> None:
    if not ended.done():
        ended.set_exception(error)
