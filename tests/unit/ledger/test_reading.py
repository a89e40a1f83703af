from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kube_sync.errors import NotFound, Terminal
from kube_sync.kube.naming import reference
from kube_sync.ledger.entries import Entry, text_of
from kube_sync.ledger.reading import reading
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START, WEB, decided, filled, gone

_ASKED = "SELECT seq FROM records WHERE filed = 1 AND namespace = ? AND name = ?"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.mark.parametrize(("seconds", "cluster"), [(0, "c0"), (4.5, "c4"), (9, "c9"), (1e6, "c9")])
def test_what_stood_at_a_time_is_the_last_that_was_said_before(
    path: Path, seconds: float, cluster: str
) -> None:
    filled(path, 10)
    with reading(path) as ledger:
        found = ledger.at(WEB, START + seconds).row
    assert found is not None
    assert found.entry.new == text_of({"annotations": {"clusters": cluster}}).digest


def test_before_the_first_row_nothing_is_known_but_what_that_one_replaced(path: Path) -> None:
    filled(path, 2)
    with reading(path) as ledger:
        found = ledger.at(WEB, START - 1)
    assert found.row is None
    assert found.after is not None
    assert found.after.entry.old == ""


def test_what_is_gone_stands_as_gone(path: Path) -> None:
    filled(path, 2).append([gone()], START + 5)
    with reading(path) as ledger:
        found = ledger.at(WEB, START + 6).row
    assert found is not None
    assert found.entry.kind == "gone"


def test_gaps_between_what_was_said_and_the_time_are_told(path: Path) -> None:
    store = filled(path, 1)
    for seconds in (2, 8):
        store.append([(Entry(kind="gap", note=f"at {seconds}"), [])], START + seconds)
    with reading(path) as ledger:
        assert [row.entry.note for row in ledger.at(WEB, START + 5).gaps] == ["at 2"]


def test_the_last_write_before_a_time_is_told_beside_the_decision(path: Path) -> None:
    store = filled(path, 1)
    intent = Entry(kind="intent", collection=WEB.collection, namespace="shop", name="web", ref="r1")
    outcome = msgspec.structs.replace(intent, kind="outcome", status="applied")
    store.append([(intent, []), (outcome, [])], START + 1)
    with reading(path) as ledger:
        assert ledger.at(WEB, START).written is None
        written = ledger.at(WEB, START + 2).written
    assert written is not None
    assert written.entry.status == "applied"


@pytest.mark.parametrize("kind", ["replicaset", "replicasets", "ReplicaSet", WEB.collection])
def test_a_kind_is_known_however_people_spell_it(path: Path, kind: str) -> None:
    filled(path, 1)
    with reading(path) as ledger:
        assert ledger.find(reference(f"{kind}/web"), "shop") == WEB


def test_an_object_that_was_never_decided_on_is_not_found(path: Path) -> None:
    filled(path, 1)
    with reading(path) as ledger:
        with pytest.raises(NotFound, match=r"deployment/web in .*; of that name there is rep"):
            ledger.find(reference("deployment/web"), "shop")
        with pytest.raises(NotFound, match="nothing is recorded of replicaset/nobody in"):
            ledger.find(reference("replicaset/nobody"), "shop")


def test_history_is_the_newest_rows_in_their_order(path: Path) -> None:
    filled(path, 10).append([decided("c1", "api")], START + 20)
    with reading(path) as ledger:
        assert [row.seq for row in ledger.history(limit=3)] == [9, 10, 11]
        assert [row.seq for row in ledger.history(WEB, since=START + 8)] == [9, 10]
        assert ledger.bounds() == (START, START + 20)


def test_what_is_no_ledger_is_not_read(path: Path) -> None:
    with pytest.raises(NotFound, match="there is no ledger"), reading(path):
        pass
    path.write_bytes(b"torn" * 5_000)
    with pytest.raises(Terminal, match="cannot be read"), reading(path):
        pass
    assert path.read_bytes() == b"torn" * 5_000


def test_a_reader_creates_nothing_and_sees_what_is_added_meanwhile(path: Path) -> None:
    store = Store(path)
    with reading(path) as ledger:
        assert ledger.bounds() is None
        store.append([decided("c1")], START)
        assert ledger.bounds() == (START, START)


@pytest.mark.parametrize("filed", [0, 7, 30])
def test_answers_are_the_same_whatever_is_in_the_index_yet(
    path: Path, filed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_sync.ledger.store._UNFILED", 0)
    store, names = Store(path), ("web", "api", "db")
    for number in range(30):
        if number == filed:
            store.tidy()
        write = Entry(
            kind="held", collection=WEB.collection, namespace="shop", name=names[number % 2]
        )
        store.append([decided(f"c{number}", names[number % 3]), (write, [])], START + number)
    if filed == 30:
        store.tidy()
    with reading(path) as ledger:
        rows = [row for row in ledger.history() if row.entry.name == "web"]
        decisions = [row for row in rows if row.entry.kind == "decision"]
        of = ledger.find(reference("replicaset/web"), "shop")
        assert ledger.history(of) == rows
        assert ledger.history(of, limit=7) == rows[-7:]
        assert ledger.history(of, since=START + 20) == [r for r in rows if r.seconds >= START + 20]
        for time in (START, START + 5.5, START + 8, START + 22, START + 99):
            stood = [row for row in decisions if row.seconds <= time][-1]
            assert ledger.at(of, time).row == stood
            later = [row for row in decisions if row.seconds > time]
            assert ledger.following(of, time) == (later[0] if later else None)
            held = [r for r in rows if stood.seq < r.seq and r.seconds <= time]
            assert ledger.writes(of, stood, time, 2) == held[-2:]


def test_rows_come_into_the_index_when_there_are_many_and_at_the_end(path: Path) -> None:
    store = Store(path)
    store.append([decided("c1", f"w{n}") for n in range(3_000)], START)
    with reading(path) as ledger:
        asked = "SELECT count(*) FROM records WHERE filed = 1"
        store.tidy()
        assert ledger.db.execute(asked).fetchone() == (3_000,)
        store.append([decided("c2")], START)
        store.tidy()
        assert ledger.db.execute(asked).fetchone() == (3_000,)
        store.close()
        assert ledger.db.execute(asked).fetchone() == (3_001,)
        plan = ledger.db.execute(f"EXPLAIN QUERY PLAN {_ASKED}", ("shop", "web")).fetchall()
        assert "by_object" in str(plan)


def test_history_of_some_kinds_or_a_namespace_leaves_others_out(path: Path) -> None:
    filled(path, 3)
    with reading(path) as ledger:
        assert len(ledger.history(wanted=lambda entry: entry.namespace == "shop")) == 3
        assert ledger.history(wanted=lambda entry: entry.namespace == "ml") == []
