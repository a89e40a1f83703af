from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import (
    BookmarkRecord,
    Budget,
    DecisionRecord,
    DeletedRecord,
    GroupRecord,
    Record,
    Source,
    Stale,
    StatusRecord,
    Target,
    decode,
    decode_grouped,
    encode,
)
from kube_sync.objects import GroupVersionResource, ObjectKey

_targets = st.builds(Target, st.text(), st.text(), st.text(), st.text(), st.text())
_stale = st.lists(st.builds(Stale, st.text(), st.floats(0, 1e9), st.text()), max_size=2).map(tuple)
_decisions = st.none() | st.builds(
    Decision,
    st.dictionaries(st.text(), st.text(), max_size=3),
    st.lists(st.text(), max_size=3).map(tuple),
    st.dictionaries(st.text(), st.text(), max_size=3),
    reasons=st.dictionaries(st.text(), st.text(), max_size=3),
)
_some_texts = st.lists(st.text(), max_size=3).map(tuple)
_texts = st.none() | st.text()
_seqs = st.integers(0, 2**53)
_budgets = st.builds(
    Budget,
    st.none() | st.dictionaries(st.text(), st.integers(0, 9) | st.text(), max_size=3),
    _texts,
    st.booleans(),
)
_records: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        DecisionRecord,
        object=_targets,
        uid=st.text(),
        decision=_decisions,
        seq=_seqs,
        cause=st.text(),
        policy=st.text(),
        old=_decisions,
        failure=_texts,
        data=_seqs,
        source=st.none() | st.builds(Source, st.text(), st.text(), st.integers(1, 9)),
        last_good=st.booleans(),
    ),
    st.builds(DeletedRecord, object=_targets, seq=_seqs),
    st.builds(StatusRecord, _some_texts, st.text(), _some_texts, _stale, st.none() | _budgets),
    st.builds(BookmarkRecord, _seqs, st.text()),
)


@given(_records)
def test_any_record_survives_the_wire_as_one_line(record: Record) -> None:
    line = encode(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == record


def test_a_decision_line_is_what_the_documentation_says() -> None:
    target = Target("apps", "v1", "replicasets", "web", "shop")
    record = DecisionRecord(target, "u1", Decision({"k": "v"}), 7, "data", "abc", Decision())
    assert json.loads(encode(record)) == {
        "type": "decision",
        "v": 1,
        "object": {
            "group": "apps",
            "version": "v1",
            "resource": "replicasets",
            "namespace": "shop",
            "name": "web",
        },
        "uid": "u1",
        "decision": {"annotations": {"k": "v"}, "errors": []},
        "seq": 7,
        "cause": "data",
        "policy": "abc",
        "old": {"annotations": {}, "errors": []},
        "failure": None,
        "data": 0,
        "source": None,
        "last_good": False,
    }


def test_labels_are_told_where_there_are_any() -> None:
    target = Target("apps", "v1", "replicasets", "web", "shop")
    record = DecisionRecord(target, "u1", Decision(labels={"l": "1"}), 7, "data", "abc")
    decision = {"annotations": {}, "errors": [], "labels": {"l": "1"}}
    assert json.loads(encode(record))["decision"] == decision


def test_a_status_without_limits_is_one_that_sets_none() -> None:
    """Of a replicator before there were any, or of an engine that has none."""
    line = b'{"type":"status","held":[],"instance":"i","v":1}\n'
    assert decode(line) == StatusRecord((), "i", budget=None)


DOCUMENTED = Path(__file__).resolve().parents[3] / "docs/decisions.md"


def test_the_documented_records_are_records_with_all_their_fields() -> None:
    lines = re.findall(r"^\{.*\}$", DOCUMENTED.read_text(encoding="utf-8"), re.MULTILINE)
    records = [msgspec.json.decode(line, type=Record | GroupRecord) for line in lines]
    encoded = [json.loads(msgspec.json.encode(record)) for record in records]
    assert encoded == list(map(json.loads, lines))
    assert len({type(record) for record in records}) == 5


@pytest.mark.parametrize(
    "record",
    [
        DecisionRecord(Target("", "v1", "pods", "x"), "u", None, 1, "load", ""),
        DeletedRecord(Target("", "v1", "pods", "x"), 1),
        StatusRecord((), "i"),
        BookmarkRecord(1, "i"),
    ],
)
def test_every_record_carries_its_version(record: Record) -> None:
    assert json.loads(encode(record))["v"] == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"bookmark","seq":1,"instance":"i","v":2}\n',
        b'{"type":"surprise","v":1}\n',
        b'{"seq":1,"instance":"i","v":1}\n',
        b'{"type":"bookmark","v":1}\n',
        b'{"type":"bookm\n',
        b"\n",
    ],
)
def test_an_unknown_version_or_record_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(line)


@pytest.mark.parametrize(
    "record",
    [
        DecisionRecord(Target("", "v1", "pods", "x"), "u", None, 1, "load", ""),
        DeletedRecord(Target("", "v1", "pods", "x"), 1),
        StatusRecord((), "i"),
        BookmarkRecord(1, "i"),
    ],
)
def test_another_version_of_any_record_is_refused(record: Record) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(encode(record).replace(b'"v":1', b'"v":2'))


def test_documented_group_is_one_decision_for_each_of_its_objects() -> None:
    (line,) = re.findall(r'^\{"type":"decisions".*\}$', DOCUMENTED.read_text("utf-8"), re.MULTILINE)
    one, other = decode_grouped(f"{line}\n".encode())
    assert isinstance(one, DecisionRecord)
    shared = {
        name: json.loads(line)[name] for name in ("decision", "old", "cause", "data", "source")
    }
    assert shared.items() <= json.loads(encode(one)).items()
    assert (one.object.name, one.uid, one.seq) == ("web", "8d2e", 12)
    cart = Target("apps", "v1", "replicasets", "cart", "shop")
    assert other == msgspec.structs.replace(one, object=cart, uid="91aa", seq=13)


def test_nobody_gets_a_group_who_did_not_ask_for_it() -> None:
    line = b'{"type":"decisions","collection":{"group":"","version":"v1","resource":"pods"},'
    line += b'"objects":[],"decision":null,"cause":"","policy":"","v":1}\n'
    assert [*decode_grouped(line)] == []
    with pytest.raises(msgspec.DecodeError):
        decode(line)
    with pytest.raises(msgspec.DecodeError):
        decode_grouped(line.replace(b'"v":1', b'"v":2'))


def test_an_unknown_field_is_ignored() -> None:
    """A newer replicator of the same version may say more."""
    line = b'{"type":"bookmark","seq":1,"instance":"i","v":1,"more":true}\n'
    assert decode(line) == BookmarkRecord(1, "i")


def test_a_target_names_its_collection_and_key() -> None:
    target = Target("apps", "v1", "replicasets", "web", "shop")
    assert target.gvr == GroupVersionResource("apps", "v1", "replicasets")
    assert target.key == ObjectKey("shop", "web")
