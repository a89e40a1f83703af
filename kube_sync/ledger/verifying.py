"""Whether a ledger is what was written: each row, the chain, every text, and what is derived.

Keeps true: a row is named whose content is not that of its hash, whichever column differs, and so
is the first one after rows that are missing. The table of objects is rebuilt from the rows, and the
definitions of tables, indexes and triggers are compared with ours. What nobody can see from inside
is a chain that was made anew from some row on, or whose end was cut off: for that, compare the head
with one that was noted elsewhere (`heads`). Reads only.
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

_MOST: Final = 20  # faults that are told


@dataclass(slots=True)
class Verified:
    """What was found; without `faults` all is as it was written."""

    rows: int = 0
    first: int = 0
    last: int = 0
    hash: str = ""  # of the last row
    gaps: int = 0
    summaries: int = 0
    summarised: int = 0  # records that are in these alone
    ahead: int = 0  # entries that are written ahead of it, and in no row yet
    faults: list[str] = field(default_factory=list)

    @property
    def head(self) -> str:
        """The end of the chain, to be noted elsewhere: number and hash."""
        return f"{self.last}:{self.hash}"


def verify_ahead(db: sqlite3.Connection, path: Path, found: Verified) -> None:
    """Look into what was written ahead of a ledger, by a process that runs or was killed.

    Raises sqlite3.Error.
    """
    taken = db.execute("SELECT generation, number FROM ahead").fetchone() or (0, 0)
    try:
        left = left_in(path.read_bytes())
    except FileNotFoundError:  # of a copy, or nothing was written ahead
        return
    except (OSError, msgspec.DecodeError) as error:
        found.faults.append(f"{path}: it cannot be read: {error}")
        return
    known = taken[1] if taken[0] == left.generation else 0
    found.ahead = sum(number > known for number, _ in left.items)
    if not left.is_whole:
        found.faults.append(f"{path}: it is not what was written ahead")


def verify(db: sqlite3.Connection, heads: Iterable[Head] = ()) -> Verified:
    """Check a ledger; `heads` were noted before, elsewhere.

    Raises sqlite3.Error where the file cannot be read.
    """
    prepare(db)
    db.execute("BEGIN")  # one state of it, whatever is added and taken away meanwhile
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
    # First: who has made a chain anew has made all else fit.
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
    except msgspec.DecodeError:  # nobody but a forger writes that
        return 0


def _after(before: tuple[int, int, bytes] | None, row: Row) -> str | None:
    """Return what is wrong with a row that comes after another one, None: nothing."""
    if before is None:
        return None
    seq, time, found = before
    if row.seq != seq + 1:
        return f"row {row.seq}: {row.seq - seq - 1} rows before it are missing"
    if link(found, row.seq, row.time, row.entry) != row.hash:
        return f"row {row.seq}: it is not what was written"
    return f"row {row.seq}: it is older than the row before it" if row.time < time else None


def _beginning(first: Row, checkpoint: Row | None, *, faulty: bool) -> list[str]:
    """Return what is wrong with the first row that is left."""
    upto, before = 0, START
    if checkpoint is not None:
        try:
            note = msgspec.json.decode(checkpoint.entry.note, type=Checkpoint)
            upto, before = note.upto, bytes.fromhex(note.hash)
        except (msgspec.DecodeError, ValueError):
            return [f"row {checkpoint.seq}: its checkpoint cannot be read"]
    if first.seq != upto + 1:
        # A checkpoint that is not what was written was told already.
        missing = f"row {first.seq}: the rows before it are missing, and no checkpoint says why"
        return [] if faulty else [missing]
    if link(before, first.seq, first.time, first.entry) != first.hash:
        return [f"row {first.seq}: it is not what was written"]
    return []


def _derived(db: sqlite3.Connection) -> Iterator[str]:
    """Yield what differs of the tables' definitions, of their indexes and of what stands."""
    yield from (described(*one) for one in strange(db))
    for (text,) in db.execute(f"PRAGMA integrity_check({_MOST})"):
        if text != "ok":
            yield f"the database: {text}"
    with rebuilt(db):
        yield from (one.text for one in differences(db))


def _index(db: sqlite3.Connection) -> Iterator[str]:
    """Yield a row that would not be found: those beyond the index of objects are the newest."""
    first = db.execute("SELECT min(seq) FROM records WHERE filed != 1").fetchone()[0]
    asked = "SELECT 1 FROM records WHERE seq >= ? AND filed != 0 LIMIT 1"
    if first is not None and db.execute(asked, (first,)).fetchone() is not None:
        yield f"row {first}: it is not in the index of objects, and later ones are"


def _texts(db: sqlite3.Connection) -> Iterator[str]:
    for digest, body in db.execute("SELECT digest, body FROM texts"):
        if not isinstance(body, bytes) or hashlib.sha256(body).hexdigest() != digest:
            yield f"text {digest}: it is not what was written"
    for column in ("old", "new", "data", "input"):
        asked = (
            f"SELECT seq, {column}, (SELECT keep FROM texts WHERE digest = {column}) AS kept"  # noqa: S608 - our own names
            f" FROM records WHERE {column} != '' AND coalesce(kept, -1) < seq"
        )
        for seq, digest, kept in db.execute(asked):
            if kept is None:
                yield f"row {seq}: the text {digest} that it names is missing"
            else:
                yield f"text {digest}: it would be taken away before row {seq}, which names it"
    asked = "SELECT digest FROM texts WHERE keep > (SELECT max(seq) / ?1 + 2 FROM records) * ?1"
    for (digest,) in db.execute(asked, (WINDOW,)):
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
                asked = "SELECT keep FROM texts WHERE digest = ?"
                found = db.execute(asked, (part,)).fetchone()
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
