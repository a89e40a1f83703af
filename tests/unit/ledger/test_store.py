from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kube_sync.kube.naming import reference
from kube_sync.ledger.database import Torn
from kube_sync.ledger.entries import Entry, Text, text_of
from kube_sync.ledger.reading import Object, reading
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START, WEB, decided, filled, gone, verified


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_what_is_appended_is_a_chain_that_verifies(path: Path) -> None:
    store = Store(path)
    store.append([decided("c1"), decided("c1", "api")], START)
    store.append([decided("c2"), gone("api")], START + 1)
    found = verified(path)
    assert (found.rows, found.faults) == (4, [])
    with reading(path) as ledger:
        rows = ledger.history()
    assert [(row.entry.kind, row.entry.name, row.seconds - START) for row in rows] == [
        ("decision", "web", 0),
        ("decision", "api", 0),
        ("decision", "web", 1),
        ("gone", "api", 1),
    ]
    assert rows[2].entry.old == rows[0].entry.new
    assert rows[3].entry.old == rows[1].entry.new
    assert rows[3].entry.uid == "uid-api"


def test_a_decision_that_stands_is_no_news_whoever_says_it(path: Path) -> None:
    """After a restart all decisions are made anew."""
    store = Store(path)
    assert len(store.append([decided("c1"), decided("c1")], START)) == 1
    store.close()
    store = Store(path)
    assert store.append([decided("c1", cause="load", policy="p2")], START) == []
    assert len(store.append([decided("c1", uid="another")], START)) == 1
    assert store.append([gone("api")], START) == []
    assert store.append([decided("", "api", status="undefined")], START) == []
    assert store.standing(WEB.collection) == [("shop", "web")]


def test_an_outcome_that_is_told_twice_is_recorded_once(path: Path) -> None:
    store = Store(path)
    told = Entry(kind="intent", name="web", ref="r1"), ()
    assert len(store.append([told, told], START)) == 1
    outcome = Entry(kind="outcome", name="web", ref="r1"), ()
    assert len(store.append([told, outcome], START)) == 1


def test_the_clock_going_back_does_not_take_time_back(path: Path) -> None:
    store = filled(path, 2)
    store.append([decided("c9")], START - 500)
    with reading(path) as ledger:
        assert [row.seconds - START for row in ledger.history()] == [0, 1, 1]
    assert verified(path).faults == []


def test_two_writers_of_one_file_break_no_chain(path: Path) -> None:
    one, other = Store(path), Store(path)
    for number in range(5):
        one.append([decided(f"a{number}")], START)
        other.append([decided(f"b{number}")], START)
    found = verified(path)
    assert (found.rows, found.faults) == (10, [])


def test_a_batch_that_fails_leaves_nothing_behind(path: Path) -> None:
    store = filled(path, 1)
    bad = Entry(kind="decision", name=b"bytes", uid="u"), ()  # type: ignore[arg-type]
    with pytest.raises(sqlite3.Error):
        store.append([decided("c8"), bad], START)
    assert verified(path).rows == 1
    store.append([decided("c9")], START)
    assert verified(path).faults == []


def test_equal_texts_are_stored_once(path: Path) -> None:
    store = Store(path)
    store.append([decided("c1", f"web-{n}") for n in range(50)], START)
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM texts").fetchone() == (1,)


def test_pruning_by_age_keeps_a_chain_that_verifies(path: Path) -> None:
    store = filled(path, 100, chunk=30, window=10)
    while store.prune(START + 100, 50, 1 << 40):
        pass
    found = verified(path)
    assert found.faults == []
    with reading(path) as ledger:
        rows = ledger.history()
    assert rows[0].seq == 51
    assert [row.entry.kind for row in rows[-2:]] == ["checkpoint", "checkpoint"]
    assert store.prune(START + 100, 50, 1 << 40) == 0


def test_pruning_by_size_ends_below_it_and_gives_space_back(path: Path) -> None:
    store = Store(path, chunk=100, window=10)
    for number in range(40):
        store.append([decided(f"{number}-{n}", f"web-{n}") for n in range(50)], START + number)
    limit = store.used() // 2
    while store.prune(START + 40, 1e9, limit):
        pass
    assert store.used() <= limit
    assert verified(path).faults == []


