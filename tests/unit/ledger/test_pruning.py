from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from kube_sync.ledger.database import Torn, opened
from kube_sync.ledger.entries import START as FIRST
from kube_sync.ledger.entries import Checkpoint, Entry
from kube_sync.ledger.group import Group
from kube_sync.ledger.pruning import checkpoint, ends, entries_to_repeat, prunable
from tests.fakes.ledgers import decided


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(opened(tmp_path / "ledger.db")) as found:
        yield found


def _add(db: sqlite3.Connection, *entries: Entry) -> None:
    """Add rows, one a second."""
    for entry in entries:
        seq = ends(db)[1]
        group = Group(db, seq, (seq + 1) * 1_000_000, FIRST, {})
        group.add(entry)
        group.flush()


def _decisions(count: int) -> list[Entry]:
    return [decided("c1", f"web-{number}")[0] for number in range(count)]


def test_nothing_is_due_in_a_ledger_of_no_row_or_one(db: sqlite3.Connection) -> None:
    assert ends(db) == (0, 0)
    assert prunable(db, 1 << 60, 5, full=True) is None
    _add(db, *_decisions(1))
    assert prunable(db, 1 << 60, 5, full=True) is None


@pytest.mark.parametrize(
    ("oldest", "full", "upto"),
    [(0, False, None), (1, False, None), (4, False, 3), (99, False, 5), (0, True, 5)],
)
def test_rows_that_are_old_or_too_many_are_due_a_few_at_once(
    db: sqlite3.Connection, oldest: int, *, full: bool, upto: int | None
) -> None:
    _add(db, *_decisions(9))
    assert prunable(db, oldest * 1_000_000, 5, full=full) == upto


@pytest.mark.parametrize(("count", "upto"), [(16, None), (17, 9)])
def test_half_of_few_large_rows_is_due_unless_they_are_too_few(
    db: sqlite3.Connection, count: int, upto: int | None
) -> None:
    _add(db, *_decisions(count))
    assert prunable(db, 0, 100, full=True) == upto


def test_what_stands_is_said_again_with_the_time_since_when(db: sqlite3.Connection) -> None:
    (first, second), changed = _decisions(2), decided("c2", "web-0")[0]
    _add(db, first, second, changed)
    (again,) = entries_to_repeat(db, 2, full=False)
    assert (again.name, again.cause, again.old) == ("web-1", "standing since 2.000000", second.new)
    _add(db, again)
    assert entries_to_repeat(db, 4, full=False)[-1] == again


def test_no_more_than_half_is_said_again_where_the_file_is_too_large(
    db: sqlite3.Connection,
) -> None:
    _add(db, *_decisions(6))
    names = [entry.name for entry in entries_to_repeat(db, 6, full=True)]
    assert names == ["web-3", "web-4", "web-5"]


def test_policies_in_force_and_those_that_rows_name_are_said_again(
    db: sqlite3.Connection,
) -> None:
    policies = [Entry(kind="policy", policy=f"p{n}", new=f"l{n}") for n in (1, 2, 3, 4)]
    named, later = decided("c1", "a", policy="p1")[0], decided("c1", "b", policy="p2")[0]
    _add(db, policies[0], policies[0], named, *policies[1:], later)
    again = entries_to_repeat(db, 6, full=False)
    assert [(one.kind, one.policy, one.cause[-8:]) for one in again] == [
        ("policy", "p1", "2.000000"),
        ("decision", "p1", "3.000000"),
        ("policy", "p2", "4.000000"),
        ("policy", "p4", "6.000000"),
    ]


def test_checkpoint_has_the_hash_of_the_last_row_that_goes(db: sqlite3.Connection) -> None:
    _add(db, *_decisions(2))
    (found,) = db.execute("SELECT hash FROM records WHERE seq = 1").fetchone()
    note = msgspec.json.decode(checkpoint(db, 1).note, type=Checkpoint)
    assert note == Checkpoint(1, found.hex())
    with pytest.raises(Torn, match="row 3 is missing"):
        checkpoint(db, 3)
