from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kube_sync.ledger.database import opened
from kube_sync.ledger.entries import START as FIRST
from kube_sync.ledger.entries import Entry, link
from kube_sync.ledger.group import Group, policy_in_force
from tests.fakes.ledgers import decided, gone


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(opened(tmp_path / "ledger.db")) as found:
        yield found


def _group(db: sqlite3.Connection, seq: int = 0) -> Group:
    return Group(db, seq, 1_000, FIRST, {})


def _policy(digest: str, cause: str = "") -> Entry:
    return Entry(kind="policy", policy=digest, new=f"list-{digest}", cause=cause)


def _flushed(db: sqlite3.Connection, *entries: Entry) -> None:
    group = _group(db)
    for entry in entries:
        group.add(entry)
    group.flush()


def test_rows_are_a_chain_that_begins_at_the_head(db: sqlite3.Connection) -> None:
    group = _group(db, seq=4)
    entry, _ = decided("c1")
    assert group.head == (4, FIRST.hex())
    group.add(entry)
    assert group.head == (5, link(FIRST, 5, 1_000, entry).hex())
    assert db.execute("SELECT count(*) FROM records").fetchone() == (0,)
    group.flush()
    assert db.execute("SELECT seq, hash FROM records").fetchall() == [(5, group.before)]


def test_empty_group_of_an_empty_ledger_has_no_head(db: sqlite3.Connection) -> None:
    assert _group(db).head is None


@pytest.mark.parametrize("is_written", [False, True])
def test_what_stands_is_no_news_in_the_group_and_after_it(
    db: sqlite3.Connection, *, is_written: bool
) -> None:
    (entry, _), (other, _), (end, _) = decided("c1"), decided("c2", uid=""), gone()
    group = _group(db)
    assert group.to_record(entry) == entry
    group.add(entry)
    if is_written:
        group.flush()
        group = _group(db, seq=1)
    assert group.to_record(entry) is None
    changed = group.to_record(other)
    assert changed is not None
    assert (changed.old, changed.uid) == (entry.new, entry.uid)
    ended = group.to_record(end)
    assert ended is not None
    assert (ended.old, ended.uid) == (entry.new, entry.uid)
    group.add(ended)
    group.flush()
    assert group.to_record(end) is None
    assert group.to_record(decided("", status="undefined")[0]) is None
    assert db.execute("SELECT count(*) FROM objects").fetchone() == (0,)
    assert dict(group.new_states()) == {(entry.collection, "shop", "web"): None}


@pytest.mark.parametrize("is_written", [False, True])
def test_what_was_recorded_by_its_ref_is_no_news(
    db: sqlite3.Connection, *, is_written: bool
) -> None:
    intent = Entry(kind="intent", ref="r1")
    group = _group(db)
    assert group.to_record(intent) == intent
    group.add(intent)
    if is_written:
        group.flush()
        group = _group(db, seq=1)
    assert group.to_record(intent) is None
    assert group.to_record(Entry(kind="outcome", ref="r1")) is not None


def test_policies_in_force_are_no_news(db: sqlite3.Connection) -> None:
    group = _group(db)
    assert group.to_record(_policy("p1")) == _policy("p1")
    group.add(_policy("p1"))
    assert group.to_record(_policy("p1")) is None
    after = group.to_record(_policy("p2"))
    assert after is not None
    assert after.old == "list-p1"


def test_policies_that_are_said_again_are_in_force_only_without_later_ones(
    db: sqlite3.Connection,
) -> None:
    assert policy_in_force(db) == ("", "")
    _flushed(db, _policy("p2", "standing since 20"), _policy("p1", "standing since 10"))
    assert policy_in_force(db)[0] == "p2"
    group = _group(db, seq=2)
    group.add(_policy("p3"))
    group.add(_policy("p4", "standing since 30"))
    assert group.to_record(_policy("p3")) is None
    group.flush()
    assert policy_in_force(db)[0] == "p3"


def test_entry_of_no_object_is_news_each_time(db: sqlite3.Connection) -> None:
    group = _group(db)
    group.add(Entry(kind="start"))
    assert group.to_record(Entry(kind="start")) == Entry(kind="start")
