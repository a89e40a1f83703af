from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from prometheus_client import REGISTRY

from kube_sync.ledger.entries import Entry, GapNote
from kube_sync.ledger.file import Outage
from kube_sync.ledger.journal import Journal
from kube_sync.ledger.reading import reading
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START, decided, filled, verified
from tests.unit.async_tools import running, until


def _journal(path: Path, *, kept: int = 10_000, max_age: float = 1e9) -> Journal:
    return Journal(
        path,
        max_age=max_age,
        max_size=1 << 40,
        kept=kept,
        clock=lambda: START,
        again=0.01,
        patience=30,
    )


def _kinds(path: Path) -> list[str]:
    with reading(path) as ledger:
        return [row.entry.kind for row in ledger.history()]


def _gaps(path: Path) -> list[GapNote]:
    with reading(path) as ledger:
        notes = [row.entry.note for row in ledger.history() if row.entry.kind == "gap"]
    return [msgspec.json.decode(note, type=GapNote) for note in notes]


def _metric(name: str) -> float:
    return REGISTRY.get_sample_value(f"kube_sync_ledger_{name}") or 0.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "there" / "ledger.db"


@pytest.fixture
def folder(path: Path) -> Path:
    path.parent.mkdir()
    return path.parent


@pytest.fixture
def torn(path: Path, folder: Path) -> Path:
    path.write_bytes(b"torn" * 5_000)
    return folder


def _beside(folder: Path) -> list[Path]:
    return [*folder.glob("ledger.db.unreadable-*")]


@pytest.mark.usefixtures("folder")
async def test_what_was_said_is_in_the_file_once_that_was_waited_for(path: Path) -> None:
    journal = _journal(path)
    async with running(journal.run()):
        for number in range(2_000):
            journal.enqueue(*decided(f"c{number % 7}", f"web-{number % 90}"))
            if number % 400 == 0:
                assert await journal.recorded()
        assert await journal.recorded()
        assert verified(path).faults == []
        with reading(path) as ledger:
            last = ledger.history(limit=1)[0]
    assert last.entry.name == f"web-{1_999 % 90}"


@pytest.mark.usefixtures("folder")
async def test_the_end_of_the_process_writes_what_was_said(path: Path) -> None:
    journal = _journal(path)
    async with running(journal.run()):
        await asyncio.sleep(0)  # or it would never have begun
        for number in range(1_000):
            journal.enqueue(*decided(f"c{number}"))
    assert _kinds(path) == ["decision"] * 1_000


async def test_nobody_waits_for_a_file_that_cannot_be_written(path: Path) -> None:
    told: list[str | None] = []
    journal = Journal(path, max_age=1e9, max_size=1 << 40, on_status=told.append, again=0.01)
    async with running(journal.run()):
        journal.enqueue(*decided("c1"))
        await until(lambda: journal.failing)
        assert not await journal.recorded()
        assert _metric("unwritable") == 1
        path.parent.mkdir()
        await until(lambda: journal.failing is None)
        assert await journal.recorded()
        await until(lambda: told[-1:] == [None])
    assert told == [f"[Errno 2] No such file or directory: '{path}'", None]
    assert _metric("unwritable") == 0
    assert _kinds(path) == ["decision"], "what was kept is no gap"


@pytest.mark.usefixtures("folder")
async def test_what_a_process_kept_as_it_ended_is_a_gap_of_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever restarts it because the disk is full must not take what is missing for nothing."""
    journal, before = _journal(path), time.time()
    with monkeypatch.context() as full:
        async with running(journal.run()):
            journal.enqueue(*decided("c1"))
            assert await journal.recorded()
            full.setattr(Store, "append", _full)
            journal.enqueue(*decided("c2"))
            await until(lambda: journal.failing)
            full.undo()
            await until(lambda: journal.failing is None)
            full.setattr(Store, "append", _full)
            journal.enqueue(*decided("c3"))
            await until(lambda: journal.failing)
        assert not _alive("ledger")
    for _ in range(2):
        after = _journal(path)
        async with running(after.run()):
            after.enqueue(*decided("c4"))
            assert await after.recorded()
    assert _kinds(path) == ["decision", "decision", "gap", "decision"]
    (gap,) = _gaps(path)
    assert (gap.entries, gap.begin >= before - 1) == (0, True)
    assert "ended while it could not write" in gap.reason


def _full(*_: object) -> None:
    msg = "database or disk is full"
    raise sqlite3.OperationalError(msg)


def _alive(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def test_an_outage_is_noted_where_there_is_no_room(tmp_path: Path) -> None:
    byte = tmp_path / "outage"
    Outage(byte).note(on=False)
    with _full_disk(1):
        Outage(byte).note(on=True)
    assert Outage(byte).since is not None
    missing = Outage(tmp_path / "nowhere" / "outage")
    missing.note(on=True)
    assert not missing.on, "it is said by the next call that can"


async def test_what_was_more_than_is_kept_is_a_gap_where_it_would_have_been(path: Path) -> None:
    before, gaps = _metric("lost_records_total"), _metric("gaps_total")
    journal = _journal(path, kept=3)
    async with running(journal.run()):
        await until(lambda: journal.failing)
        for number in range(10):
            journal.enqueue(*decided(f"c{number}"))
        path.parent.mkdir()
        await until(lambda: journal.failing is None)
        await until(lambda: _gaps(path))
        journal.enqueue(*decided("last"))
        assert await journal.recorded()
    assert _kinds(path) == ["decision"] * 3 + ["gap", "decision"]
    (gap,) = _gaps(path)
    assert gap.entries == 7
    assert _metric("lost_records_total") - before == 7
    assert _metric("gaps_total") - gaps == 1
    assert verified(path).faults == []


@pytest.mark.usefixtures("folder")
async def test_a_fleet_that_is_decided_at_once_is_recorded_whole(path: Path) -> None:
    journal, lost = _journal(path), _metric("lost_records_total")
    async with running(journal.run()):
        for number in range(20_000):
            journal.enqueue(*decided("c1", f"web-{number}"))
        assert await journal.recorded()
    found = verified(path)
    assert (found.rows, found.gaps, found.faults) == (20_000, 0, [])
    assert _metric("lost_records_total") == lost


@contextmanager
def _full_disk(limit: int) -> Iterator[None]:
    """Let no file grow beyond a number of bytes, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