def test_what_stands_since_before_the_pruned_rows_is_said_again(path: Path) -> None:
    store = Store(path, chunk=30, window=10)
    store.append([decided("c0", "old")], START)
    store.append([decided("c0", "ended")], START)
    store.append([gone("ended")], START)
    for number in range(60):
        store.append([decided(f"c{number}")], START + 10 + number)
    while store.prune(START + 70, 20, 1 << 40):
        pass
    with reading(path) as ledger:
        (row,) = ledger.history(ledger.find(reference("replicasets/old"), "shop"))
        assert row.entry.cause == f"standing since {START:.6f}"
        assert ledger.text(row.entry.new) == text_of({"annotations": {"clusters": "c0"}}).body
    assert verified(path).faults == []
    assert store.append([decided("c0", "old")], START + 71) == []
    assert sorted(store.standing(WEB.collection)) == [("shop", "old"), ("shop", "web")]


def test_policy_texts_live_as_long_as_a_row_that_is_about_them(path: Path) -> None:
    store = Store(path, chunk=10, window=5)
    source = text_of("package a")
    for policy in ("unused", "p1"):
        modules = text_of({f"{policy}.rego": source.digest})
        entry = Entry(kind="policy", policy=policy, new=modules.digest)
        store.append([(entry, [modules, source])], START)
    for number in range(100):
        store.append([decided(f"c{number}")], START + number)
        store.prune(START + number, 20, 1 << 40)
    with reading(path) as ledger:
        assert ledger.modules("p1") == {"p1.rego": '"package a"'}
        assert ledger.modules("unused") is None
    assert verified(path).faults == []


def _in_force(policy: str) -> tuple[Entry, list[Text]]:
    source = text_of(f"package {policy}")
    modules = text_of({f"{policy}.rego": source.digest})
    return Entry(kind="policy", policy=policy, new=modules.digest), [modules, source]


def test_everything_that_stands_outlives_the_rows_that_are_too_old(path: Path) -> None:
    """However much of it there is: what stands would else be unknown, and be news again."""
    store, names = Store(path, chunk=10, window=5), [f"web-{n}" for n in range(8)]
    store.append([decided("c0", name) for name in names], START)
    for number in range(3):
        store.append([decided(f"c{number}", "changing")], START + number)
    for later in (100, 200, 300):
        while store.prune(START + later, 50, 1 << 40):
            pass
        store.append([decided(f"c{later}", "changing")], START + later)
        stand = {name for _, name in store.standing(WEB.collection)}
        assert stand == {*names, "changing"}
    assert store.append([decided("c0", "web-1")], START + 301) == []
    (ended,) = store.append([gone("web-2")], START + 302)
    assert ended.old == decided("c0")[0].new
    assert verified(path).faults == []


def test_a_policy_outlives_its_row_while_what_it_decided_stands(path: Path) -> None:
    """What is said again of objects names it, and what is in force stays what it was."""
    store = Store(path, chunk=10, window=5)
    store.append([_in_force("p1"), decided("c0", "old"), _in_force("p2")], START)
    for number in range(20):
        store.append([decided(f"c{number}", policy="p2")], START + 1 + number)
    for later in (60, 120):
        while store.prune(START + later, 50, 1 << 40):
            pass
        with reading(path) as ledger:
            assert ledger.modules("p1") == {"p1.rego": '"package p1"'}
            assert ledger.modules("p2") == {"p2.rego": '"package p2"'}
            again = [row for row in ledger.history() if row.entry.kind == "policy"]
        assert {row.entry.cause for row in again} == {f"standing since {START:.6f}"}
        assert store.append([_in_force("p2")], START + later) == [], "it is in force already"
    (changed,) = store.append([_in_force("p1")], START + 200)
    assert changed.old == _in_force("p2")[0].new
    assert verified(path).faults == []


