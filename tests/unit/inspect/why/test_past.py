"""What stood of an object, by ledgers that the store itself made."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest

from kube_sync.decisions.input_reader import Basis
from kube_sync.errors import NotFound, Terminal
from kube_sync.inspect.why.past import UNKNOWN, Ground, Past, PastRequest, Written, read_past
from kube_sync.kube.naming import reference
from kube_sync.ledger.bases import text_of_basis
from kube_sync.ledger.entries import Entry, Kind, Text, text, text_of
from kube_sync.ledger.reading import reading
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START, WEB, decided, filled, gone

BASIS = Basis(
    "kubernetes",
    "a/b",
    (),
    {},
    {"clusters": b'{"fleet":{"c1":{"x":1}}}'},
    {},
    {"pods": "too large"},
)

Said = tuple[Entry, list[Text]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def asked(path: Path, seconds: float, name: str = "web", namespace: str | None = "shop") -> Past:
    with reading(path) as ledger:
        return read_past(
            ledger,
            PastRequest(str(path), reference(f"replicaset/{name}"), namespace, START + seconds),
        )


def write(kind: Kind, ref: str, status: str = "", **said: str) -> Said:
    old, new = text_of({"a": None}), text_of({"a": "c1"})
    entry = Entry(
        kind=kind, collection=WEB.collection, namespace="shop", name="web", ref=ref, status=status
    )
    if kind != "outcome":
        entry = msgspec.structs.replace(entry, old=old.digest, new=new.digest)
    return msgspec.structs.replace(entry, **said), [old, new]


def gap(begin: float, end: float) -> Said:
    note = {"entries": 3, "begin": START + begin, "end": START + end, "reason": "disk full"}
    return Entry(kind="gap", note=msgspec.json.encode(note).decode()), []


def on(found: Past) -> str:
    return "" if found.decision is None else found.decision.annotations["clusters"]


def test_what_stood_is_told_with_since_when_until_when_and_what_before(path: Path) -> None:
    filled(path, 3)
    found = asked(path, 1.5)
    assert (found.status, on(found), found.row) == ("decided", "c1", 2)
    assert (found.since, found.until) == (START + 1, START + 2)
    assert found.before is not None
    assert found.before.annotations == {"clusters": "c0"}
    assert (found.cause, found.policy, found.uid) == ("object", "p1", "uid-web")
    assert (found.modules, found.ground, found.notes) == (None, Ground(), ())


def test_what_still_stands_has_no_end_and_the_end_of_the_ledger_is_told(path: Path) -> None:
    filled(path, 3)
    assert asked(path, 2).notes == ()
    found = asked(path, 9)
    assert (on(found), found.until) == ("c2", None)
    assert found.notes == ("the newest row of the ledger is of 1970-01-12T13:46:42.000Z",)


def test_texts_of_its_policy_its_input_and_its_data_come_with_it(path: Path) -> None:
    store, source = Store(path), text(b"package a")
    modules = text_of({"a.rego": source.digest})
    policy = Entry(kind="policy", policy="p1", new=modules.digest)
    body, data = text(b'{"kind":"ReplicaSet"}'), text_of_basis(BASIS)
    entry, texts = decided("c1", input=body.digest, data=data.digest)
    store.append([(policy, [modules, source]), (entry, [*texts, body, data])], START)
    found = asked(path, 0)
    assert found.modules == {"a.rego": "package a"}
    ground = found.ground
    assert (ground.input, ground.path, ground.lacks) == (body.body, "a/b", {"pods": "too large"})
    assert ground.data == b'{"kubernetes":{"clusters":{"fleet":{"c1":{"x":1}}}}}'


def test_data_of_which_a_part_is_missing_is_not_taken_for_whole(path: Path) -> None:
    data = text_of_basis(BASIS)
    entry, texts = decided("c1", data=data.digest)
    Store(path).append([(entry, [*texts, data])], START)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM texts WHERE digest = ?", (data.parts[0].digest,))
    ground = asked(path, 0).ground
    assert ground.data == b'{"kubernetes":{}}'
    assert ground.lacks == {"pods": "too large", "clusters": "its parts are not there"}


def test_data_that_cannot_be_read_is_not_known(path: Path) -> None:
    data = text(b"[]")
    entry, texts = decided("c1", data=data.digest)
    Store(path).append([(entry, [*texts, data])], START)
    assert asked(path, 0).ground.data is None


def test_object_that_is_gone_is_told_as_gone_with_what_was_decided(path: Path) -> None:
    filled(path, 1).append([gone()], START + 5)
    found = asked(path, 6)
    assert (found.status, found.decision, found.since) == ("gone", None, START + 5)
    assert found.before is not None


def test_failure_is_told_beside_what_stands(path: Path) -> None:
    store = filled(path, 1)
    entry, texts = decided("c0", status="failed", note="conflict")
    store.append([(entry, texts)], START + 1)
    found = asked(path, 2)
    assert (found.status, found.failure, on(found)) == ("failed", "conflict", "c0")


def test_trace_of_a_decision_is_told_and_what_it_failed_for_is_none(path: Path) -> None:
    store = filled(path, 1)
    store.append([decided("c1", note="4bf9")], START + 1)
    store.append([decided("c1", status="failed", note="conflict")], START + 2)
    assert [asked(path, seconds).trace for seconds in (0.5, 1.5, 2.5)] == ["", "4bf9", ""]


def test_time_before_the_ledger_begins_has_no_answer(path: Path) -> None:
    filled(path, 2)
    with pytest.raises(Terminal, match=r"the ledger begins at 1970-01-12T13:46:40\.000Z"):
        asked(path, -1)


def test_object_of_which_nothing_was_recorded_yet_is_unknown_until_it_was(path: Path) -> None:
    filled(path, 1).append([decided("c1", "api")], START + 5)
    found = asked(path, 2, "api")
    assert (found.status, found.until, found.since) == (UNKNOWN, START + 5, None)
    assert found.notes[0] == "nothing was recorded of it until then"


def test_object_that_was_never_seen_is_an_error_that_names_others(path: Path) -> None:
    filled(path, 1)
    with pytest.raises(NotFound, match="nothing is recorded of replicaset/nobody in"):
        asked(path, 1, "nobody")
    with pytest.raises(NotFound, match=r"replicaset/web in namespace default \(-n NAMESPACE\?\)"):
        asked(path, 1, namespace=None)


def test_object_in_no_namespace_is_found_where_nobody_names_one(path: Path) -> None:
    entry, texts = decided("c1")
    Store(path).append([(msgspec.structs.replace(entry, namespace=""), texts)], START)
    assert asked(path, 0, namespace=None).of.namespace == ""


def test_empty_ledger_has_no_answer(path: Path) -> None:
    Store(path).close()
    with pytest.raises(NotFound, match="nothing is recorded yet"):
        asked(path, 0)


def pruned(path: Path) -> None:
    """Make a ledger of which the oldest rows are gone: `old` stood since before, `web` moved."""
    store = Store(path, chunk=4, window=10)
    store.append([decided("c9", "old")], START)
    for number in range(6):
        store.append([decided(f"c{number}")], START + number + 1)
    assert store.prune(START + 100, 98, 1 << 40)


def test_what_stands_since_before_the_oldest_row_is_told_with_when_it_began(path: Path) -> None:
    pruned(path)
    found = asked(path, 1, "old")
    assert (on(found), found.since, found.until) == ("c9", START, None)
    assert (found.cause, found.before, found.policy) == ("", None, "p1")
    assert "its cause was taken away with the oldest rows" in found.notes
    assert asked(path, 200, "old").since == START


def test_what_was_replaced_after_the_ledger_begins_is_told_without_how_it_came(path: Path) -> None:
    store = Store(path, chunk=2, window=10)
    store.append([decided("c1")], START)
    store.append([decided("c1", "api")], START + 1)
    store.append([decided("c2", "api")], START + 10)
    store.append([decided("c2")], START + 20)
    assert store.prune(START + 100, 95, 1 << 40)
    with pytest.raises(Terminal, match="the ledger begins"):
        asked(path, -1)
    found = asked(path, 15)
    assert (on(found), found.since, found.until) == ("c1", None, START + 20)
    assert found.notes == ("by which policy and why was taken away with the oldest rows",)


@pytest.mark.parametrize(("seconds", "told"), [(1, 0), (3, 1), (6, 1)])
def test_gap_that_covers_a_time_is_told_though_it_was_recorded_later(
    path: Path, seconds: float, told: int
) -> None:
    filled(path, 1).append([gap(2, 4)], START + 5)
    notes = [n for n in asked(path, seconds).notes if n.startswith("a gap in the ledger")]
    assert len(notes) == told
    missing = "3 entries from 1970-01-12T13:46:42.000Z to 1970-01-12T13:46:44.000Z: disk full"
    assert all(note.endswith(missing) for note in notes)


def test_gap_before_the_decision_is_not_told_nor_is_one_without_a_beginning_after_it(
    path: Path,
) -> None:
    store = Store(path)
    store.append([gap(-9, -8)], START - 7)
    store.append([decided("c1")], START)
    store.append([(Entry(kind="gap", note="2 reports of writes were lost"), [])], START + 5)
    assert asked(path, 4).notes == ()


def test_writes_of_a_decision_are_told_with_what_became_of_them_by_then(path: Path) -> None:
    store = filled(path, 1)
    store.append([write("intent", "r1", approved="moves-1")], START + 1)
    store.append([write("outcome", "r1", "retried", note="409")], START + 2)
    store.append([write("intent", "r2")], START + 3)
    store.append([write("outcome", "r2", "applied")], START + 5)
    values = {"a": None}, {"a": "c1"}
    first = Written(False, START + 1, "retried", START + 2, "moves-1", "409", *values)  # noqa: FBT003 - as it is told
    assert asked(path, 4).writes == (first, Written(False, START + 3, "", None, "", "", *values))  # noqa: FBT003 - as it is told
    assert asked(path, 6).writes[1].status == "applied"
    assert asked(path, 0).writes == ()


def test_writes_of_the_decision_before_are_not_told_but_the_answer_to_one_is(path: Path) -> None:
    store = filled(path, 1)
    store.append([write("intent", "r1"), write("outcome", "r1", "applied")], START + 1)
    store.append([write("intent", "r2"), decided("c7")], START + 2)
    store.append([write("outcome", "r2", "gone")], START + 3)
    assert [one.status for one in asked(path, 4).writes] == ["gone"]


def test_what_is_held_is_told_until_it_is_written_or_decided_anew(path: Path) -> None:
    store = filled(path, 1)
    store.append([write("held", "h1", "moves", note="too many; released by: kube")], START + 1)
    found = asked(path, 2)
    assert found.held is not None
    assert (found.held.status, found.held.after) == ("moves", {"a": "c1"})
    store.append([write("intent", "r1", approved="moves-1")], START + 3)
    assert asked(path, 2).held is not None
    assert asked(path, 4).held is None
    store.append([write("held", "h2", "moves"), decided("c7")], START + 5)
    assert asked(path, 6).held is None


def test_text_that_is_no_decision_is_not_known(path: Path) -> None:
    body = text(b"[]")
    entry, _ = decided("c1")
    entry = msgspec.structs.replace(entry, new=body.digest)
    Store(path).append([(entry, [body])], START)
    assert asked(path, 0).decision is None
