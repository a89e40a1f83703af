"""Which rows of a ledger go at its old end, and what is said again so that nothing is missing.

Keeps true: what is taken away is stood for by a checkpoint in the chain, and of objects that did
not change since, and of policies that rows name, what stands is said anew. It only reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import msgspec

from kube_sync.ledger.database import Torn
from kube_sync.ledger.entries import (
    ROW,
    STANDING,
    Checkpoint,
    Entry,
    Row,
    row_of,
    standing_since,
)
from kube_sync.ledger.group import policy_in_force

_FEW = 16  # rows: with what stands and a checkpoint fewer would not become less


def prunable(db: sqlite3.Connection, oldest: int, most: int, *, full: bool) -> int | None:
    """Return up to which row to prune, `most` at once; None where nothing is due.

    Rows before `oldest` (Unix microseconds) are due, and in a file that is too `full` the first.
    """
    first, last = ends(db)
    # Of one row a checkpoint would be made, and of that another one, for ever.
    if last == first:
        return None
    upto = min(last, first + most - 1)
    if full:
        if last > upto:
            return upto
        # Few rows with large texts: half of them.
        return (first + last) // 2 if last - first >= _FEW else None
    asked = "SELECT max(seq) FROM records WHERE seq <= ? AND time < ?"
    aged: int | None = db.execute(asked, (upto, oldest)).fetchone()[0]
    return aged if aged is not None and aged > first else None


def ends(db: sqlite3.Connection) -> tuple[int, int]:
    """Return the numbers of the first and the last row, the same where there is none."""
    asked = "SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM records"
    first, last = db.execute(asked).fetchone()
    return first, last


def still_standing(db: sqlite3.Connection, upto: int, *, full: bool) -> list[Entry]:
    """Return what the rows that go say of what is as it was, to be said again.

    Of a file that is too large no more than half of them, the newest: it would never get
    smaller.
    """
    first, _ = ends(db)
    most = (upto - first + 1) // 2 if full else -1  # none is too many
    asked = (
        f"SELECT {ROW} FROM records WHERE seq IN"  # noqa: S608 - our own names
        " (SELECT seq FROM objects WHERE seq <= ? ORDER BY seq DESC LIMIT ?) ORDER BY seq"
    )
    found = [row_of(values) for values in db.execute(asked, (upto, most)).fetchall()]
    policies = _policies_of(db, found, upto)
    return [_again(row) for row in sorted([*policies, *found], key=lambda row: row.seq)]


def _policies_of(db: sqlite3.Connection, standing: Iterable[Row], upto: int) -> list[Row]:
    """Return the rows up to there of policies that these or later rows name, or in force."""
    named = {row.entry.policy for row in standing} | {policy_in_force(db)[0]}
    asked = (
        f"SELECT {ROW}, EXISTS (SELECT 1 FROM records later"  # noqa: S608 - our own names
        " WHERE later.seq > ? AND later.policy = records.policy) FROM records"
        " INDEXED BY policies WHERE kind = 'policy' AND seq <= ? ORDER BY seq"
    )
    found: dict[str, Row] = {}
    for *values, later in db.execute(asked, (upto, upto)).fetchall():
        row = row_of(values)
        known = found.get(row.entry.policy)
        if (later or row.entry.policy in named) and (known is None or _at(known) <= _at(row)):
            found[row.entry.policy] = row  # of each when it came into force last
    return [*found.values()]


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


def checkpoint(db: sqlite3.Connection, upto: int) -> Entry:
    """Return what stands for the rows up to one. Raises Torn where that is missing."""
    found = db.execute("SELECT hash FROM records WHERE seq = ?", (upto,)).fetchone()
    if found is None:
        msg = f"row {upto} is missing"
        raise Torn(msg)
    note = msgspec.json.encode(Checkpoint(upto, bytes(found[0]).hex())).decode()
    return Entry(kind="checkpoint", note=note)
