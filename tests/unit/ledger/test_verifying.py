from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from kube_sync.errors import Terminal
from kube_sync.ledger.entries import COLUMNS, Entry, text_of
from kube_sync.ledger.heads import Head
from kube_sync.ledger.reading import reading
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START, decided, filled, gone, verified

_OBJECT = "object shop/web (replicasets.v1.apps): "


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def _tamper(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as db:
        assert db.execute(statement, values).rowcount > 0


@pytest.mark.parametrize(
    ("row", "column"), [(1, "note"), (10, "uid"), *((5, column) for column in (*COLUMNS, "time"))]
)
def test_a_row_is_named_whichever_column_was_tampered_with(
    path: Path, row: int, column: str
) -> None:
    filled(path, 10)
    value = 1 if column == "time" else "intent" if column == "kind" else "tampered"
    _tamper(path, f"UPDATE records SET {column} = ? WHERE seq = ?", value, row)  # noqa: S608
    assert f"row {row}: it is not what was written" in verified(path).faults


@pytest.mark.parametrize("row", [1, 5, 10])
def test_a_row_is_named_whose_hash_was_tampered_with(path: Path, row: int) -> None:
    filled(path, 10)
    _tamper(path, "UPDATE records SET hash = ? WHERE seq = ?", bytes(32), row)
    assert verified(path).faults[0].startswith(f"row {row}: ") or row == 1
    assert any(f.startswith(f"row {row}: it is not what") for f in verified(path).faults)


@pytest.mark.parametrize(("gone", "named"), [(1, 2), (5, 6)])
def test_a_row_that_was_taken_away_is_missed(path: Path, gone: int, named: int) -> None:
    filled(path, 10)
    _tamper(path, "DELETE FROM records WHERE seq = ?", gone)
    (fault,) = verified(path).faults
    assert fault.startswith(f"row {named}: ")
    assert "missing" in fault


def test_a_number_that_was_changed_is_named(path: Path) -> None:
    filled(path, 10)
    _tamper(path, "UPDATE records SET seq = 100 WHERE seq = 10")
    assert "row 100: 90 rows before it are missing" in verified(path).faults


def test_a_module_of_a_policy_that_is_missing_is_named_and_the_rest_is_no_policy(
    path: Path,
) -> None:
    one, other = text_of("package a"), text_of("package b")
    listed = text_of({"a.rego": one.digest, "b.rego": other.digest})
    entry = Entry(kind="policy", policy="p", new=listed.digest)
    Store(path).append([(entry, [listed, one, other])], START)
    _tamper(path, "DELETE FROM texts WHERE digest = ?", other.digest)
    fault = f"text {listed.digest}: the text {other.digest} that it names is missing"
    assert verified(path).faults == [fault]
    with reading(path) as ledger:
        assert ledger.modules("p") is None


def test_an_end_that_was_cut_off_is_missed_by_whoever_noted_the_head(path: Path) -> None:
    filled(path, 10)
    head = verified(path)
    anchor = Head(head.last, head.hash)
    assert verified(path, anchor).faults == []
    _tamper(path, "DELETE FROM records WHERE seq > 8")
    (fault,) = verified(path).faults
    assert fault == _OBJECT + "the table of objects is not what row 8 says (decided, seq)"
    Store(path).mend()  # as whoever knows how the table is made would do it
    assert verified(path).faults == []
    assert verified(path, anchor).faults == [
        "row 10: it is missing, or was taken away with the oldest"
    ]


def test_a_chain_that_was_made_anew_is_not_the_one_whose_head_was_noted(
    path: Path, tmp_path: Path
) -> None:
    filled(path, 10)
    filled(tmp_path / "other.db", 5)
    head = verified(path)
    store = Store(tmp_path / "other.db")
    for number in range(5):
        store.append([decided(f"other-{number}")], START + 20)
    assert verified(tmp_path / "other.db", Head(head.last, head.hash)).faults == [
        "row 10: its hash is not the one that was noted"
    ]


def test_a_tampered_text_is_named(path: Path) -> None:
    filled(path, 3)
    digest = text_of({"annotations": {"clusters": "c1"}}).digest
    _tamper(path, "UPDATE texts SET body = ? WHERE digest = ?", b"{}", digest)
    assert verified(path).faults == [f"text {digest}: it is not what was written"]


def test_a_text_that_was_taken_away_is_missed(path: Path) -> None:
    filled(path, 2)
    digest = text_of({"annotations": {"clusters": "c1"}}).digest
    _tamper(path, "DELETE FROM texts WHERE digest = ?", digest)
    assert verified(path).faults == [f"row 2: the text {digest} that it names is missing"]


def test_tampering_with_a_checkpoint_accuses_no_other_row(path: Path) -> None:
    store = filled(path, 50, chunk=30, window=10)
    assert store.prune(START + 50, 30, 1 << 40)
    last = verified(path).last
    _tamper(path, "UPDATE records SET note = '{}' WHERE kind = 'checkpoint'")
    assert verified(path).faults == [f"row {last}: it is not what was written"]


def test_rows_before_a_checkpoint_cannot_be_put_back_differently(path: Path) -> None:
    store = filled(path, 50, chunk=30, window=10)
    assert store.prune(START + 50, 30, 1 << 40)
    first = verified(path).first
    _tamper(path, "UPDATE records SET cause = 'x' WHERE seq = ?", first)
    assert verified(path).faults == [f"row {first}: it is not what was written"]


def test_gaps_are_counted(path: Path) -> None:
    store = filled(path, 1)
    store.append([(Entry(kind="gap", note="a full disk"), [])], START)
    found = verified(path)
    assert (found.gaps, found.faults) == (1, [])


def test_a_torn_file_is_said_to_be_one(path: Path) -> None:
    filled(path, 300).close()
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 3 : len(whole) // 2] = bytes(len(whole) // 2 - len(whole) // 3)
    path.write_bytes(whole)
    try:
        assert verified(path).faults != []
    except Terminal as error:
        assert "cannot be read" in str(error)  # noqa: PT017 - either of both is right


@pytest.mark.parametrize("filed", [0, 2])
def test_a_row_that_was_taken_out_of_the_index_is_named(path: Path, filed: int) -> None:
    filled(path, 5).close()
    _tamper(path, "UPDATE records SET filed = ? WHERE seq = 3", filed)
    assert "row 3: it is not in the index of objects, and later ones are" in verified(path).faults


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (
            "UPDATE objects SET decided = 'x'",
            "the table of objects is not what row 3 says (decided)",
        ),
        ("UPDATE objects SET uid = 'x'", "the table of objects is not what row 3 says (uid)"),
        ("UPDATE objects SET seq = 2", "the table of objects is not what row 3 says (seq)"),
        ("DELETE FROM objects", "row 3 stands, and the table of objects lacks it"),
    ],
)
def test_an_object_is_named_of_which_the_table_does_not_say_what_the_rows_say(
    path: Path, statement: str, fault: str
) -> None:
    filled(path, 3)
    _tamper(path, statement)
    assert verified(path).faults == [_OBJECT + fault]


