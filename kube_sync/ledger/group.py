"""A group of rows that is added at once, and the current state of objects after it.

Invariant: within a group as after it, the state of an object is that of the last row about it. A
group reads the file only where it must, and writes to it in few statements.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import msgspec

from kube_sync.ledger.database import insert
from kube_sync.ledger.entries import ROW, Entry, link, standing_since

_INSERT = f"INSERT INTO records ({ROW})"

Where = tuple[str, str, str]  # collection, namespace, name
State = tuple[str, str, str, str]  # uid, digest of the decision, status, note
Known = dict[Where, State | None]  # None: the object has no state


class Group:
    """Rows that are added at once, and the states of objects after them."""

    def __init__(
        self, db: sqlite3.Connection, seq: int, time: int, before: bytes, known: Known
    ) -> None:
        """Begin after row `seq`, whose hash is `before`; `known` caches states of the file."""
        self.seq, self.before = seq, before
        self._db, self._time, self._known = db, time, known
        self._rows: list[tuple[object, ...]] = []
        self._states: dict[Where, tuple[State, int] | None] = {}  # with the number of the row
        self._refs: set[tuple[str, str]] = set()
        self._policy: tuple[str, str] | None = None

    @property
    def head(self) -> tuple[int, str] | None:
        """Number and hash of the last row, None if there is none."""
        return (self.seq, self.before.hex()) if self.seq else None

    def add(self, entry: Entry) -> None:
        """Append an entry to the group."""
        self.seq += 1
        self.before = link(self.before, self.seq, self._time, entry)
        columns = msgspec.structs.astuple(entry)
        self._rows.append((self.seq, self._time, *columns, self.before))
        if entry.ref:
            self._refs.add((entry.ref, entry.kind))
        if entry.kind == "policy":
            if standing_since(entry) is None:
                self._policy = (entry.policy, entry.new)
        elif entry.kind == "gone" or (entry.kind == "decision" and entry.status == "undefined"):
            self._states[_where(entry)] = None
        elif entry.kind == "decision":
            state = (entry.uid, entry.new, entry.status, entry.note)
            self._states[_where(entry)] = state, self.seq

    def to_record(self, entry: Entry) -> Entry | None:
        """Return an entry in the form to record, None if the ledger has this state already."""
        if entry.ref:
            return None if self._has(entry.ref, entry.kind) else entry
        if entry.kind == "policy":
            before = self._in_force()
            same = before == (entry.policy, entry.new)
            return None if same else msgspec.structs.replace(entry, old=before[1])
        if entry.kind not in ("decision", "gone"):
            return entry
        if (known := self._state_of(_where(entry))) is None:
            return None if entry.kind == "gone" or entry.status == "undefined" else entry
        # A failure may not know the object's uid.
        uid, decided = entry.uid or known[0], known[1]
        # Of a decision that did not fail the note is the trace, which a restart begins anew.
        noted = entry.status != "failed" or known[3] == entry.note
        if entry.kind == "decision" and noted and known[:3] == (uid, entry.new, entry.status):
            return None
        return msgspec.structs.replace(entry, uid=uid, old=decided)

    def _has(self, ref: str, kind: str) -> bool:
        """Return whether an entry of this ref and kind is recorded."""
        query = "SELECT 1 FROM records WHERE ref = ? AND kind = ? AND ref != ''"
        known = (ref, kind) in self._refs
        return known or self._db.execute(query, (ref, kind)).fetchone() is not None

    def _in_force(self) -> tuple[str, str]:
        """Return the digest of the policies in force, and that of their list, "" if none."""
        return self._policy or policy_in_force(self._db)

    def _state_of(self, where: Where) -> State | None:
        """Return the state of an object, None if it has none."""
        if where in self._states:
            found = self._states[where]
            return None if found is None else found[0]
        if where not in self._known:
            query = (
                "SELECT uid, decided, status, note FROM objects"
                " WHERE collection = ? AND namespace = ? AND name = ?"
            )
            self._known[where] = self._db.execute(query, where).fetchone()
        return self._known[where]

    def new_states(self) -> Iterator[tuple[Where, State | None]]:
        """Yield the states of the group's objects after it is written."""
        for where, found in self._states.items():
            yield where, None if found is None else found[0]

    def flush(self) -> None:
        """Write the whole group."""
        insert(self._db, _INSERT, self._rows)
        gone = [where for where, found in self._states.items() if found is None]
        query = "DELETE FROM objects WHERE collection = ? AND namespace = ? AND name = ?"
        self._db.executemany(query, gone)
        rows = [(*where, *f[0], f[1]) for where, f in self._states.items() if f is not None]
        insert(self._db, "INSERT OR REPLACE INTO objects", rows)


def policy_in_force(db: sqlite3.Connection) -> tuple[str, str]:
    """Return the digest of the policies in force, and that of their list, "" if none.

    Rows that pruning repeated are older than any other, and carry the time since when they hold.
    """
    query = (
        "SELECT policy, new, cause FROM records INDEXED BY policies"
        " WHERE kind = 'policy' ORDER BY seq DESC"
    )
    newest, found = -1.0, ("", "")
    for policy, new, cause in db.execute(query):
        since = standing_since(Entry(kind="policy", cause=cause))
        if since is None:
            return policy, new
        if since > newest:
            newest, found = since, (policy, new)
    return found


def _where(entry: Entry) -> Where:
    return entry.collection, entry.namespace, entry.name
