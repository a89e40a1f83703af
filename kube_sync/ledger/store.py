"""The file of the ledger, for its one writer: rows in a chain, texts, and where objects stand.

Keeps true: a batch is in the file whole or not at all, whenever the process ends; a row is only
ever added at the head that the file has at that moment, so not even a second writer breaks the
chain; what is taken away at the old end is stood for by a checkpoint in the chain, and of objects
that did not change since, what stands is said anew. Texts live as long as a row that names them.

It is SQLite in WAL mode: a process that is killed loses nothing that was committed, a machine that
loses power may lose the last moments, and keeps a chain that is whole up to there.
It belongs to one thread, and blocks it.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kube_sync.ledger.bases import parts_of
from kube_sync.ledger.database import Torn, opened, restore
from kube_sync.ledger.entries import (
    COLUMNS,
    STANDING,
    START,
    Checkpoint,
    Entry,
    Row,
    Text,
    link,
    modules_of,
    standing_since,
)
from kube_sync.ledger.shares import EVERY_SECONDS, Shares
from kube_sync.ledger.standing import Mended, mend, prepare

_CHUNK = 5_000  # rows that go at once
_NOTED = 100_000  # texts of which this process knows how long they are needed
_STANDING = 10_000  # objects of which this process knows what stands
_AT_ONCE = (64, 16, 4, 1)  # rows in one statement
_UNFILED = 2_000  # rows
_FEW = 16  # rows: with what stands and a checkpoint fewer would not become less
WINDOW: Final = 5_000  # rows for which a text is said to be needed, beyond the next boundary
ROW = ", ".join(("seq", "time", *COLUMNS, "hash"))
_INSERT = f"INSERT INTO records ({ROW})"


class Taken(NamedTuple):
    """Up to where a ledger has what was written ahead of it; (0, 0): nobody ever said.

    `others` tells that it was written since without saying so: by another process.
    """

    generation: int
    number: int
    others: bool


class Store:
    """One ledger that is open for writing."""

    def __init__(
        self,
        path: Path,
        shares: Shares | None = None,
        *,
        chunk: int = _CHUNK,
        window: int = WINDOW,
    ) -> None:
        """Open it, or begin it. Raises Torn, or sqlite3.Error where it cannot be written.

        Without `shares` nothing is summarised.
        """
        self._shares = shares or Shares(math.inf, math.inf)
        self._chunk = chunk
        self._window = window
        self._kept: dict[str, int] = {}  # up to which row texts are needed, as the file says
        self._texts: list[tuple[str, bytes, int]] = []  # of a group, not written yet
        self._needed: list[tuple[int, str]] = []  # likewise, that are there
        self._unfiled = _UNFILED  # or less: what an earlier process left
        self._stands: _Known = {}  # what stands of objects, as the file says
        self._stood_at = b""  # at a head of that hash, and no other one
        self._ahead: tuple[int, int] | None = None
        self._db = opened(path)
        seq, _, last = self._head()
        self.head = (seq, last.hex()) if seq else None  # number and hash of the last row

    def ahead(self) -> Taken:
        """Return up to where the file has what was written ahead of it. Raises sqlite3.Error."""
        found: tuple[int, int, int] | None = self._db.execute(
            "SELECT generation, number, seq FROM ahead"
        ).fetchone()
        if found is None:
            return Taken(0, 0, others=False)
        generation, number, seq = found
        taken = Taken(generation, number, others=seq != self._head()[0])
        self._ahead = None if taken.others else (generation, number)
        return taken

    def mend(self) -> Mended:
        """Make what is derived from the rows what they say; return what was not.

        Raises Torn where a table is not as it was created, or sqlite3.Error.
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
        with suppress(sqlite3.Error):  # it says the same without
            self._db.execute("PRAGMA busy_timeout = 0")
            self._file()
        self._db.close()

    def tidy(self) -> None:
        """Put the rows into the index of objects, where there are many that are not in it.

        Row by row it would be two thirds of what it costs to record: those of a group are about
        objects that lie far apart in it. Raises sqlite3.Error.
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
        """Add entries with their texts in one transaction; return those that were news.

        What a namespace has beyond its share is added as summaries, once `every` so many seconds.
        A decision that stands already is none, nor is a `ref` that was recorded; `old` of a
        decision is what the ledger knows. `now` is Unix seconds; `ahead` is up to which frame
        (generation and number) the file then has what was written ahead of it. Raises
        sqlite3.Error: then none of them is there.
        """
        with self._transaction():
            group = self._group(now)
            added: list[Entry] = []
            for said, texts in self._shares.due(now, every):
                if (entry := self._news(group, said)) is not None:  # not as it was recorded by then
                    added.append(self._add(group, entry, texts))
            for said, texts in entries:
                if (entry := self._news(group, said)) is None:
                    self._shares.stands(said)
                    continue
                for one, its in self._shares.take(entry, texts, now):
                    added.append(self._add(group, one, its))
            group.flush()
            self._flush_texts()
            self._note(ahead, group.seq)
        self._unfiled += len(added)
        self.head = group.head
        self._stands.update(group.stood())
        self._stood_at = group.before
        return added

    def summarise(self, now: float, every: float = EVERY_SECONDS) -> list[Entry]:
        """Add the summaries of namespaces that are due; return what was added."""
        return self.append((), now, self._ahead, every)

    def _add(self, group: _Group, entry: Entry, texts: Sequence[Text]) -> Entry:
        group.add(entry)
        self._keep(group.seq, entry, texts)
        self._shares.added(entry, texts)
        return entry

    def standing(self, collection: str) -> list[tuple[str, str]]:
        """Return the namespace and name of each object of which something is known to stand."""
        asked = "SELECT namespace, name FROM objects WHERE collection = ?"
        return self._db.execute(asked, (collection,)).fetchall()

    def has(self, row: tuple[int, str, object] | None) -> bool:
        """Tell whether there is a row of that number and with that hash."""
        asked = "SELECT hash FROM records WHERE seq = ?"
        found = row and self._db.execute(asked, row[:1]).fetchone()
        return bool(row and found and found[0].hex() == row[1])

    def used(self) -> int:
        """Return how many bytes of the file are in use."""
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def prune(self, now: float, max_age: float, max_size: int) -> int:
        """Take away rows that are older, or too many, a few thousand at most; return how many.

        `max_age` is seconds, `max_size` bytes. Raises sqlite3.Error, or Torn where a row that is
        to go cannot be read: then nothing went.
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
            if full and self._drop_texts():  # of rows that went already
                full = self.used() > max_size
            upto = self._prunable(int((now - max_age) * 1e6), full=full)
            if upto is None:
                return 0
            group = self._group(now)
            again = self._still_standing(upto, full=full)
            for entry in (*again, _checkpoint(upto, self._hash(upto))):
                self._add(group, entry, ())
            group.flush()
            self._shares.removing(self._db, upto)
            gone = self._db.execute("DELETE FROM records WHERE seq <= ?", (upto,)).rowcount
            self._db.execute("DELETE FROM objects WHERE seq <= ?", (upto,))
            self._keep_policies(group.seq)
            self._flush_texts()
            self._db.execute("DELETE FROM texts WHERE keep <= ?", (upto,))
            self._kept = {digest: keep for digest, keep in self._kept.items() if keep > upto}
            self._note(self._ahead, group.seq)
        self.head, self._stood_at = group.head, b""
        return 0 if full and gone <= len(again) + 1 else gone  # it would not get smaller

    def _hash(self, seq: int) -> bytes:
        found = self._db.execute("SELECT hash FROM records WHERE seq = ?", (seq,)).fetchone()
        if found is None:
            msg = f"row {seq} is missing"
            raise Torn(msg)
        return bytes(found[0])

    def _drop_texts(self) -> int:
        """Drop the texts that no row needs, where the rows are few; return how many.

        They are kept for some thousand rows longer than needed, which is much where each is large.
        """
        first, last = self._ends()
        if last - first >= self._chunk:
            return 0
        asked = "SELECT old, new, data, input FROM records"
        needed = {digest for row in self._db.execute(asked).fetchall() for digest in row}
        for asked, named in (
            ("SELECT data FROM records", parts_of),
            ("SELECT new FROM records WHERE kind = 'policy'", modules_of),
        ):
            within = f"SELECT body FROM texts WHERE digest IN ({asked})"  # noqa: S608 - our own
            for (body,) in self._db.execute(within).fetchall():
                needed.update(named(body))
        known = {digest for (digest,) in self._db.execute("SELECT digest FROM texts").fetchall()}
        gone = [(digest,) for digest in known - needed]
        self._db.executemany("DELETE FROM texts WHERE digest = ?", gone)
        self._kept.clear()
        return len(gone)

    def _note(self, ahead: tuple[int, int] | None, seq: int) -> None:
        """Say how far the file has what was written ahead, and that nobody has written but us."""
        self._ahead = ahead
        if ahead is not None:
            asked = (
                "INSERT OR REPLACE INTO ahead (one, generation, number, seq) VALUES (1, ?, ?, ?)"
            )
            self._db.execute(asked, (*ahead, seq))

    def _file(self) -> None:
        self._db.execute("UPDATE records SET filed = 1 WHERE filed = 0")
        self._unfiled = 0

    def _transaction(self) -> _Transaction:
        self._shares.begin()
        return _Transaction(self._db, self._undone)

    def _undone(self) -> None:
        self._forget()
        self._shares.undo()

    def _forget(self) -> None:
        """Know nothing of the file but what it says."""
        self._kept.clear()
        self._texts.clear()
        self._needed.clear()
        self._stood_at = b""

    def _head(self) -> tuple[int, int, bytes]:
        """Return number, time and hash of the last row, as the file has it now."""
        asked = "SELECT seq, time, hash FROM records ORDER BY seq DESC LIMIT 1"
        found: tuple[int, int, bytes] | None = self._db.execute(asked).fetchone()
        return found or (0, 0, START)

    def _group(self, now: float) -> _Group:
        """Return a group of rows to add at the head, whose time does not go back."""
        seq, time, before = self._head()
        if before != self._stood_at or len(self._stands) > _STANDING:
            self._stands.clear()
        return _Group(self._db, seq, max(time, int(now * 1e6)), before, self._stands)

    def _news(self, group: _Group, entry: Entry) -> Entry | None:
        """Return an entry as it is to be recorded, None where the ledger says so already."""
        if entry.ref:
            return None if group.has(entry.ref, entry.kind) else entry
        if entry.kind == "policy":
            before = group.policy()
            same = before == (entry.policy, entry.new)
            return None if same else msgspec.structs.replace(entry, old=before[1])
        if entry.kind not in ("decision", "gone"):
            return entry
        if (known := group.standing(_where(entry))) is None:
            return None if entry.kind == "gone" or entry.status == "undefined" else entry
        # A failure may not know of which object it is.
        uid, decided = entry.uid or known[0], known[1]
        if entry.kind == "decision" and known == (uid, entry.new, entry.status, entry.note):
            return None
        return msgspec.structs.replace(entry, uid=uid, old=decided)

    def _keep(self, seq: int, entry: Entry, texts: Sequence[Text]) -> None:
        """Have the texts of a row for as long as the row is there.

        Up to a boundary ahead of it, so that what is named again and again is noted once for all
        rows up to there.
        """
        upto = (seq // self._window + 2) * self._window
        kept = self._kept
        if len(kept) > _NOTED:
            kept.clear()  # it is in the file
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

    def _flush_texts(self) -> None:
        """Write the texts of a group, and for how long others are needed."""
        raised = " ON CONFLICT (digest) DO UPDATE SET keep = max(keep, excluded.keep)"
        _insert(self._db, "INSERT INTO texts", self._texts, raised)
        asked = "UPDATE texts SET keep = max(keep, ?) WHERE digest = ?"
        self._db.executemany(asked, self._needed)
        self._texts.clear()
        self._needed.clear()

    def _parts(self, digest: str) -> list[str]:
        self._flush_texts()  # it may be among them
        asked = "SELECT body FROM texts WHERE digest = ?"
        found = self._db.execute(asked, (digest,)).fetchone()
        return [] if found is None else parts_of(found[0])

    def _keep_policies(self, seq: int) -> None:
        """Have the modules of every policy that a row is about for as long as the newest row."""
        asked = (
            "SELECT digest, body FROM texts"
            " WHERE digest IN (SELECT new FROM records WHERE kind = 'policy')"
        )
        for listed, body in self._db.execute(asked).fetchall():
            for digest in (listed, *modules_of(body)):
                self._keep(seq, Entry(kind="policy", new=digest), ())

    def _prunable(self, oldest: int, *, full: bool) -> int | None:
        """Return up to which row to prune, None where nothing is due."""
        first, last = self._ends()
        # Of one row a checkpoint would be made, and of that another one, for ever.
        if last == first:
            return None
        upto = min(last, first + self._chunk - 1)
        if full:
            if last > upto:
                return upto
            # Few rows with large texts: half of them.
            return (first + last) // 2 if last - first >= _FEW else None
        asked = "SELECT max(seq) FROM records WHERE seq <= ? AND time < ?"
        aged: int | None = self._db.execute(asked, (upto, oldest)).fetchone()[0]
        return aged if aged is not None and aged > first else None

    def _ends(self) -> tuple[int, int]:
        """Return the numbers of the first and the last row, the same where there is none."""
        asked = "SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM records"
        first, last = self._db.execute(asked).fetchone()
        return first, last

    def _still_standing(self, upto: int, *, full: bool) -> list[Entry]:
        """Return what the rows that go say of what is as it was, to be said again.

        Of a file that is too large no more than half of them, the newest: it would never get
        smaller.
        """
        first, _ = self._ends()
        most = (upto - first + 1) // 2 if full else -1  # none is too many
        asked = (
            f"SELECT {ROW} FROM records WHERE seq IN"  # noqa: S608 - our own names
            " (SELECT seq FROM objects WHERE seq <= ? ORDER BY seq DESC LIMIT ?) ORDER BY seq"
        )
        found = [row_of(values) for values in self._db.execute(asked, (upto, most)).fetchall()]
        policies = self._policies_of(found, upto)
        return [_again(row) for row in sorted([*policies, *found], key=lambda row: row.seq)]

    def _policies_of(self, standing: Iterable[Row], upto: int) -> list[Row]:
        """Return the rows up to there of policies that these or later rows name, or in force."""
        named = {row.entry.policy for row in standing} | {_policy_in_force(self._db)[0]}
        asked = (
            f"SELECT {ROW}, EXISTS (SELECT 1 FROM records later"  # noqa: S608 - our own names
            " WHERE later.seq > ? AND later.policy = records.policy) FROM records"
            " INDEXED BY policies WHERE kind = 'policy' AND seq <= ? ORDER BY seq"
        )
        found: dict[str, Row] = {}
        for *values, later in self._db.execute(asked, (upto, upto)).fetchall():
            row = row_of(values)
            known = found.get(row.entry.policy)
            if (later or row.entry.policy in named) and (known is None or _at(known) <= _at(row)):
                found[row.entry.policy] = row  # of each when it came into force last
        return [*found.values()]


_Where = tuple[str, str, str]  # collection, namespace, name
_Stands = tuple[str, str, str, str]  # uid, digest of the decision, status, note
_Known = dict[_Where, _Stands | None]  # None: nothing stands


class _Group:
    """Rows that are added at once, and what stands when they are."""

    def __init__(
        self, db: sqlite3.Connection, seq: int, time: int, before: bytes, known: _Known
    ) -> None:
        """Begin after row `seq`, whose hash is `before`; `known` is of the file, and added to."""
        self.seq, self.before = seq, before
        self._db, self._time, self._known = db, time, known
        self._rows: list[tuple[object, ...]] = []
        self._standing: dict[_Where, tuple[_Stands, int] | None] = {}  # and which row says so
        self._refs: set[tuple[str, str]] = set()
        self._policy: tuple[str, str] | None = None

    @property
    def head(self) -> tuple[int, str] | None:
        """Number and hash of the last row, None where there is none."""
        return (self.seq, self.before.hex()) if self.seq else None

    def add(self, entry: Entry) -> None:
        """Add an entry after all others."""
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
            self._standing[_where(entry)] = None
        elif entry.kind == "decision":
            said = (entry.uid, entry.new, entry.status, entry.note)
            self._standing[_where(entry)] = said, self.seq

    def has(self, ref: str, kind: str) -> bool:
        """Tell whether something was recorded already."""
        asked = "SELECT 1 FROM records WHERE ref = ? AND kind = ? AND ref != ''"
        known = (ref, kind) in self._refs
        return known or self._db.execute(asked, (ref, kind)).fetchone() is not None

    def policy(self) -> tuple[str, str]:
        """Return the digest of the policies in force, and that of their list, "" of none."""
        return self._policy or _policy_in_force(self._db)

    def standing(self, where: _Where) -> _Stands | None:
        """Return what stands of an object, None where nothing does."""
        if where in self._standing:
            found = self._standing[where]
            return None if found is None else found[0]
        if where not in self._known:
            asked = (
                "SELECT uid, decided, status, note FROM objects"
                " WHERE collection = ? AND namespace = ? AND name = ?"
            )
            self._known[where] = self._db.execute(asked, where).fetchone()
        return self._known[where]

    def stood(self) -> Iterator[tuple[_Where, _Stands | None]]:
        """Yield what stands once it is written, of objects that it is about."""
        for where, found in self._standing.items():
            yield where, None if found is None else found[0]

    def flush(self) -> None:
        """Write all of it."""
        _insert(self._db, _INSERT, self._rows)
        gone = [where for where, found in self._standing.items() if found is None]
        asked = "DELETE FROM objects WHERE collection = ? AND namespace = ? AND name = ?"
        self._db.executemany(asked, gone)
        stand = [(*where, *f[0], f[1]) for where, f in self._standing.items() if f is not None]
        _insert(self._db, "INSERT OR REPLACE INTO objects", stand)


def _policy_in_force(db: sqlite3.Connection) -> tuple[str, str]:
    """Return the digest of the policies in force, and that of their list, "" of none.

    Those that are only said again are older than any that is not, and tell since when they are.
    """
    asked = (
        "SELECT policy, new, cause FROM records INDEXED BY policies"
        " WHERE kind = 'policy' ORDER BY seq DESC"
    )
    newest, found = -1.0, ("", "")
    for policy, new, cause in db.execute(asked):
        since = standing_since(Entry(kind="policy", cause=cause))
        if since is None:
            return policy, new
        if since > newest:
            newest, found = since, (policy, new)
    return found


def _where(entry: Entry) -> _Where:
    return entry.collection, entry.namespace, entry.name


def _insert(
    db: sqlite3.Connection, into: str, rows: Sequence[Sequence[object]], end: str = ""
) -> None:
    """Add rows by few statements, each of which is one step.

    Around each step Python's lock is given up, and whoever decides meanwhile may keep it for
    milliseconds.
    """
    done = 0
    for many in _AT_ONCE:
        while len(rows) - done >= many:
            part = rows[done : done + many]
            one = f"({', '.join('?' * len(part[0]))})"
            asked = f"{into} VALUES {', '.join([one] * many)}{end}"
            db.execute(asked, [*chain.from_iterable(part)])
            done += many


class _Transaction:
    """One that holds the file from its beginning, so that the head stays where it was read."""

    def __init__(self, db: sqlite3.Connection, undone: Callable[[], None]) -> None:
        self._db, self._undone = db, undone

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._db.execute("COMMIT")
            return
        self._undone()
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")


def row_of(values: Sequence[object]) -> Row:
    """Return a row as the file has it. Raises msgspec.ValidationError."""
    seq, time, *columns, found = values
    entry = msgspec.convert(dict(zip(COLUMNS, columns, strict=True)), Entry)
    return Row(
        msgspec.convert(seq, int), msgspec.convert(time, int), entry, msgspec.convert(found, bytes)
    )


def _at(row: Row) -> float:
    """Return when it was said first, in Unix seconds."""
    since = standing_since(row.entry)
    return row.seconds if since is None else since


def _again(row: Row) -> Entry:
    if standing_since(row.entry) is not None:
        return row.entry
    return msgspec.structs.replace(
        row.entry, cause=f"{STANDING}{row.seconds:.6f}", old=row.entry.new
    )


def _checkpoint(upto: int, last: bytes) -> Entry:
    note = msgspec.json.encode(Checkpoint(upto, last.hex())).decode()
    return Entry(kind="checkpoint", note=note)