async def test_a_disk_that_is_full_costs_what_is_said_meanwhile_and_no_more(
    path: Path, folder: Path
) -> None:
    journal = _journal(path, kept=20)
    async with running(journal.run()):
        journal.enqueue(*decided("first"))
        assert await journal.recorded()
        wal = folder / "ledger.db-wal"
        with _full_disk(wal.stat().st_size):
            journal.enqueue(*decided("c0"))
            await until(lambda: journal.failing)
            for number in range(1, 50):
                journal.enqueue(*decided(f"c{number}"))
            assert not await journal.recorded()
        await until(lambda: journal.failing is None)
        await until(lambda: _gaps(path))
    assert verified(path).faults == []
    kinds = _kinds(path)
    assert kinds[0] == "decision"
    assert kinds[-1] == "gap"
    assert len(kinds) - 2 + _gaps(path)[0].entries == 50


async def test_a_file_that_is_no_ledger_is_put_aside_and_that_is_a_gap(
    path: Path, torn: Path
) -> None:
    journal = _journal(path)
    async with running(journal.run()):
        journal.enqueue(*decided("c1"))
        journal.enqueue(*decided("c2"))
        assert await journal.recorded()
    (aside,) = _beside(torn)
    assert aside.read_bytes() == b"torn" * 5_000
    assert _kinds(path) == ["gap", "decision", "decision"]
    assert str(aside) in _gaps(path)[0].reason


@pytest.mark.usefixtures("folder")
async def test_what_is_too_old_goes_while_it_runs(path: Path) -> None:
    filled(path, 50).close()
    journal = Journal(
        path, max_age=30, max_size=1 << 40, clock=lambda: START + 60, again=0.01, patience=30
    )
    async with running(journal.run()):
        journal.enqueue(Entry(kind="start"))
        assert await journal.recorded()
        await until(lambda: "checkpoint" in _kinds(path))
    found = verified(path)
    assert found.faults == []
    assert found.first > 30


@pytest.mark.usefixtures("folder")
async def test_a_ledger_goes_on_where_an_earlier_process_was(path: Path) -> None:
    for cluster in ("c1", "c1", "c2"):
        journal = _journal(path)
        async with running(journal.run()):
            journal.enqueue(*decided(cluster))
            assert await journal.recorded()
    assert _kinds(path) == ["decision", "decision"]
    assert Store(path).current_objects("replicasets.v1.apps") == [("shop", "web")]


@pytest.mark.usefixtures("folder")
async def test_a_file_that_is_torn_while_it_is_written_is_put_aside(path: Path) -> None:
    journal = _journal(path)
    async with running(journal.run()):
        journal.enqueue(*decided("c1"))
        assert await journal.recorded()
        _tear(path)
        for number in range(100):
            journal.enqueue(*decided(f"c{number}", f"web-{number}"))
            await journal.recorded()
        await until(lambda: journal.failing is None and _gaps(path))
    assert len(_beside(path.parent)) == 1
    assert verified(path).faults == []
    assert _kinds(path)[0] == "gap"


def _tear(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:4096] + b"torn" * ((size - 4096) // 4))


@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_fault_of_the_writer_ends_the_process_instead_of_the_ledger(path: Path) -> None:
    journal = _journal(path)
    journal.enqueue_source(_fault)
    with pytest.raises(TypeError, match="surely"):
        await journal.run()


def _fault(_store: Store) -> list[tuple[Entry, tuple[()]]]:
    msg = "surely a bug"
    raise TypeError(msg)


@pytest.mark.usefixtures("folder")
async def test_rows_that_cannot_be_pruned_have_nothing_recorded_twice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned: list[float] = []

    def prune(_store: Store, now: float, *_: object) -> int:
        pruned.append(now)
        msg = "database or disk is full"
        raise sqlite3.OperationalError(msg)

    monkeypatch.setattr(Store, "prune", prune)
    journal = _journal(path)
    journal.enqueue(Entry(kind="start"))
    async with running(journal.run()):
        await until(lambda: pruned)
        await until(lambda: journal.failing is None)
    assert _kinds(path) == ["start"]
