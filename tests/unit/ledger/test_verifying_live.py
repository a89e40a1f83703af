"""Readers beside a writer: neither waits for the other."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kube_sync.ledger.journal import Journal
from kube_sync.ledger.reading import Reading, reading
from kube_sync.ledger.store import Store
from kube_sync.ledger.verifying import verify
from tests.fakes.ledgers import START, WEB, decided, filled, verified
from tests.unit.async_tools import running

RATE, ROUNDS = 100, 20  # records at once, and how often: those of a second


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@contextmanager
def impatient(path: Path) -> Iterator[Store]:
    """Yield a writer that fails where it would have to wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kube_sync.ledger.database.BUSY_SECONDS", 0)
        store = Store(path, chunk=10, window=10)
    try:
        yield store
    finally:
        store.close()


def test_a_reader_in_the_middle_of_the_file_keeps_no_writer_waiting(path: Path) -> None:
    filled(path, 50).close()
    with reading(path) as ledger, impatient(path) as store:
        ledger.db.execute("BEGIN")
        rows = ledger.db.execute("SELECT seq FROM records ORDER BY seq")
        assert next(rows) == (1,)
        for number in range(RATE):
            assert store.append([decided(f"new-{number}")], START + 100 + number)
        assert store.prune(START + 300, 150, 1 << 40)
        assert [seq for (seq,) in rows] == [*range(2, 51)]  # one state of it, whatever is added
        ledger.db.execute("ROLLBACK")
        assert verify(ledger.db).faults == []


def test_a_writer_in_the_middle_of_a_group_keeps_no_reader_waiting(path: Path) -> None:
    filled(path, 5).close()
    with reading(path) as ledger, sqlite3.connect(path, isolation_level=None) as writer:
        ledger.db.execute("PRAGMA busy_timeout = 0")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE records SET note = 'half' WHERE seq = 1")
        assert verify(ledger.db).faults == []
        assert len(ledger.history(WEB)) == 5
        writer.execute("ROLLBACK")


def _look(ledger: Reading, found: list[str]) -> None:
    found += verify(ledger.db).faults
    for row in ledger.history(limit=50):
        assert row.hash


async def test_readers_that_never_stop_cost_a_writer_no_record(path: Path) -> None:
    filled(path, 1).close()
    faults, looks, stop = list[str](), list[int](), threading.Event()

    def look() -> None:
        while not stop.is_set():
            with reading(path) as ledger:
                _look(ledger, faults)
            looks.append(1)

    journal = Journal(path, max_age=1e9, max_size=1 << 40, clock=lambda: START + 60, patience=30)
    looking = asyncio.create_task(asyncio.to_thread(look))
    async with running(journal.run()):
        for number in range(ROUNDS):
            for name in range(RATE):
                journal.enqueue(*decided(f"c{number}", f"web-{name}"))
            assert await journal.recorded()
    stop.set()
    await looking
    found = verified(path)
    assert (found.rows, found.gaps, found.faults, faults) == (1 + RATE * ROUNDS, 0, [], [])
    assert looks
