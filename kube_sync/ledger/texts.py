"""The table of texts, each kept while a row refers to it.

Invariant: a text is kept while a row refers to it, and some thousand rows longer, so that the
expiry of a text in frequent use is written once for all rows up to a boundary ahead. The texts of
a group are in the file once it is flushed, and the cache has nothing that the file does not have.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from kube_sync.ledger.bases import parts_of
from kube_sync.ledger.database import insert
from kube_sync.ledger.entries import Entry, Text, modules_of

_NOTED = 100_000  # texts whose expiry is cached
WINDOW: Final = 5_000  # rows for which a text is kept beyond the next boundary


class Texts:
    """The table of texts, within the transactions of its Store."""

    def __init__(self, db: sqlite3.Connection, window: int = WINDOW) -> None:
        """Use boundaries every `window` rows."""
        self._db = db
        self._window = window
        self._kept: dict[str, int] = {}  # cache: up to which row a text is kept
        self._texts: list[tuple[str, bytes, int]] = []  # of the group, not written yet
        self._needed: list[tuple[int, str]] = []  # new expiries of existing texts

    def forget(self) -> None:
        """Drop everything cached from the file."""
        self._kept.clear()
        self._texts.clear()
        self._needed.clear()

    def keep(self, seq: int, entry: Entry, texts: Sequence[Text]) -> None:
        """Keep the texts of a row, and those that they refer to, as long as the row."""
        upto = (seq // self._window + 2) * self._window
        kept = self._kept
        if len(kept) > _NOTED:
            kept.clear()  # a cache: the file has it
        for found in texts:
            self._keep_text(found.digest, found, upto)
        for digest in (entry.old, entry.new, entry.input):
            if digest and kept.get(digest, 0) < upto:
                self._keep_text(digest, None, upto)
        if (data := entry.data) and kept.get(data, 0) < upto:
            self._keep_text(data, None, upto)
            for digest in self._parts(data):
                self._keep_text(digest, None, upto)

    def _keep_text(self, digest: str, found: Text | None, upto: int) -> None:
        if self._kept.get(digest, 0) >= upto:
            return
        self._kept[digest] = upto
        if found is None:
            self._needed.append((upto, digest))
            return
        self._texts.append((digest, found.body, upto))
        for part in found.parts:
            self._keep_text(part.digest, part, upto)

    def flush(self) -> None:
        """Write the texts of the group, and the new expiries of others."""
        raised = " ON CONFLICT (digest) DO UPDATE SET keep = max(keep, excluded.keep)"
        insert(self._db, "INSERT INTO texts", self._texts, raised)
        query = "UPDATE texts SET keep = max(keep, ?) WHERE digest = ?"
        self._db.executemany(query, self._needed)
        self._texts.clear()
        self._needed.clear()

    def _parts(self, digest: str) -> list[str]:
        self.flush()  # it may be in the group
        query = "SELECT body FROM texts WHERE digest = ?"
        found = self._db.execute(query, (digest,)).fetchone()
        return [] if found is None else parts_of(found[0])

    def keep_policies(self, seq: int) -> None:
        """Keep the modules of every policy that a row is about as long as the newest row."""
        query = (
            "SELECT digest, body FROM texts"
            " WHERE digest IN (SELECT new FROM records WHERE kind = 'policy')"
        )
        for listed, body in self._db.execute(query).fetchall():
            for digest in (listed, *modules_of(body)):
                self.keep(seq, Entry(kind="policy", new=digest), ())

    def prune(self, upto: int) -> None:
        """Drop the texts that no row after `upto` needs."""
        self._db.execute("DELETE FROM texts WHERE keep <= ?", (upto,))
        self._kept = {digest: keep for digest, keep in self._kept.items() if keep > upto}

    def drop_unneeded(self) -> int:
        """Drop the texts that no row refers to, by a scan of all rows; return how many."""
        query = "SELECT old, new, data, input FROM records"
        needed = {digest for row in self._db.execute(query).fetchall() for digest in row}
        for query, named in (
            ("SELECT data FROM records", parts_of),
            ("SELECT new FROM records WHERE kind = 'policy'", modules_of),
        ):
            within = f"SELECT body FROM texts WHERE digest IN ({query})"  # noqa: S608 - our own
            for (body,) in self._db.execute(within).fetchall():
                needed.update(named(body))
        known = {digest for (digest,) in self._db.execute("SELECT digest FROM texts").fetchall()}
        gone = [(digest,) for digest in known - needed]
        self._db.executemany("DELETE FROM texts WHERE digest = ?", gone)
        self._kept.clear()
        return len(gone)
