"""The SQLite database of a ledger: file modes, schema, and foreign definitions in it.

Invariant: only their owner can read the files, whatever the umask is and whoever created them; the
tables have the schema below, and only our own triggers and indexes affect what is written to
them.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Final

import structlog

from kube_sync.ledger.entries import COLUMNS

log: structlog.stdlib.BoundLogger = structlog.get_logger()

SCHEMA: Final = 2
BUSY_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.01
_AT_ONCE: Final = (64, 16, 4, 1)  # rows in one INSERT

_OWNER: Final = 0o600
_WRITABLE_BY_ALL = 0o002
_STICKY = 0o1000
_TABLES = f"""
CREATE TABLE IF NOT EXISTS records (
    seq INTEGER PRIMARY KEY, time INTEGER NOT NULL,
    {", ".join(f"{name} TEXT NOT NULL" for name in COLUMNS)},
    hash BLOB NOT NULL, filed INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS by_object ON records (namespace, name, collection, time)
    WHERE filed = 1;
CREATE INDEX IF NOT EXISTS unfiled ON records (seq) WHERE filed = 0;
CREATE UNIQUE INDEX IF NOT EXISTS by_ref ON records (ref, kind) WHERE ref != '';
CREATE INDEX IF NOT EXISTS policies ON records (seq) WHERE kind = 'policy';
DROP INDEX IF EXISTS gaps;
CREATE INDEX IF NOT EXISTS missing ON records (seq) WHERE kind IN ('gap', 'summary');
CREATE TABLE IF NOT EXISTS texts (
    digest TEXT PRIMARY KEY, body BLOB NOT NULL, keep INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS by_keep ON texts (keep);
CREATE TABLE IF NOT EXISTS objects (
    collection TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    uid TEXT NOT NULL, decided TEXT NOT NULL, status TEXT NOT NULL, note TEXT NOT NULL,
    seq INTEGER NOT NULL, PRIMARY KEY (collection, namespace, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_seq ON objects (seq);
CREATE TABLE IF NOT EXISTS ahead (
    one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER NOT NULL, number INTEGER NOT NULL,
    seq INTEGER NOT NULL
) STRICT;
"""


class Torn(Exception):
    """The file is no ledger, or corrupt: it cannot be written to."""


def opened(path: Path) -> sqlite3.Connection:
    """Open a ledger for writing, and create its schema. Raises Torn, or sqlite3.Error, OSError."""
    keep_private(path)
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        # Before any table exists: afterwards it would take a rewrite of the file (VACUUM).
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        _write_ahead(db)
        db.execute("PRAGMA synchronous = NORMAL")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        _check_version(version)
        db.executescript(_TABLES)
        db.execute(f"PRAGMA user_version = {SCHEMA}")
    except sqlite3.OperationalError:
        db.close()
        raise
    except (sqlite3.DatabaseError, Torn) as error:
        db.close()
        raise Torn(str(error)) from error
    return db


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switch to WAL mode. Raises sqlite3.OperationalError if another connection keeps it locked.

    When two open a new file at once SQLite fails with "locked" at once, whatever its timeout is:
    each of them would wait for the other.
    """
    latest = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            with closing(db.execute("PRAGMA journal_mode = WAL")) as answer:
                answer.fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= latest:
                raise
            time.sleep(_AGAIN_SECONDS)
        else:
            return


def keep_private(path: Path) -> None:
    """Set the modes of the database and its companion files to owner only. Raises OSError.

    A file of another account keeps its mode, which is logged.

    SQLite gives `-wal` and `-shm` the mode of the database. The folder keeps its mode: it may be
    a volume, or hold files of others.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, _OWNER))
    for suffix in ("", "-wal", "-shm"):
        file = path.with_name(path.name + suffix)
        try:
            # Not through a descriptor: closing one would drop SQLite's locks on the file.
            if file.stat().st_mode & 0o777 != _OWNER:
                file.chmod(_OWNER)
        except FileNotFoundError:
            pass
        except PermissionError:  # the file of another account: recording continues
            log.warning("ledger_file_readable_by_others", path=str(file))
    folder = path.absolute().parent
    mode = folder.stat().st_mode
    if mode & _WRITABLE_BY_ALL and not mode & _STICKY:
        log.warning("ledger_folder_writable_by_all", path=str(folder))


class Transaction:
    """A transaction that locks the file from its beginning, so that the head cannot move."""

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


def insert(
    db: sqlite3.Connection, into: str, rows: Sequence[Sequence[object]], end: str = ""
) -> None:
    """Insert rows by few statements.

    Each statement releases Python's interpreter lock, and the event loop may then hold it for
    milliseconds.
    """
    done = 0
    for many in _AT_ONCE:
        while len(rows) - done >= many:
            part = rows[done : done + many]
            one = f"({', '.join('?' * len(part[0]))})"
            query = f"{into} VALUES {', '.join([one] * many)}{end}"
            db.execute(query, [*chain.from_iterable(part)])
            done += many


def strange(db: sqlite3.Connection) -> Iterator[tuple[str, str, str]]:
    """Yield type, name and table of each definition that differs from our schema.

    These are tables, and indexes and triggers on our tables: a trigger can drop rows silently.
    Foreign tables have no effect here.
    """
    with closing(sqlite3.connect(":memory:")) as fresh:
        fresh.executescript(_TABLES)
        ours = _definitions(fresh)
    found = _definitions(db)
    tables = {table for table, _ in ours.values()}
    for (kind, name), (table, _) in {**ours, **found}.items():
        if table in tables and ours.get((kind, name)) != found.get((kind, name)):
            yield kind, name, table


def restore(db: sqlite3.Connection) -> list[str]:
    """Drop foreign definitions and create missing ones; return the differences.

    Raises Torn if a table differs: then nothing is changed.
    """
    differences = [*strange(db)]
    if changed := [name for kind, name, _ in differences if kind == "table"]:
        msg = f"table {changed[0]} is not as it was created"
        raise Torn(msg)
    for kind, name, _ in differences:
        quoted = name.replace('"', '""')
        db.execute(f'DROP {kind} IF EXISTS "{quoted}"')
    if differences:
        db.executescript(_TABLES)
    return [described(kind, name, table) for kind, name, table in differences]


def described(kind: str, name: str, table: str) -> str:
    """Format a differing definition, for people."""
    return f"{kind} {name} on {table}: it is not as it was created"


def _definitions(db: sqlite3.Connection) -> dict[tuple[str, str], tuple[str, str]]:
    """Return table and SQL of each definition, by type and name."""
    # Definitions without SQL are SQLite's own, for a primary key.
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    return {(kind, name): (table, sql) for kind, name, table, sql in db.execute(query)}


def _check_version(version: int) -> None:
    if version not in (0, SCHEMA):
        msg = f"it is of version {version}, which is not known here"
        raise Torn(msg)
