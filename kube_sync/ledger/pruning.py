"""Which old rows of a ledger to prune, and which entries to repeat so that no state is lost.

Invariant: a checkpoint in the chain replaces the pruned rows, and the states of objects that did
not change since, and the policies that rows name, are recorded again. It only reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import msgspec

from kube_sync.ledger.database import Torn
from kube_sync.ledger.entries import ROW, STANDING, Checkpoint, Entry, Row, row_of, standing_since
from kube_sync.ledger.group import policy_in_force

_FEW = 16  # rows: with repeated states and a checkpoint, pruning fewer would gain nothing


def prunable(db: sqlite3.Connection, oldest: int, most: int, *, full: bool) -> int | None:
    """Return up to which row to prune, `most` at once; None if nothing is due.

    Rows before `oldest` (Unix microseconds) are due, and the first rows of a file that is `full`.
    """
    first, last = ends(db)
    # One row would become a checkpoint, that one another checkpoint, and so on for ever.
    if last == first:
        return None
    upto = min(last, first + most - 1)
    if full:
        if last > upto:
            return upto
        # Few rows with large texts: prune half of them.
        return (first + last) // 2 if last - first >= _FEW else None
    query = "SELECT max(seq) FROM records WHERE seq <= ? AND time < ?"
    aged: int | None = db.execute(query, (upto, oldest)).fetchone()[0]
    return aged if aged is not None and aged > first else None


def ends(db: sqlite3.Connection) -> tuple[int, int]:
    """Return the numbers of the first and the last row, equal if there is none."""
    query = "SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM records"
    first, last = db.execute(query).fetchone()
    return first, last


def entries_to_repeat(db: sqlite3.Connection, upto: int, *, full: bool) -> list[Entry]:
    """Return the current states in the rows to prune, as entries to repeat.

    For a file that is too large at most half as many, the newest: otherwise it would never
    shrink.
    """
    first, _ = ends(db)
    most = (upto - first + 1) // 2 if full else -1  # a negative number: no limit
    query = (
        f"SELECT {ROW} FROM records WHERE seq IN"  # noqa: S608 - our own names
        " (SELECT seq FROM objects WHERE seq <= ? ORDER BY seq DESC LIMIT ?) ORDER BY seq"
    )
    found = [row_of(values) for values in db.execute(query, (upto, most)).fetchall()]
    policies = _policies_of(db, found, upto)
    return [_again(row) for row in sorted([*policies, *found], key=lambda row: row.seq)]


def _policies_of(db: sqlite3.Connection, rows: Iterable[Row], upto: int) -> list[Row]:
    """Return the rows up to `upto` of policies in force, or that these or later rows name."""
    named = {row.entry.policy for row in rows} | {policy_in_force(db)[0]}
    query = (
        f"SELECT {ROW}, EXISTS (SELECT 1 FROM records later"  # noqa: S608 - our own names
        " WHERE later.seq > ? AND later.policy = records.policy) FROM records"
        " INDEXED BY policies WHERE kind = 'policy' AND seq <= ? ORDER BY seq"
    )
    found: dict[str, Row] = {}
    for *values, later in db.execute(query, (upto, upto)).fetchall():
        row = row_of(values)
        known = found.get(row.entry.policy)
        if (later or row.entry.policy in named) and (known is None or _at(known) <= _at(row)):
            found[row.entry.policy] = row  # the last one of each
    return [*found.values()]


def _at(row: Row) -> float:
    """Return when it was recorded first, in Unix seconds."""
    since = standing_since(row.entry)
    return row.seconds if since is None else since


def _again(row: Row) -> Entry:
    if standing_since(row.entry) is not None:
        return row.entry
    return msgspec.structs.replace(
        row.entry, cause=f"{STANDING}{row.seconds:.6f}", old=row.entry.new
    )


def checkpoint(db: sqlite3.Connection, upto: int) -> Entry:
    """Return the checkpoint for the rows up to one. Raises Torn if that row is missing."""
    found = db.execute("SELECT hash FROM records WHERE seq = ?", (upto,)).fetchone()
    if found is None:
        msg = f"row {upto} is missing"
        raise Torn(msg)
    note = msgspec.json.encode(Checkpoint(upto, bytes(found[0]).hex())).decode()
    return Entry(kind="checkpoint", note=note)
