"""Verifies a ledger: each row, the hash chain, every text, and the derived tables.

Invariant: each row whose content does not match its hash is reported, whichever column differs,
and so is the first row after missing ones. The table of objects is compared with one rebuilt from
the rows, the schema with ours. The file alone cannot show that a chain was recreated from some row
on, or that its end was cut off: for that, compare the head with one that was noted elsewhere
(`heads`). Reads only.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from kube_sync.ledger.bases import parts_of
from kube_sync.ledger.database import described, strange
from kube_sync.ledger.entries import ROW, START, Checkpoint, GapNote, Row, link, modules_of, row_of
from kube_sync.ledger.heads import Head
from kube_sync.ledger.object_table import differences, prepare, rebuilt
from kube_sync.ledger.texts import WINDOW
from kube_sync.ledger.write_ahead import left_in

_MOST: Final = 20  # faults that are reported


@dataclass(slots=True)
class Verified:
    """The result; without `faults` the ledger is intact."""

    rows: int = 0
    first: int = 0
    last: int = 0
    hash: str = ""  # of the last row
    gaps: int = 0
    summaries: int = 0
    summarised: int = 0  # records that exist only in summaries
    ahead: int = 0  # entries in the write-ahead file that are in no row yet
    faults: list[str] = field(default_factory=list)

    @property
    def head(self) -> str:
        """The head of the chain, to be noted elsewhere: number and hash."""
        return f"{self.last}:{self.hash}"


def verify_ahead(db: sqlite3.Connection, path: Path, found: Verified) -> None:
    """Check the write-ahead file of a ledger, of a running or killed process.

    Raises sqlite3.Error.
    """
    ingested = db.execute("SELECT generation, number FROM ahead").fetchone() or (0, 0)
    try:
        left = left_in(path.read_bytes())
    except FileNotFoundError:  # a copied ledger, or nothing was written ahead
        return
    except (OSError, msgspec.DecodeError) as error:
        found.faults.append(f"{path}: it cannot be read: {error}")
        return
    known = ingested[1] if ingested[0] == left.generation else 0
    found.ahead = sum(number > known for number, _ in left.items)
    if not left.is_whole:
        found.faults.append(f"{path}: it is not what was written ahead")


def verify(db: sqlite3.Connection, heads: Iterable[Head] = ()) -> Verified:
    """Check a ledger; `heads` were noted before, elsewhere.

    Raises sqlite3.Error if the file cannot be read.
    """
    prepare(db)
    db.execute("BEGIN")  # one snapshot, whatever is written or pruned meanwhile
    try:
        return _verified(db, heads)
    finally:
        db.execute("ROLLBACK")


def _verified(db: sqlite3.Connection, heads: Iterable[Head]) -> Verified:
    found, checkpoint, begun = Verified(), None, None
    before: tuple[int, int, bytes] | None = None
    for number, row in _rows(db):
        found.rows += 1
        if row is None:
            found.faults.append(f"row {number}: its columns are not what a ledger writes")
            before = None
            continue
        fault = _after(before, row)
        if fault is not None:
            found.faults.append(fault)
        elif row.entry.kind == "checkpoint":
            checkpoint = row
        found.gaps += row.entry.kind == "gap"
        if row.entry.kind == "summary":
            found.summaries += 1
            found.summarised += _summarised(row)
        begun = begun or row
        before = (row.seq, row.time, row.hash)
        found.last, found.hash = row.seq, row.hash.hex()
    if begun is not None:
        found.first = begun.seq
        found.faults += _beginning(begun, checkpoint, faulty=bool(found.faults))
    found.faults += [*_derived(db), *_index(db), *_texts(db), *_parts(db)]
    # First: a recreated chain is consistent in itself.
    found.faults[:0] = [fault for head in heads for fault in _anchored(db, head)]
    del found.faults[_MOST:]
    return found


def _rows(db: sqlite3.Connection) -> Iterator[tuple[object, Row | None]]:
    for values in db.execute(f"SELECT {ROW} FROM records ORDER BY seq"):  # noqa: S608 - our own names
        try:
            yield values[0], row_of(values)
        except msgspec.ValidationError:
            yield values[0], None


def _summarised(row: Row) -> int:
    try:
        return msgspec.json.decode(row.entry.note, type=GapNote).entries
    except msgspec.DecodeError:  # only a forger writes that
        return 0


def _after(before: tuple[int, int, bytes] | None, row: Row) -> str | None:
    """Return the fault of a row that follows another, None if there is none."""
    if before is None:
        return None
    seq, time, found = before
    if row.seq != seq + 1:
        return f"row {row.seq}: {row.seq - seq - 1} rows before it are missing"
    if link(found, row.seq, row.time, row.entry) != row.hash:
        return f"row {row.seq}: it is not what was written"
    return f"row {row.seq}: it is older than the row before it" if row.time < time else None


def _beginning(first: Row, checkpoint: Row | None, *, faulty: bool) -> list[str]:
    """Return the faults of the oldest row."""
    upto, before = 0, START
    if checkpoint is not None:
        try:
            note = msgspec.json.decode(checkpoint.entry.note, type=Checkpoint)
            upto, before = note.upto, bytes.fromhex(note.hash)
        except (msgspec.DecodeError, ValueError):
            return [f"row {checkpoint.seq}: its checkpoint cannot be read"]
    if first.seq != upto + 1:
        # A checkpoint with a fault was reported already.
        missing = f"row {first.seq}: the rows before it are missing, and no checkpoint says why"
        return [] if faulty else [missing]
    if link(before, first.seq, first.time, first.entry) != first.hash:
        return [f"row {first.seq}: it is not what was written"]
    return []


def _derived(db: sqlite3.Connection) -> Iterator[str]:
    """Yield the differences of the schema, of the indexes and of the table of objects."""
    yield from (described(*one) for one in strange(db))
    for (text,) in db.execute(f"PRAGMA integrity_check({_MOST})"):
        if text != "ok":
            yield f"the database: {text}"
    with rebuilt(db):
        yield from (one.text for one in differences(db))


def _index(db: sqlite3.Connection) -> Iterator[str]:
    """Yield a row that no query would find: rows beyond the object index are the newest."""
    first = db.execute("SELECT min(seq) FROM records WHERE filed != 1").fetchone()[0]
    query = "SELECT 1 FROM records WHERE seq >= ? AND filed != 0 LIMIT 1"
    if first is not None and db.execute(query, (first,)).fetchone() is not None:
        yield f"row {first}: it is not in the index of objects, and later ones are"


def _texts(db: sqlite3.Connection) -> Iterator[str]:
    for digest, body in db.execute("SELECT digest, body FROM texts"):
        if not isinstance(body, bytes) or hashlib.sha256(body).hexdigest() != digest:
            yield f"text {digest}: it is not what was written"
    for column in ("old", "new", "data", "input"):
        query = (
            f"SELECT seq, {column}, (SELECT keep FROM texts WHERE digest = {column}) AS kept"  # noqa: S608 - our own names
            f" FROM records WHERE {column} != '' AND coalesce(kept, -1) < seq"
        )
        for seq, digest, kept in db.execute(query):
            if kept is None:
                yield f"row {seq}: the text {digest} that it names is missing"
            else:
                yield f"text {digest}: it would be taken away before row {seq}, which names it"
    query = "SELECT digest FROM texts WHERE keep > (SELECT max(seq) / ?1 + 2 FROM records) * ?1"
    for (digest,) in db.execute(query, (WINDOW,)):
        yield f"text {digest}: it would be kept for longer than any row that names it"


def _parts(db: sqlite3.Connection) -> Iterator[str]:
    states = "SELECT digest, body, keep FROM texts WHERE digest IN (SELECT data FROM records)"
    policies = (
        "SELECT digest, body, max(seq) FROM records JOIN texts ON digest = new"
        " WHERE kind = 'policy' GROUP BY digest"
    )
    for which, named in ((states, parts_of), (policies, modules_of)):
        for digest, body, needed in db.execute(which).fetchall():
            for part in named(body) if isinstance(body, bytes) else ():
                query = "SELECT keep FROM texts WHERE digest = ?"
                found = db.execute(query, (part,)).fetchone()
                if found is None:
                    yield f"text {digest}: the text {part} that it names is missing"
                elif found[0] < needed:
                    yield f"text {part}: it would be taken away before {digest}, which names it"


def _anchored(db: sqlite3.Connection, head: Head) -> Iterator[str]:
    found = db.execute("SELECT hash FROM records WHERE seq = ?", (head.row,)).fetchone()
    where = f" ({head.where})" if head.where else ""
    if found is None:
        yield f"row {head.row}: it is missing, or was taken away with the oldest{where}"
    elif not isinstance(found[0], bytes) or found[0].hex() != head.hash:
        yield f"row {head.row}: its hash is not the one that was noted{where}"