def test_few_rows_with_large_texts_are_bounded_too(path: Path) -> None:
    store = Store(path, chunk=5_000, window=5_000)
    store.append([decided("c0", "old")], START)
    for number in range(200):
        store.append([decided(f"{number}" * 8_000)], START + number)
        while store.prune(START + number, 1e9, 1 << 20):
            pass
        assert store.used() <= 1 << 20
    assert verified(path).faults == []
    with reading(path) as ledger:
        assert len(ledger.history(WEB)) > 5, "it keeps what there is room for"
    assert len(store.standing(WEB.collection)) == 2
    assert store.prune(START + 200, 1e9, 0) >= 0
    while store.prune(START + 200, 1e9, 0):
        pass
    assert verified(path).faults == []


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE records SET kind = 'weird' WHERE seq = 1",
        "DELETE FROM records WHERE seq = 10",
    ],
)
def test_a_row_that_cannot_be_read_does_not_go_and_what_comes_is_recorded(
    path: Path, harm: str
) -> None:
    store = Store(path, chunk=10, window=5)
    store.append([decided("c0", "old")], START)
    for number in range(30):
        store.append([decided(f"c{number}")], START)
    with sqlite3.connect(path) as db:
        db.execute(harm)
    with pytest.raises(Torn):
        store.prune(START + 100, 1e9, 1)
    assert store.append([decided("c99")], START + 100)
    assert verified(path).faults, "and it is told which row it is"


def test_a_file_that_is_no_ledger_is_not_written_to(path: Path) -> None:
    path.write_bytes(b"torn" * 5_000)
    with pytest.raises(Torn):
        Store(path)
    assert path.read_bytes() == b"torn" * 5_000


def test_a_file_of_another_version_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(Torn, match="version 99"):
        Store(path)


_APPENDING = """
import sys
from pathlib import Path
from tests.fakes.ledgers import START, decided
from kube_sync.ledger.store import Store

store = Store(Path(sys.argv[1]), chunk=50, window=10)
for number in range(1_000_000):
    store.append([decided(f"{number}-{n}", f"web-{n}") for n in range(3)], START + number)
    print(number, flush=True)
    store.prune(START + number, 200, 1 << 40)
"""


def test_a_writer_that_is_killed_at_any_moment_loses_nothing_it_had_said(path: Path) -> None:
    chance = random.Random(7)  # noqa: S311 - no secret
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", _APPENDING, str(path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 120)):
                said = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            said += max(0, process.stdout.read().count("\n"))
        assert verified(path).faults == []
        with reading(path) as ledger:
            rows = ledger.history(Object(WEB.collection, "shop", "web-2"))
            found = text_of({"annotations": {"clusters": f"{said}-2"}}).digest
            assert found in {row.entry.new for row in rows}


def test_what_another_writer_said_of_an_object_counts(path: Path) -> None:
    one, other = Store(path), Store(path)
    assert one.append([decided("c1")], START)
    assert other.append([decided("c2")], START + 1)
    (added,) = one.append([decided("c1")], START + 2)
    assert added.old == decided("c2")[0].new
    assert one.append([decided("c1")], START + 3) == []


def test_what_was_not_written_does_not_stand(path: Path) -> None:
    store = Store(path)
    assert store.append([decided("c1")], START)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TRIGGER full BEFORE INSERT ON objects BEGIN SELECT RAISE(FAIL, ''); END")
    with pytest.raises(sqlite3.Error):
        store.append([decided("c2")], START + 1)
    with sqlite3.connect(path) as db:
        db.execute("DROP TRIGGER full")
    assert len(store.append([decided("c2")], START + 2)) == 1
    assert verified(path).faults == []


def test_a_group_of_any_size_is_written_whole_and_in_order(path: Path) -> None:
    store, numbers = Store(path), range(3 * 64 + 16 + 4 + 3)
    assert len(store.append([decided("c1", f"w{n}") for n in numbers], START)) == len(numbers)
    assert verified(path).faults == []
    assert len(store.standing("replicasets.v1.apps")) == len(numbers)
