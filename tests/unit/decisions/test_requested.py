from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.decisions.decision import REQUESTED, compact
from kube_sync.decisions.requested import (
    NOTE,
    as_requested,
    requested_annotations,
    requests,
    requests_to_note,
    restore,
    with_note,
)
from kube_sync.opa.analysis.analyzer import PolicyModule, analyze
from kube_sync.opa.analysis.paths import Path, project
from kube_sync.opa.analysis.result import Collection, Document, FieldRead, Reads
from tests.fakes.compiler import reading, tree_of

_UNREADABLE = ["", "{", "[]", "null", "1", '"a"', '{"a":1}', '{"a":{"b":"c"}}', "[" * 100_000]


def _reads(*paths: Path) -> Reads:
    fields = tuple(FieldRead(path, whole=True, asked=()) for path in paths)
    return Reads(Document(fields, used=bool(fields)), {}, (), {})


def _paths(*paths: Path) -> tuple[Path, ...]:
    return with_note(_reads(*paths)).input.paths


def test_requests_are_put_back_and_the_note_is_left_out() -> None:
    stored = {"a": "1", "b": "2", "c": "3", REQUESTED: '{"a":"mine","b":null,"gone":"too"}'}
    assert requested_annotations(stored) == {"a": "mine", "c": "3", "gone": "too"}


@pytest.mark.parametrize("text", _UNREADABLE)
def test_a_note_that_cannot_be_read_counts_as_none(text: str) -> None:
    assert requested_annotations({"a": "1", REQUESTED: text}) == {"a": "1"}


def test_a_note_about_itself_is_nothing() -> None:
    assert requests({REQUESTED: json.dumps({REQUESTED: "x", "a": None})}) == {"a": None}
    assert restore({"a": "1"}, {REQUESTED: "x"}) == {"a": "1"}


def test_a_note_is_compact_sorted_and_only_about_what_differs() -> None:
    asked = {"c": "mine", "a": '"ü"', "same": "1"}
    decided = {"c": "3", "b": "2", "a": "1", "same": "1"}
    assert compact(requests_to_note(asked, decided, {})) == '{"a":"\\"ü\\"","b":null,"c":"mine"}'
    assert requests_to_note(asked, {"same": "1"}, {}) == {}


def test_an_earlier_request_stays_noted_until_its_key_is_decided_again() -> None:
    assert requests_to_note({"a": "mine"}, {}, {"a": "mine"}) == {"a": "mine"}
    assert requests_to_note({"a": "mine"}, {"a": "mine"}, {"a": "mine"}) == {}


_keys = st.sampled_from(["a", "b", "c"])
_maps = st.dictionaries(_keys, st.sampled_from(["1", "2", "3"]))


@given(asked=_maps, decided=_maps)
def test_what_was_asked_for_follows_from_what_is_written(
    asked: dict[str, str], decided: dict[str, str]
) -> None:
    found = requests_to_note(asked, decided, {})
    written = {**asked, **decided} | ({REQUESTED: compact(found)} if found else {})
    assert requested_annotations(written) == asked
    assert requests_to_note(requested_annotations(written), decided, requests(written)) == found


def test_an_object_without_a_note_is_the_bytes_that_it_was() -> None:
    for body in (b'{"metadata":{"name":"x"} }', b'{ "metadata":{"annotations":{"a":"1"}}}'):
        assert as_requested(body) is body


def test_an_object_with_a_note_is_as_it_was_asked_for() -> None:
    metadata = {"name": "x", "annotations": {"a": "1", REQUESTED: '{"a":null}'}}
    body = json.dumps({"metadata": metadata, "spec": 1}).encode()
    assert json.loads(as_requested(body)) == {
        "metadata": {"name": "x", "annotations": {}},
        "spec": 1,
    }


def test_metadata_of_another_shape_is_left_as_it_is() -> None:
    for body in (b'{"metadata":{"annotations":[]}}', b"{}", b"[]"):
        assert as_requested(body) is body


def test_what_is_no_json_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        as_requested(b"{")


# What is read


@pytest.mark.parametrize(
    "path",
    [
        ("metadata", "annotations", "a"),
        ("metadata", "annotations", "a", "b"),
        ("metadata", "annotations", REQUESTED, "x"),
        ("metadata", None, "a"),
        (None, "annotations", "a"),
        (None, None, "a"),
        ("metadata", "annotations", None, "x"),
    ],
)
def test_who_reads_an_annotation_reads_the_note(path: Path) -> None:
    assert NOTE in _paths(path)


@pytest.mark.parametrize(
    "path",
    [
        (),
        ("metadata",),
        ("metadata", "annotations"),
        ("metadata", "annotations", None),
        (None, None),
        NOTE,
        ("spec",),
        ("metadata", "name"),
        ("metadata", "labels", "annotations"),
        ("spec", "annotations", "a"),
    ],
)
def test_who_reads_no_annotation_or_the_note_already_reads_no_more(path: Path) -> None:
    assert _paths(path) == (path,)


def test_nothing_read_stays_nothing() -> None:
    assert _paths() == ()


def test_the_note_is_among_what_the_policies_read_and_is_not_counted_as_whole() -> None:
    module = PolicyModule(
        "policy.rego", tree_of(reading("input.metadata.annotations.a", "input.z"))
    )
    roots = {"things": Collection(("kubernetes", "things"))}
    reads = with_note(analyze([module], "io/k8s/federation/admission", roots))
    assert reads.input.paths == (("metadata", "annotations", "a"), NOTE, ("z",))
    (field,) = (field for field in reads.input.fields if field.path == NOTE)
    assert (field.whole, [str(ask) for ask in field.asked]) == (
        False,
        ["what was asked for is put back"],
    )
    assert reads.target_paths("things") == reads.input.paths


_objects = st.builds(
    lambda has, found, name: {
        "metadata": {
            "name": name,
            "annotations": has | ({} if found is None else {REQUESTED: found}),
        }
    },
    _maps,
    st.none() | st.dictionaries(_keys, st.none() | st.sampled_from("123")).map(json.dumps),
    st.sampled_from("xy"),
)
_path_sets = st.lists(
    st.sampled_from(
        [
            ("metadata", "annotations", "a"),
            ("metadata", "annotations", "b"),
            ("metadata", "annotations"),
            ("metadata", None, "c"),
            ("metadata", "name"),
            ("metadata",),
        ]
    ),
    min_size=1,
)


@given(one=_objects, other=_objects, read=_path_sets)
def test_objects_of_one_class_are_decided_on_as_the_same_input(
    one: dict[str, object], other: dict[str, object], read: list[Path]
) -> None:
    """What is put back is the same whether the rest of the annotations is there or not."""
    kept = with_note(_reads(*read)).input.paths
    a, b = (project(found, kept) for found in (one, other))
    if a == b:
        inputs = [json.loads(as_requested(json.dumps(found).encode())) for found in (one, other)]
        assert project(inputs[0], read) == project(inputs[1], read)
    whole, part = (json.loads(as_requested(json.dumps(found).encode())) for found in (one, a))
    assert project(whole, read) == project(part, read)
