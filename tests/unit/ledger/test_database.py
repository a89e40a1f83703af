from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from kube_sync.ledger import database


def test_two_that_open_a_new_file_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """SQLite answers "database is locked" at once while another begins a file."""
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE begun (x)")
        ended = threading.Timer(0.05, other.execute, ["COMMIT"])
        ended.start()
        with closing(database.opened(path)) as ledger:
            assert ledger.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        ended.join()


def test_a_file_that_stays_locked_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            database.opened(path)
