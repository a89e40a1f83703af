"""What is derived from the rows of a ledger, and was changed by hand while nobody wrote it."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client import REGISTRY

from kube_sync.kube.naming import reference
from kube_sync.ledger.entries import Entry, GapNote, Text
from kube_sync.ledger.journal import Journal
from kube_sync.ledger.reading import reading
from kube_sync.ledger.recording import Recall
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START, decided, filled, gone, verified
from tests.unit.async_tools import running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def _change(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement)


async def _started(path: Path, *said: tuple[Entry, list[Text]]) -> list[Entry]:
    """Start what records, with this to say, and return what it recorded."""
    with reading(path) as ledger:
        known = ledger.history()[-1].seq
    journal = Journal(path, max_age=1e12, max_size=1 << 40, patience=30)
    async with running(journal.run()):
        for one in (*said, (Entry(kind="start"), [])):
            journal.say(*one)
        assert await journal.recorded()
    with reading(path) as ledger:
        added = [row.entry for row in ledger.history() if row.seq > known]
    assert added.pop().kind == "start"
    return added


def _metric() -> float:
    return REGISTRY.get_sample_value("kube_sync_ledger_gaps_total") or 0.0


_FORGED = decided("c9")[0].new
_COPIED = "SELECT collection, namespace, 'api', uid, decided, status, note, seq FROM objects"


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE objects SET decided = '{_FORGED}'",  # noqa: S608
        "DELETE FROM objects",
        f"INSERT INTO objects {_COPIED}",
    ],
)
async def test_a_start_repairs_what_stands_and_says_that_changes_may_be_missing(
    path: Path, statement: str
) -> None:
    """What was forged as decided already would else be no news when it is decided."""
    store = filled(path, 3)
    store.append([decided("c0", "api"), gone("api")], START + 2)
    store.close()
    _change(path, statement)
    counted = _metric()
    gap, *rest = await _started(path, decided("c9"))
    assert [(entry.kind, entry.old) for entry in rest] == [("decision", decided("c2")[0].new)]
    note = msgspec.json.decode(gap.note, type=GapNote)
    assert (gap.kind, _metric()) == ("gap", counted + 1)
    assert "the file was changed, and is repaired: object shop/" in note.reason
    if "INSERT" not in statement:
        assert note.begin == START + 2
    assert verified(path).faults == []


async def test_a_start_of_a_ledger_that_nobody_changed_adds_nothing(path: Path) -> None:
    store = filled(path, 3)
    store.append([decided("c0", "api"), gone("api")], START + 2)
    store.append([decided("", "web", status="undefined")], START + 2)
    assert await _started(path) == []
    assert verified(path).faults == []


@pytest.mark.parametrize("filed", [0, 2])
async def test_a_start_puts_rows_back_into_the_index_of_objects(path: Path, filed: int) -> None:
    filled(path, 5).close()
    _change(path, f"UPDATE records SET filed = {filed} WHERE seq = 3")  # noqa: S608
    added = await _started(path)
    assert [entry.kind for entry in added] == (["gap"] if filed else [])
    assert verified(path).faults == []
    with reading(path) as ledger:
        of = ledger.find(reference("replicaset/web"), "shop")
        assert 3 in [row.seq for row in ledger.history(of)]


async def test_a_trigger_that_drops_rows_in_silence_is_taken_away(path: Path) -> None:
    filled(path, 3).close()
    _change(path, "CREATE TRIGGER t BEFORE INSERT ON records BEGIN SELECT RAISE(IGNORE); END")
    gap, said = await _started(path, gone())
    assert "trigger t on records" in gap.note
    assert said.kind == "gone"
    assert verified(path).faults == []


async def test_a_table_of_another_definition_is_put_aside_with_its_file(path: Path) -> None:
    """It may refuse or replace rows, whatever its rows say now."""
    filled(path, 3).close()
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE ahead")
        db.execute("CREATE TABLE ahead (one, generation, number, seq)")
    journal = Journal(path, max_age=1e12, max_size=1 << 40, patience=30)
    async with running(journal.run()):
        journal.say(Entry(kind="start"))
        assert await journal.recorded()
    with reading(path) as ledger:
        gap, start = ledger.history()
    assert "table ahead is not as it was created" in gap.entry.note
    assert start.entry.kind == "start"
    assert [*path.parent.glob("ledger.db.unreadable-*")]


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
async def test_nobody_but_the_owner_may_read_any_file_whatever_the_umask(path: Path) -> None:
    journal = Journal(path, max_age=1e12, max_size=1 << 40, patience=30, recall=Recall())
    async with running(journal.run()):
        journal.say(decided("c1")[0])
        assert await journal.recorded()
        with reading(path) as ledger:
            assert ledger.history()
        names = _modes(path)
    assert names == dict.fromkeys(names, 0o600)
    expected = {f"ledger.db{end}" for end in ("", "-wal", "-shm", ".ahead", ".outage")}
    assert set(names) == expected


@pytest.mark.usefixtures("no_umask")
async def test_files_of_an_older_version_become_private_at_the_start(path: Path) -> None:
    ends = ("", "-wal", ".ahead", ".outage")
    store = filled(path, 3)
    for end in ends:
        file = path.with_name(path.name + end)
        file.touch()
        file.chmod(0o644)
    store.close()
    await _started_ahead(path)
    assert set(_modes(path).values()) == {0o600}


async def _started_ahead(path: Path) -> None:
    journal = Journal(path, max_age=1e12, max_size=1 << 40, patience=30, recall=Recall())
    async with running(journal.run()):
        journal.say(Entry(kind="start"))
        assert await journal.recorded()


def _modes(path: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}


def test_the_table_of_objects_follows_from_the_rows_whatever_was_pruned(path: Path) -> None:
    store = Store(path, chunk=30, window=10)
    store.append([decided("c0", "old"), decided("c0", "ended"), gone("ended")], START)
    for number in range(100):
        store.append([decided(f"c{number}", f"web-{number % 7}")], START + number)
        store.prune(START + number, 20, 1 << 40)
    while store.prune(START + 100, 1e9, 1):
        assert store.mend().differences == ()
    assert store.mend().differences == ()
