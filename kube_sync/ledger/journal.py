"""The one writer of the ledger: entries go in at any moment, a thread writes them in groups.

Keeps true: nobody who decides ever waits for the file; whoever publishes may wait for what was said
so far to be in it, for a bounded time. Entries are written in the order in which they came. They
are kept until they are written, while the file cannot be up to a number; what is more than that is
counted, and told by a gap where it would have been, as soon as the file can be written again, or by
one of the next process if this one ends before (`outage`). A
file that is no ledger is put aside under another name, and that is a gap too. It ends with all that
was said written, if the file takes it.

What can be said as bytes is written to a file beside it first (`ahead`), by whoever says it, and
counts as recorded from then on: the thread takes its time then, so that it does not take Python's
lock from those who decide. A process that is killed leaves it to the next one, which begins with
it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kube_sync.errors import NO_JSON
from kube_sync.ledger.ahead import Ahead
from kube_sync.ledger.database import Torn
from kube_sync.ledger.entries import Entry, GapNote, Text
from kube_sync.ledger.outage import Outage
from kube_sync.ledger.shares import Shares
from kube_sync.ledger.store import Store, Taken
from kube_sync.observability import metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()

KEPT: Final = 10_000  # entries that wait for a file that cannot be written
BURST: Final = 1_000_000  # for one that can: a class of all objects is said in less than a second

_GROUP = 500  # entries in one transaction
_AGAIN_SECONDS = 1.0
_PRUNE_SECONDS = 10.0
_NAMED = 5  # of what was not as the rows say, in the log
_PATIENCE_SECONDS = 0.25
_ENDING_SECONDS = 5.0
_LEISURE_SECONDS = 0.05  # that nothing is said before what is written ahead is written,
_LATEST_SECONDS = 0.5  # and at the latest

Said = tuple[Entry, Sequence[Text]]
# What gives entries when they are written, and not before: to spare whoever says it the time.
Late = Callable[[Store], Sequence[Said]]
# What reads what an earlier process wrote ahead (MessagePack): all of it in order, from the first.
Recall = Callable[[msgspec.Raw], Sequence[Said]]


class Journal:
    """What the replicator says to the ledger."""

    def __init__(
        self,
        path: Path,
        *,
        max_age: float,
        max_size: int,
        kept: int = KEPT,
        clock: Callable[[], float] = time.time,
        told: Callable[[str | None], None] = lambda _reason: None,
        recall: Recall | None = None,
        again: float = _AGAIN_SECONDS,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        """Rows are kept for `max_age` seconds, in `max_size` bytes; `clock` is Unix seconds.

        After `again` seconds a file that could not be written is tried once more; `told` hears why
        it cannot be, None: it can. Nobody waits for the file longer than `patience` (seconds).
        Without `recall` nothing is written ahead.
        """
        self._patience = patience
        self._told = told
        self._shown: str | None = ""
        self._path = path
        self._max_age = max_age
        self._max_size = max_size
        self._kept = kept
        self._clock = clock
        self._again = again
        self._queue: deque[tuple[Late, int]] = deque()  # with the number ahead, 0: none
        self._lost: GapNote | None = None  # after all that is in the queue
        self._said = 0  # entries that were taken in
        self._settled = 0  # of these, that are in the file
        self._failing: str | None = None
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._waiting: set[asyncio.Event] = set()
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs
        self._spoken_in = 0  # the thread of that
        self._roused = False
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._is_mended = False
        self._shares = Shares(max_size, max_age)
        self._head: tuple[int, str] | None = None
        self._pruned_at = -_PRUNE_SECONDS
        self._ahead = None if recall is None else Ahead(path.with_name(f"{path.name}.ahead"))
        self._generation = 0 if self._ahead is None else self._ahead.generation  # of the queue
        self._taken = 0  # the last that was written ahead and is in the file
        self._had: Taken | None = None  # how far the file had it when it was opened first
        self._stale: set[int] = set()  # what came too late, by number
        self._read: dict[int, Sequence[Said]] = {}  # of the group that is tried, by number
        self._recalled = recall is None  # all that an earlier process left is in the file
        self._leisure: asyncio.TimerHandle | None = None
        self._latest = 0.0  # when the thread is to write, whatever else is said
        self._seen = 0  # how much was said when it was last put off
        self._outage = Outage(path.with_name(f"{path.name}.outage"))
        self._take_over(recall)
        self._said = len(self._queue)
        self._alone = self._said  # the last entry that was taken in and is not written ahead
        metrics.ledger_unwritable.set(0)

    def _take_over(self, recall: Recall | None) -> None:
        """Begin with what an earlier process left, and with what is missing of it."""
        if self._ahead is not None and recall is not None:
            self._queue.extend((partial(self._left, recall, n, b), n) for n, b in self._ahead.left)
            self._queue.append((self._gap_of_stale, 0))
            self._ahead.left = ()
            if not self._ahead.is_whole:
                self._miss("what was written ahead is not what an earlier process wrote", 0.0)
        if self._outage.since is not None:
            reason = "a process ended while it could not write all that it had to"
            self._miss(reason, self._outage.since)

    def _miss(self, reason: str, since: float) -> None:
        log.error("ledger_gap", entries=0, since=since, reason=reason)
        metrics.ledger_gaps.inc()
        self._queue.append((gap(GapNote(0, since, self._clock(), reason)), 0))

    @property
    def failing(self) -> str | None:
        """Why the file cannot be written now, None: it can."""
        return self._failing

    @property
    def head(self) -> tuple[int, str] | None:
        """Number and hash of the last row that is in the file, None: not known yet."""
        return self._head

    @property
    def losing(self) -> bool:
        """Whether what is said now is lost: it becomes a part of a gap."""
        return self._lost is not None

    def say(self, entry: Entry, texts: Sequence[Text] = ()) -> bool:
        """Take one entry in; returns whether it was taken."""
        said = ((entry, texts),)
        return self.say_late(lambda _store: said)

    def say_late(self, late: Late, ahead: object = None) -> bool:
        """Take in what `late` returns when it is written, in the thread of the file.

        It is asked again where the file did not take it. `ahead` is what `recall` makes the same
        of, to be written ahead; None: it cannot be. Returns whether it was taken, and is not lost.
        """
        now = self._clock()
        with self._lock:
            most = BURST if self._failing is None else self._kept
            if self._lost is not None or len(self._queue) >= most:
                self._lose(1, now, self._failing or "too many entries at once")
                return False
            number = 0 if ahead is None or self._ahead is None else self._ahead.add(ahead)
            self._said += 1
            self._queue.append((late, number))
            if not number:
                self._alone = self._said
        self._rouse()
        return True

    @property
    def generation(self) -> int:
        """Of the file that is written ahead now, 0: none is."""
        if self._ahead is None or self._loop is None or threading.get_ident() != self._spoken_in:
            return 0
        return self._ahead.generation

    def precede(self, ahead: object) -> bool:
        """Write ahead what later ones name, and is no entry; returns whether it is taken."""
        return self._ahead is not None and self._ahead.add(ahead) != 0

    def _rouse(self) -> None:
        """Have the thread write, once whoever says all this at once has said it.

        Sooner it would take Python's lock from them again and again, and write a group of one.
        """
        if self._roused:
            return
        if self._loop is None or threading.get_ident() != self._spoken_in:
            self._wake.set()
            return
        self._roused = True
        self._loop.call_soon(self._rise)

    def _rise(self) -> None:
        self._roused = False
        if not self._is_ahead():
            self._wake.set()
        elif self._leisure is None and self._loop is not None:
            self._latest = self._loop.time() + _LATEST_SECONDS
            self._put_off(self._loop)

    def _put_off(self, loop: asyncio.AbstractEventLoop) -> None:
        self._seen = self._said
        self._leisure = loop.call_later(_LEISURE_SECONDS, self._write_at_leisure, loop)

    def _write_at_leisure(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._said > self._seen and loop.time() < self._latest:
            self._put_off(loop)
            return
        self._leisure = None
        self._wake.set()

    def _is_ahead(self) -> bool:
        """Tell whether all that was said is written, ahead or in the file."""
        if self._ahead is None or self._settled < self._alone:
            return False
        return self._ahead.flush() and self._generation == self._ahead.generation

    async def recorded(self) -> bool:
        """Wait until all that was said is on disk, in the file or ahead of it; tell whether it is.

        It is not where neither can be written, or the file takes too long.
        """
        wanted = self._said
        if self._settled >= wanted or self._is_ahead():
            return True
        news = asyncio.Event()
        self._waiting.add(news)
        try:
            async with asyncio.timeout(self._patience):
                while not (self._settled >= wanted or self._is_ahead() or self._failing):
                    news.clear()
                    await news.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(news)
        return self._settled >= wanted or self._is_ahead()

    async def run(self) -> None:
        """Write until cancelled; what the thread did not expect ends it."""
        self._loop = loop = asyncio.get_running_loop()
        self._spoken_in = threading.get_ident()
        ended = loop.create_future()
        thread = threading.Thread(target=self._thread, args=[loop, ended], name="ledger")
        thread.daemon = True
        thread.start()
        try:
            await ended
        finally:
            self._loop, self._roused = None, False
            if self._leisure is not None:
                self._leisure.cancel()
                self._leisure = None
            self._ending.set()
            self._wake.set()
            thread.join(_ENDING_SECONDS)
            if self._ahead is not None:
                self._ahead.flush()
                self._ahead.close()

    def _thread(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        try:
            self._work(loop)
        except BaseException as error:
            # A ledger that nobody writes any more must not look like one.
            loop.call_soon_threadsafe(_failed, ended, error)
            raise

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        ended = False
        while not ended:
            ended = self._ending.is_set()  # what was said before is written once more
            self._wake.clear()
            while self._turn(loop):
                pass
            if self._failing is not None:
                self._ending.wait(self._again)
            elif not ended:
                self._wake.wait(self._again)
        if self._store is not None:
            with suppress(sqlite3.Error):
                _count(self._store.summarise(self._clock(), every=0.0))
            self._store.close()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Write one group; tell whether there may be more to write now."""
        try:
            store = self._opened()
            with self._lock:
                group = [*islice(self._queue, _GROUP)]
            self._write(store, group)
        except (sqlite3.Error, OSError, Torn) as error:
            self._fail(str(error))
            if type(error) is sqlite3.DatabaseError:  # torn since it was opened
                with suppress(OSError):  # then it is tried again where it is
                    self._put_aside(str(error))
        else:
            self._succeed(group)
        try:
            loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            return False  # the loop is closed: nobody waits any more
        self._tidy()
        with self._lock:
            return self._failing is None and bool(self._queue or self._lost)

    def _write(self, store: Store, group: Sequence[tuple[Late, int]]) -> None:
        now = self._clock()
        if group:
            taken = max(self._taken, *(number for _, number in group))
            recalled = self._recalled or any(late == self._gap_of_stale for late, _ in group)
            # Until it is told how many are not believed, nobody may take them for our own.
            others = self._had is not None and self._had.others and not recalled
            ahead = None if others or not self._generation else (self._generation, taken)
            added = store.append([one for late, _ in group for one in late(store)], now, ahead)
            self._head = store.head
            self._taken, self._recalled = taken, recalled
            _count(added)
        elif self._shares.is_due(now):
            _count(store.summarise(now))
        if now - self._pruned_at >= _PRUNE_SECONDS:
            self._pruned_at = now
            try:
                while store.prune(now, self._max_age, self._max_size) and not self._queue:
                    pass
            except Torn as error:  # what is added is none the worse for it
                log.warning("ledger_not_pruned", path=str(self._path), error=str(error))
            self._head = store.head
            metrics.ledger_bytes.set(store.used())

    def _tidy(self) -> None:
        """Do what nobody waits for."""
        if self._store is not None:
            # What cannot be written now is said by the next group that cannot.
            with suppress(sqlite3.Error):
                self._store.tidy()

    def _opened(self) -> Store:
        if self._store is None:
            try:
                store = self._mended(Store(self._path, self._shares))
            except Torn as error:
                self._put_aside(str(error))
                store = self._mended(Store(self._path, self._shares))
            had = store.ahead()
            self._had = self._had or had
            if had.generation == self._generation:  # it never goes back
                self._taken = max(self._taken, had.number)
            self._store = store
        return self._store

    def _mended(self, store: Store) -> Store:
        """Compare what is derived from the rows with them, once for a process."""
        if self._is_mended:
            return store
        try:
            found = store.mend()
        except (Torn, sqlite3.Error):
            store.close()
            raise
        self._is_mended = True
        if found.differences:
            many = len(found.differences)
            log.error("ledger_mended", differences=many, first=found.differences[:_NAMED])
            more = f" and {many - 1} more" if many > 1 else ""
            reason = f"the file was changed, and is repaired: {found.differences[0]}{more}"
            now = self._clock()
            self._begin_with(GapNote(0, now if found.since is None else found.since, now, reason))
        return store

    def _begin_with(self, note: GapNote) -> None:
        """Write a gap before all that is to be written."""
        metrics.ledger_gaps.inc()
        with self._lock:
            self._said += 1
            self._queue.appendleft((gap(note), 0))
            self._alone = max(self._alone, self._settled) + 1

    def _put_aside(self, reason: str) -> None:
        """Keep what is no ledger under another name, and say so in the new one."""
        now = self._clock()
        aside = self._path.with_name(f"{self._path.name}.unreadable-{now:.0f}")
        if self._path.exists():
            self._path.rename(aside)
        self._is_mended = False  # nor is what namespaces hold known
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        log.error("ledger_put_aside", path=str(aside), reason=reason)
        reason = f"the ledger was unreadable and is kept as {aside}: {reason}"
        self._begin_with(GapNote(0, 0, now, reason))

    def _succeed(self, group: Sequence[object]) -> None:
        lost = None
        with self._lock:
            for _ in group:
                self._queue.popleft()
            self._settled += len(group)
            self._read.clear()
            if not self._queue and self._lost is not None:
                lost, self._lost = self._lost, None
                self._said += 1
                self._queue.append((gap(lost), 0))
                self._alone = self._said
            missing = self._lost is not None or (self._outage.on and bool(self._queue))
        self._outage.note(on=missing)
        if lost is not None:
            log.warning("ledger_gap", entries=lost.entries, reason=lost.reason)
        if self._failing is not None:
            self._failing = None
            metrics.ledger_unwritable.set(0)
            log.info("ledger_writable", path=str(self._path))

    def _fail(self, reason: str) -> None:
        if self._store is not None:
            self._store.close()  # another file may lie there when it is tried again
            self._store = None
        if self._failing is None:
            log.error("ledger_unwritable", path=str(self._path), reason=reason)
        self._failing = reason
        self._outage.note(on=True)
        metrics.ledger_unwritable.set(1)

    def _lose(self, entries: int, now: float, reason: str) -> None:
        known = self._lost
        if known is None:
            metrics.ledger_gaps.inc()
            known = GapNote(0, now, now, reason)
        self._lost = GapNote(known.entries + entries, known.begin, now, known.reason)
        metrics.ledger_lost_records.inc(entries)

    def _tell(self) -> None:
        if (now := self._failing) != self._shown:
            self._shown = now
            self._told(now)
        for news in self._waiting:
            news.set()
        if self._ahead is not None and self._settled == self._said:
            with self._lock:
                self._begin_anew(self._ahead)

    def _begin_anew(self, ahead: Ahead) -> None:
        """Let go of what was written ahead, where the file has all of it."""
        if self._queue or self._lost is not None:
            return
        ahead.begin_anew()
        if ahead.generation != self._generation:
            self._generation, self._taken = ahead.generation, 0

    def _left(
        self, recall: Recall, number: int, body: msgspec.Raw, _store: Store
    ) -> Sequence[Said]:
        """Return what an earlier process wrote ahead, as far as the file does not have it.

        Read once, in order, also where the file did not take the group and it is tried again.
        """
        if number not in self._read:
            try:
                self._read[number] = recall(body)
            except NO_JSON:  # of another version: what it says is not known
                self._stale.add(number)
                self._read[number] = ()
        said, had = self._read[number], self._had
        if had is None or not said or (had.generation == self._generation and number <= had.number):
            return ()
        if had.others:
            self._stale.add(number)  # what it says may not be so any more
            return ()
        return said

    def _gap_of_stale(self, _store: Store) -> Sequence[Said]:
        if not self._stale:
            return ()
        reason = "a process that was killed left records, and another one has written since"
        log.error("ledger_gap", entries=len(self._stale), reason=reason)
        metrics.ledger_gaps.inc()
        note = GapNote(len(self._stale), 0, self._clock(), reason)
        return gap(note)(_store)


def _count(added: Sequence[Entry]) -> None:
    for kind, count in Counter(entry.kind for entry in added).items():
        metrics.ledger_records.labels(kind).inc(count)


def _failed(ended: asyncio.Future[None], error: BaseException) -> None:
    if not ended.done():
        ended.set_exception(error)


def gap(note: GapNote) -> Late:
    """Return what says that something is missing."""
    said: Sequence[Said] = ((Entry(kind="gap", note=msgspec.json.encode(note).decode()), ()),)
    return lambda _store: said
