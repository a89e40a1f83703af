"""The table of objects, which says what stands now of each, compared with the rows it follows from.

Keeps true: the rows are right, since they are in the chain. The table is what the next decision is
compared with, so one that differs would let a change go unrecorded. It is rebuilt by SQLite alone,
in one statement, which holds no lock of Python: a million rows take seconds, and whoever decides
meanwhile goes on. What that takes of memory depends on the number of objects.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

_KEY = "collection, namespace, name"
_SAYS: Final = ("uid", "decided", "status", "note", "seq")
_REBUILT = f"""
CREATE TEMP TABLE rebuilt ({_KEY}, {", ".join(_SAYS)}, PRIMARY KEY ({_KEY})) WITHOUT ROWID
"""
# The newest row of each object remains: a gone one, and one of which nothing is decided, go after.
_FILL = f"""
INSERT OR REPLACE INTO temp.rebuilt
    SELECT {_KEY}, uid, new, CASE kind WHEN 'gone' THEN 'undefined' ELSE status END, note, seq
    FROM main.records WHERE kind IN ('decision', 'gone') ORDER BY seq
"""  # noqa: S608 - our own names
_ENDED = "DELETE FROM temp.rebuilt WHERE status = 'undefined'"
_DIFFERS = f"""
SELECT {_KEY}, r.seq, {", ".join(f"o.{one} IS NOT r.{one}" for one in _SAYS)}, o.seq IS NULL
    FROM temp.rebuilt r LEFT JOIN main.objects o USING ({_KEY})
    WHERE {" OR ".join(f"o.{one} IS NOT r.{one}" for one in _SAYS)}
"""  # noqa: S608 - our own names
_INVENTED = f"""
SELECT {_KEY} FROM main.objects o
    WHERE NOT EXISTS (SELECT 1 FROM temp.rebuilt r WHERE r.collection = o.collection
        AND r.namespace = o.namespace AND r.name = o.name)
"""  # noqa: S608 - our own names


class Difference(NamedTuple):
    """An object of which the table does not say what the rows say."""

    row: int | None  # that says what stands, None: none does
    text: str


class Mended(NamedTuple):
    """What was not as the rows say, and since when (Unix seconds) changes may have been missed."""

    differences: tuple[str, ...] = ()
    since: float | None = None


def mend(db: sqlite3.Connection) -> Mended:
    """Make what is derived from the rows what they say, within a transaction."""
    found = [*unindexed(db)]
    # Rows that are in neither index would be found by nobody.
    db.execute("UPDATE records SET filed = 1 WHERE filed = 0")
    if found:
        db.execute("UPDATE records SET filed = 1 WHERE filed != 1")
    with rebuilt(db):
        objects = [*differences(db)]
        rows = [one.row for one in objects if one.row is not None]
        asked = "SELECT time FROM records WHERE seq = ?"
        since = db.execute(asked, (min(rows),)).fetchone()[0] / 1e6 if rows else None
        if objects:
            repair(db)
    return Mended((*found, *(one.text for one in objects)), since)


def unindexed(db: sqlite3.Connection) -> Iterator[str]:
    """Yield that rows are in neither index of objects, if any is."""
    indexed = (
        "(SELECT count(*) FROM records INDEXED BY by_object WHERE filed = 1)"
        " + (SELECT count(*) FROM records INDEXED BY unfiled WHERE filed = 0)"
    )
    # Where no number is missing either, it is known without looking at each row.
    for counted in ("coalesce(max(seq) - min(seq) + 1, 0)", "count(*)"):
        asked = f"SELECT {counted} - ({indexed}) FROM records NOT INDEXED"  # noqa: S608 - our own
        if (lacking := db.execute(asked).fetchone()[0]) == 0:
            return
    yield f"{lacking} rows are not in the index of objects"


def prepare(db: sqlite3.Connection) -> None:
    """Let a connection compare, before it is in a transaction."""
    db.execute("PRAGMA temp_store = MEMORY")  # there may be no folder to write to


@contextmanager
def rebuilt(db: sqlite3.Connection) -> Iterator[None]:
    """Have the table rebuilt from the rows, as `temp.rebuilt`; within a transaction."""
    db.execute(_REBUILT)
    try:
        db.execute(_FILL)
        db.execute(_ENDED)
        yield
    finally:
        db.execute("DROP TABLE temp.rebuilt")


def differences(db: sqlite3.Connection) -> Iterator[Difference]:
    """Yield where the table differs from what was rebuilt."""
    for collection, namespace, name, seq, *differs, absent in db.execute(_DIFFERS):
        where = _called(collection, namespace, name)
        if absent:
            yield Difference(seq, f"{where}: row {seq} stands, and the table of objects lacks it")
            continue
        which = ", ".join(one for one, is_so in zip(_SAYS, differs, strict=True) if is_so)
        text = f"{where}: the table of objects is not what row {seq} says ({which})"
        yield Difference(seq, text)
    for where in db.execute(_INVENTED):
        text = f"{_called(*where)}: no row says what the table of objects has"
        yield Difference(None, text)


def repair(db: sqlite3.Connection) -> None:
    """Replace the table by what was rebuilt."""
    db.execute("DELETE FROM main.objects")
    db.execute(f"INSERT INTO main.objects SELECT {_KEY}, {', '.join(_SAYS)} FROM temp.rebuilt")  # noqa: S608 - our own names


def _called(collection: str, namespace: str, name: str) -> str:
    return (
        f"object {namespace}/{name} ({collection})"
        if namespace
        else f"object {name} ({collection})"
    )
