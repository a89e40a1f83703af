"""The table of current object states, rebuilt from the rows and compared with them.

Invariant: the rows are right, since they are in the chain. New decisions are compared with the
table, so a wrong state in it would let a change go unrecorded. SQLite alone rebuilds it, in one
statement without Python's interpreter lock: a million rows take seconds, while the event loop
continues. The memory that it takes depends on the number of objects.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

_KEY = "collection, namespace, name"
_STATE: Final = ("uid", "decided", "status", "note", "seq")
_REBUILT = f"""
CREATE TEMP TABLE rebuilt ({_KEY}, {", ".join(_STATE)}, PRIMARY KEY ({_KEY})) WITHOUT ROWID
"""
# The newest row of each object counts; deleted objects and those without a decision are dropped.
_FILL = f"""
INSERT OR REPLACE INTO temp.rebuilt
    SELECT {_KEY}, uid, new, CASE kind WHEN 'gone' THEN 'undefined' ELSE status END, note, seq
    FROM main.records WHERE kind IN ('decision', 'gone') ORDER BY seq
"""  # noqa: S608 - our own names
_ENDED = "DELETE FROM temp.rebuilt WHERE status = 'undefined'"
_DIFFERS = f"""
SELECT {_KEY}, r.seq, {", ".join(f"o.{one} IS NOT r.{one}" for one in _STATE)}, o.seq IS NULL
    FROM temp.rebuilt r LEFT JOIN main.objects o USING ({_KEY})
    WHERE {" OR ".join(f"o.{one} IS NOT r.{one}" for one in _STATE)}
"""  # noqa: S608 - our own names
_INVENTED = f"""
SELECT {_KEY} FROM main.objects o
    WHERE NOT EXISTS (SELECT 1 FROM temp.rebuilt r WHERE r.collection = o.collection
        AND r.namespace = o.namespace AND r.name = o.name)
"""  # noqa: S608 - our own names


class Difference(NamedTuple):
    """An object whose state in the table differs from its rows."""

    row: int | None  # the row with its state, None: it has no state
    text: str


class Mended(NamedTuple):
    """What was repaired, and since when (Unix seconds) changes may be missing."""

    differences: tuple[str, ...] = ()
    since: float | None = None


def mend(db: sqlite3.Connection) -> Mended:
    """Repair the derived tables and indexes by the rows, within a transaction."""
    found = [*unindexed(db)]
    # Rows that are in neither index would never be found.
    db.execute("UPDATE records SET filed = 1 WHERE filed = 0")
    if found:
        db.execute("UPDATE records SET filed = 1 WHERE filed != 1")
    with rebuilt(db):
        objects = [*differences(db)]
        rows = [one.row for one in objects if one.row is not None]
        query = "SELECT time FROM records WHERE seq = ?"
        since = db.execute(query, (min(rows),)).fetchone()[0] / 1e6 if rows else None
        if objects:
            repair(db)
    return Mended((*found, *(one.text for one in objects)), since)


def unindexed(db: sqlite3.Connection) -> Iterator[str]:
    """Yield a fault if rows are in neither index of objects."""
    indexed = (
        "(SELECT count(*) FROM records INDEXED BY by_object WHERE filed = 1)"
        " + (SELECT count(*) FROM records INDEXED BY unfiled WHERE filed = 0)"
    )
    # If no number is missing either, the counts alone prove it, without a scan of the rows.
    for counted in ("coalesce(max(seq) - min(seq) + 1, 0)", "count(*)"):
        query = f"SELECT {counted} - ({indexed}) FROM records NOT INDEXED"  # noqa: S608 - our own
        if (lacking := db.execute(query).fetchone()[0]) == 0:
            return
    yield f"{lacking} rows are not in the index of objects"


def prepare(db: sqlite3.Connection) -> None:
    """Prepare a connection to compare, before its transaction."""
    db.execute("PRAGMA temp_store = MEMORY")  # a temporary folder may not be writable


@contextmanager
def rebuilt(db: sqlite3.Connection) -> Iterator[None]:
    """Rebuild the table from the rows, as `temp.rebuilt`; within a transaction."""
    db.execute(_REBUILT)
    try:
        db.execute(_FILL)
        db.execute(_ENDED)
        yield
    finally:
        db.execute("DROP TABLE temp.rebuilt")


def differences(db: sqlite3.Connection) -> Iterator[Difference]:
    """Yield the differences between the table and the rebuilt one."""
    for collection, namespace, name, seq, *differs, absent in db.execute(_DIFFERS):
        where = _called(collection, namespace, name)
        if absent:
            yield Difference(seq, f"{where}: row {seq} stands, and the table of objects lacks it")
            continue
        which = ", ".join(one for one, is_so in zip(_STATE, differs, strict=True) if is_so)
        text = f"{where}: the table of objects is not what row {seq} says ({which})"
        yield Difference(seq, text)
    for where in db.execute(_INVENTED):
        text = f"{_called(*where)}: no row says what the table of objects has"
        yield Difference(None, text)


def repair(db: sqlite3.Connection) -> None:
    """Replace the table by the rebuilt one."""
    db.execute("DELETE FROM main.objects")
    query = f"INSERT INTO main.objects SELECT {_KEY}, {', '.join(_STATE)} FROM temp.rebuilt"  # noqa: S608 - our own
    db.execute(query)


def _called(collection: str, namespace: str, name: str) -> str:
    return (
        f"object {namespace}/{name} ({collection})"
        if namespace
        else f"object {name} ({collection})"
    )
