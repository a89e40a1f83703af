from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from kube_sync.ledger.database import Torn
from kube_sync.ledger.entries import GapNote
from kube_sync.ledger.file import LedgerFile
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START, decided, verified


class World:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.db"
        self.now = START
        self.gaps: list[GapNote] = []
        self.file = LedgerFile(
            self.path,
            max_age=100.0,
            max_size=1 << 40,
            clock=lambda: self.now,
            begin_with=self.gaps.append,
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_file_that_is_closed_is_opened_where_it_was(world: World) -> None:
    store, _ = world.file.open()
    world.file.append(store, [decided("c1")], (7, 3))
    head = world.file.head
    world.file.close()
    assert world.file.store is None
    _, taken = world.file.open()
    assert (taken.generation, taken.number, taken.others) == (7, 3, False)
    assert (world.file.head, world.gaps) == (head, [])
    world.file.end()
    assert verified(world.path).faults == []


def test_file_that_is_no_ledger_is_put_aside(world: World, tmp_path: Path) -> None:
    world.path.write_bytes(b"torn" * 5_000)
    world.file.open()
    world.file.end()
    (aside,) = tmp_path.glob("*.unreadable-*")
    assert aside.read_bytes()[:4] == b"torn"
    assert [str(aside) in gap.reason for gap in world.gaps] == [True]


def test_file_that_was_changed_is_repaired_once(world: World) -> None:
    store, _ = world.file.open()
    world.file.append(store, [decided("c1")], None)
    world.file.end()
    with sqlite3.connect(world.path) as db:
        db.execute("DELETE FROM objects")
    again = World(world.path.parent)
    again.file.open()
    again.file.close()
    again.file.open()
    assert [gap.reason.startswith("the file was changed") for gap in again.gaps] == [True]
    again.file.end()


def test_old_rows_go_now_and_then(world: World) -> None:
    store, _ = world.file.open()
    world.file.append(store, [decided(f"c{n}") for n in range(40)], None)
    world.now += 200.0
    world.file.prune(store, lambda: False)
    assert verified(world.path).rows < 40
    head = world.file.head
    world.file.append(store, [decided(f"d{n}") for n in range(40)], None)
    world.now += 1.0
    world.file.prune(store, lambda: pytest.fail("it was pruned a moment ago"))
    assert world.file.head != head
    world.file.end()


def test_row_that_cannot_be_taken_away_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def prune(*_: object) -> int:
        raise Torn

    store, _ = world.file.open()
    world.file.append(store, [decided("c1")], None)
    monkeypatch.setattr(Store, "prune", prune)
    world.file.prune(store, lambda: True)
    assert verified(world.path).rows == 1
    world.file.end()


def test_file_that_is_not_open_has_nothing_to_end(world: World) -> None:
    world.file.tidy()
    world.file.end()
    assert not world.path.exists()
