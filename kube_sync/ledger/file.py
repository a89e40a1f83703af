"""The ledger's file during the life of a process: opens, repairs, replaces and prunes it.

Invariant: the derived tables are compared with the rows once before any entry is added. A file
that is no ledger, or corrupt, is renamed, and a new one begun. A repair or a replacement is
recorded as a gap before all other entries. It belongs to one thread.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from kube_sync.ledger.database import Torn
from kube_sync.ledger.entries import Entry, GapNote
from kube_sync.ledger.entry_queue import EntryWithTexts
from kube_sync.ledger.shares import Shares
from kube_sync.ledger.store import IngestPosition, Store
from kube_sync.observability import metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_PRUNE_SECONDS = 10.0
_NAMED = 5  # repaired objects that the log names


class LedgerFile:
    """The path of a ledger, and the Store that is open there, if any."""

    def __init__(
        self,
        path: Path,
        *,
        max_age: float,
        max_size: int,
        clock: Callable[[], float],
        begin_with: Callable[[GapNote], None],
    ) -> None:
        """Keep rows for `max_age` seconds, in `max_size` bytes; `clock` is Unix seconds.

        `begin_with` takes a gap that is to be written before all else.
        """
        self.store: Store | None = None
        self.head: tuple[int, str] | None = None  # number and hash of the last row, None: unknown
        self._path = path
        self._max_age = max_age
        self._max_size = max_size
        self._clock = clock
        self._begin_with = begin_with
        self._shares = Shares(max_size, max_age)
        self._is_mended = False
        self._pruned_at = -_PRUNE_SECONDS

    def open(self) -> tuple[Store, IngestPosition]:
        """Open the file; return it with its position in the write-ahead file.

        Raises sqlite3.Error, OSError, or Torn if no new file can be begun either.
        """
        try:
            store = self._mended(Store(self._path, self._shares))
        except Torn as error:
            self.put_aside(str(error))
            store = self._mended(Store(self._path, self._shares))
        had = store.ahead()
        self.store = store
        return store, had

    def append(
        self, store: Store, entries: Sequence[EntryWithTexts], ahead: tuple[int, int] | None
    ) -> None:
        """Add entries. Raises sqlite3.Error."""
        _count(store.append(entries, self._clock(), ahead))
        self.head = store.head

    def summarise(self, store: Store) -> None:
        """Add the summaries that are due. Raises sqlite3.Error."""
        now = self._clock()
        if self._shares.is_due(now):
            _count(store.summarise(now))

    def prune(self, store: Store, may_continue: Callable[[], bool]) -> None:
        """Remove rows that are too old or too many, from time to time. Raises sqlite3.Error."""
        now = self._clock()
        if now - self._pruned_at < _PRUNE_SECONDS:
            return
        self._pruned_at = now
        try:
            while store.prune(now, self._max_age, self._max_size) and may_continue():
                pass
        except Torn as error:  # appended entries are unaffected
            log.warning("ledger_not_pruned", path=str(self._path), error=str(error))
        self.head = store.head
        metrics.ledger_bytes.set(store.used())

    def tidy(self) -> None:
        """Do deferred work that no caller waits for."""
        if self.store is not None:
            # The next group that cannot be written reports the failure.
            with suppress(sqlite3.Error):
                self.store.tidy()

    def close(self) -> None:
        """Close the file: another file may be at the path when it is opened again."""
        if self.store is not None:
            self.store.close()
            self.store = None

    def end(self) -> None:
        """Write all summaries, and close the file."""
        if self.store is not None:
            with suppress(sqlite3.Error):
                _count(self.store.summarise(self._clock(), every=0.0))
        self.close()

    def put_aside(self, reason: str) -> None:
        """Rename a file that is no ledger, and record that in a new one. Raises OSError."""
        now = self._clock()
        aside = self._path.with_name(f"{self._path.name}.unreadable-{now:.0f}")
        if self._path.exists():
            self._path.rename(aside)
        self._is_mended = False  # the shares of namespaces are unknown too
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        log.error("ledger_put_aside", path=str(aside), reason=reason)
        reason = f"the ledger was unreadable and is kept as {aside}: {reason}"
        self._begin_with(GapNote(0, 0, now, reason))

    def _mended(self, store: Store) -> Store:
        """Compare the derived tables with the rows, once in a process."""
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


def _count(added: Sequence[Entry]) -> None:
    for kind, count in Counter(entry.kind for entry in added).items():
        metrics.ledger_records.labels(kind).inc(count)


_ON: Final = b"1"
_OFF: Final = b"0"


class Outage:
    """A flag file beside the ledger: entries may be missing in it. It belongs to one thread.

    The queue of a process whose file cannot be written ends with the process, and so does its
    count of lost entries. The file exists beforehand and its one byte is overwritten in place,
    which a full disk allows: it is set from the first failure until all is written.
    """

    def __init__(self, path: Path) -> None:
        """Read the flag of an earlier process."""
        self._path = path
        self.since: float | None = None  # an earlier process set it: Unix seconds, None: not set
        self._on: bool | None = None  # the state in the file, None: unknown
        with suppress(OSError):
            if path.read_bytes()[:1] == _ON:
                self.since, self._on = path.stat().st_mtime, True
            path.chmod(0o600)  # an older version may have left another mode

    @property
    def on(self) -> bool:
        """Whether entries may be missing."""
        return self._on is True

    def note(self, *, on: bool) -> None:
        """Set or clear the flag; a failed write is retried by the next call."""
        if self._on is on:
            return
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, _ON if on else _OFF)
            finally:
                os.close(file)
            self._on = on