def test_an_object_that_only_the_table_knows_is_named(path: Path) -> None:
    store = filled(path, 3)
    store.append([decided("c1", "ended"), gone("ended")], START + 9)
    copied = "SELECT collection, namespace, 'ended', uid, decided, status, note, seq FROM objects"
    _tamper(path, f"INSERT INTO objects {copied}")
    fault = "object shop/ended (replicasets.v1.apps): no row says what the table of objects has"
    assert verified(path).faults == [fault]


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (
            "CREATE TRIGGER quiet BEFORE INSERT ON records BEGIN SELECT RAISE(IGNORE); END",
            "trigger quiet on records: it is not as it was created",
        ),
        (
            "CREATE UNIQUE INDEX one ON objects (namespace)",
            "index one on objects: it is not as it was created",
        ),
        ("DROP INDEX by_ref", "index by_ref on records: it is not as it was created"),
    ],
)
def test_a_definition_that_steers_what_is_recorded_is_named(
    path: Path, statement: str, fault: str
) -> None:
    filled(path, 3)
    with sqlite3.connect(path) as db:
        db.execute(statement)
    assert verified(path).faults == [fault]


@pytest.mark.parametrize(
    ("keep", "fault"),
    [
        (1, "it would be taken away before row 2, which names it"),
        (1 << 40, "it would be kept for longer than any row that names it"),
    ],
)
def test_a_text_is_named_whose_time_to_go_was_changed(path: Path, keep: int, fault: str) -> None:
    filled(path, 2)
    digest = text_of({"annotations": {"clusters": "c1"}}).digest
    _tamper(path, "UPDATE texts SET keep = ? WHERE digest = ?", keep, digest)
    assert verified(path).faults == [f"text {digest}: {fault}"]
