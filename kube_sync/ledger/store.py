"""The SQLite store of the ledger for its only writer: chained rows, texts, and object states.

Invariant: a batch is in the file completely or not at all, whenever the process ends; a row is only
added at the current head of the file, so not even a second writer breaks the chain; a checkpoint in
the chain replaces pruned rows, and the states of objects that did not change since are recorded
again. Texts live as long as a row that refers to them.

It is SQLite in WAL mode: a killed process loses nothing that was committed, a machine that
loses power may lose the last moments, and keeps an intact chain up to there.
It belongs to one thread, and blocks it.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from kube_sync.ledger.database import Torn, Transaction, opened, restore
from kube_sync.ledger.entries import START, Entry, Text
from kube_sync.ledger.group import Group, Known
from kube_sync.ledger.object_table import Mended, mend, prepare
from kube_sync.ledger.pruning import checkpoint, ends, entries_to_repeat, prunable
from kube_sync.ledger.shares import EVERY_SECONDS, Shares
from kube_sync.ledger.texts import WINDOW, Texts

_CHUNK = 5_000  # rows that one call prunes
_CACHED_STATES = 10_000  # objects whose state is cached
_UNFILED = 2_000  # rows that are not in the index yet


class IngestPosition(NamedTuple):
    """The position of the ledger in the write-ahead file; (0, 0): never set.

    `others`: a process that does not set the position has written since.
    """

    generation: int
    number: int
    others: bool


class Store:
    """A ledger that is open for writing."""

    def __init__(
        self,
        path: Path,
        shares: Shares | None = None,
        *,
        chunk: int = _CHUNK,
        window: int = WINDOW,
    ) -> None:
        """Open or create it. Raises Torn, or sqlite3.Error if it cannot be written.

        Without `shares` nothing is summarised.
        """
        self._shares = shares or Shares(math.inf, math.inf)
        self._chunk = chunk
        self._unfiled = _UNFILED  # or fewer: from an earlier process
        self._states: Known = {}  # the cached states of objects
        self._states_valid_at = b""  # the hash of the head at which the cache is valid
        self._ahead: tuple[int, int] | None = None
        self._db = opened(path)
        self._texts = Texts(self._db, window)
        seq, _, last = self._head()
        self.head = (seq, last.hex()) if seq else None  # number and hash of the last row

    def ahead(self) -> IngestPosition:
        """Return the ledger's position in the write-ahead file. Raises sqlite3.Error."""
        found: tuple[int, int, int] | None = self._db.execute(
            "SELECT generation, number, seq FROM ahead"
        ).fetchone()
        if found is None:
            return IngestPosition(0, 0, others=False)
        generation, number, seq = found
        position = IngestPosition(generation, number, others=seq != self._head()[0])
        self._ahead = None if position.others else (generation, number)
        return position

    def mend(self) -> Mended:
        """Repair the derived tables by the rows; return the differences.

        Raises Torn if the schema of a table differs, or sqlite3.Error.
        """
        definitions = restore(self._db)
        prepare(self._db)
        self._forget()
        with self._transaction():
            found = mend(self._db)
            self._shares.load(self._db)
        self._unfiled = 0
        return found._replace(differences=(*definitions, *found.differences))

    def close(self) -> None:
        """Close the file."""
        with suppress(sqlite3.Error):  # a failure does not change the content
            self._db.execute("PRAGMA busy_timeout = 0")
            self._file()
        self._db.close()

    def tidy(self) -> None:
        """Index the new rows by object, if there are many.

        Indexing row by row would be two thirds of the cost of recording: the objects of a
        group lie far apart in the index. Raises sqlite3.Error.
        """
        if self._unfiled >= _UNFILED:
            self._file()

    def append(
        self,
        entries: Iterable[tuple[Entry, Sequence[Text]]],
        now: float,
        ahead: tuple[int, int] | None = None,
        every: float = EVERY_SECONDS,
    ) -> list[Entry]:
        """Add entries with their texts in one transaction; return the new ones among them.

        Entries over a namespace's share are added as summaries, once in `every` seconds.
        A decision equal to the current one is not new, nor is a recorded `ref`; `old` of a
        decision is set from the ledger. `now` is Unix seconds; `ahead` is the file's new position
        in the write-ahead file (generation and number of a frame). Raises sqlite3.Error: then
        nothing was added.
        """
        with self._transaction():
            group = self._group(now)
            added: list[Entry] = []
            for received, texts in self._shares.due(now, every):
                if (
                    entry := group.to_record(received)
                ) is not None:  # depends on the rows before it
                    added.append(self._add(group, entry, texts))
            for received, texts in entries:
                if (entry := group.to_record(received)) is None:
                    self._shares.drop_pending(received)
                    continue
                for one, its in self._shares.entries_for(entry, texts, now):
                    added.append(self._add(group, one, its))
            group.flush()
            self._texts.flush()
            self._note(ahead, group.seq)
        self._unfiled += len(added)
        self.head = group.head
        self._states.update(group.new_states())
        self._states_valid_at = group.before
        return added

    def summarise(self, now: float, every: float = EVERY_SECONDS) -> list[Entry]:
        """Add the summaries of namespaces that are due; return the added entries."""
        return self.append((), now, self._ahead, every)

    def _add(self, group: Group, entry: Entry, texts: Sequence[Text]) -> Entry:
        group.add(entry)
        self._texts.keep(group.seq, entry, texts)
        self._shares.added(entry, texts)
        return entry

    def current_objects(self, collection: str) -> list[tuple[str, str]]:
        """Return the namespace and name of each object of a collection with a current state."""
        query = "SELECT namespace, name FROM objects WHERE collection = ?"
        return self._db.execute(query, (collection,)).fetchall()

    def has(self, row: tuple[int, str, object] | None) -> bool:
        """Return whether the file has a row of that number and hash."""
        query = "SELECT hash FROM records WHERE seq = ?"
        found = row and self._db.execute(query, row[:1]).fetchone()
        return bool(row and found and found[0].hex() == row[1])

    def used(self) -> int:
        """Return the bytes of the file in use."""
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def prune(self, now: float, max_age: float, max_size: int) -> int:
        """Prune rows that are too old, or too many, a few thousand at most; return how many.

        `max_age` is seconds, `max_size` bytes. Raises sqlite3.Error, or Torn if a row to prune
        cannot be read: then none is pruned.
        """
        try:
            gone = self._prune(now, max_age, max_size)
        except (msgspec.DecodeError, UnicodeError) as error:
            msg = f"the oldest rows cannot be taken away: {error}"
            raise Torn(msg) from error
        self._db.execute("PRAGMA incremental_vacuum").fetchall()
        return gone

    def _prune(self, now: float, max_age: float, max_size: int) -> int:
        with self._transaction():
            full = self.used() > max_size
            if full and self._drop_texts():  # of rows pruned before
                full = self.used() > max_size
            upto = prunable(self._db, int((now - max_age) * 1e6), self._chunk, full=full)
            if upto is None:
                return 0
            group = self._group(now)
            again = entries_to_repeat(self._db, upto, full=full)
            for entry in (*again, checkpoint(self._db, upto)):
                self._add(group, entry, ())
            group.flush()
            self._shares.removing(self._db, upto)
            gone = self._db.execute("DELETE FROM records WHERE seq <= ?", (upto,)).rowcount
            self._db.execute("DELETE FROM objects WHERE seq <= ?", (upto,))
            self._texts.keep_policies(group.seq)
            self._texts.flush()
            self._texts.prune(upto)
            self._note(self._ahead, group.seq)
        self.head, self._states_valid_at = group.head, b""
        return 0 if full and gone <= len(again) + 1 else gone  # it would not shrink

    def _drop_texts(self) -> int:
        """Drop the texts that no row needs, if there are few rows; return how many.

        Texts are kept for some thousand rows longer than needed, which matters if each is large.
        """
        first, last = ends(self._db)
        return 0 if last - first >= self._chunk else self._texts.drop_unneeded()

    def _note(self, ahead: tuple[int, int] | None, seq: int) -> None:
        """Record the position in the write-ahead file, and that this process wrote last."""
        self._ahead = ahead
        if ahead is not None:
            query = (
                "INSERT OR REPLACE INTO ahead (one, generation, number, seq) VALUES (1, ?, ?, ?)"
            )
            self._db.execute(query, (*ahead, seq))

    def _file(self) -> None:
        self._db.execute("UPDATE records SET filed = 1 WHERE filed = 0")
        self._unfiled = 0

    def _transaction(self) -> Transaction:
        self._shares.begin()
        return Transaction(self._db, self._undone)

    def _undone(self) -> None:
        self._forget()
        self._shares.undo()

    def _forget(self) -> None:
        """Drop everything cached from the file."""
        self._texts.forget()
        self._states_valid_at = b""

    def _head(self) -> tuple[int, int, bytes]:
        """Return number, time and hash of the last row in the file."""
        query = "SELECT seq, time, hash FROM records ORDER BY seq DESC LIMIT 1"
        found: tuple[int, int, bytes] | None = self._db.execute(query).fetchone()
        return found or (0, 0, START)

    def _group(self, now: float) -> Group:
        """Return a new group at the head, whose time does not go back."""
        seq, time, before = self._head()
        if before != self._states_valid_at or len(self._states) > _CACHED_STATES:
            self._states.clear()
        return Group(self._db, seq, max(time, int(now * 1e6)), before, self._states)
