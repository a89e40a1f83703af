from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube_sync.decisions.classifier import classifier
from kube_sync.decisions.decision import REQUESTED
from kube_sync.opa.analysis.paths import EACH, Path, project

_KEYS = st.sampled_from(("a", "b", "c/d", 'q"uote'))
_LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(_KEYS, _VALUES, max_size=4)
_STEPS = _KEYS | st.just(EACH)
_PATHS = st.lists(st.lists(_STEPS, min_size=1, max_size=4).map(tuple), max_size=4)


def _class(paths: list[Path], value: Any) -> bytes:
    classify = classifier(paths)
    assert classify is not None
    return classify(json.dumps(value).encode())


def _reference(paths: list[Path], value: Any) -> bytes:
    canonical = msgspec.json.encode(project(value, paths), order="sorted")
    return hashlib.blake2b(canonical, digest_size=16).digest()


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(_PATHS, _OBJECTS)
def test_class_is_the_digest_of_the_reference_projection(
    paths: list[Path], value: dict[str, Any]
) -> None:
    assert _class(paths, value) == _reference(paths, value)


@pytest.mark.parametrize(
    ("paths", "value"),
    [
        ([("a", "b"), ("a", "c/d")], {"c": 1, "a": {"b": {"y": 1, "x": None}}}),
        ([("a", EACH, "b")], {"a": [{"b": 1, "c/d": 2}, {}]}),
        ([("a", EACH, "b")], {"a": {"k": {"b": 1, "c/d": 2}, "l": 3}}),
        ([("a", "b")], {"a": None}),
        ([("a", "b")], {"a": [1]}),
        ([("a", EACH), ("a", "b", "c")], {"a": {"b": {"c": 1}}}),
    ],
)
def test_class_of_any_shape_is_that_of_the_reference(paths: list[Path], value: Any) -> None:
    assert _class(paths, value) == _reference(paths, value)


def test_order_of_members_makes_no_class() -> None:
    paths: list[Path] = [("a",), ("b",)]
    assert _class(paths, {"a": {"x": 1, "y": 2}, "b": 3}) == _class(
        paths, {"b": 3, "a": {"y": 2, "x": 1}}
    )


def test_what_is_not_read_makes_no_class() -> None:
    assert _class([("a",)], {"a": 1, "b": 2}) == _class([("a",)], {"a": 1, "b": 3})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":0.1}', b'{"a":0.1000000000000000000001}'),
        (b'{"a":0.1}', b'{"a":"0.1"}'),
        (b'{"a":100000000000000000000001}', b'{"a":100000000000000000000002}'),
        (b'{"a":null}', b"{}"),
        (b'{"a":[]}', b'{"a":{}}'),
    ],
)
def test_values_that_opa_may_tell_apart_are_two_classes(one: bytes, other: bytes) -> None:
    """A float has 17 digits, OPA's numbers have all."""
    classify = classifier([("a",)])
    assert classify is not None
    assert classify(one) != classify(other)


def test_object_that_is_read_whole_has_no_class() -> None:
    assert classifier([("a",), ()]) is None


def test_decision_that_reads_nothing_knows_one_class() -> None:
    assert _class([], {"a": 1}) == _class([], {"b": 2})


def test_objects_are_told_apart_by_what_was_asked_for_not_by_what_was_written() -> None:
    """Else each request would make a class of its own, also one that no policy reads."""
    annotations = ("metadata", "annotations")
    classify = classifier([(*annotations, "read"), (*annotations, REQUESTED)])
    assert classify is not None

    def kind(note: dict[str, str | None], **has: str) -> bytes:
        found = {"metadata": {"annotations": {**has, REQUESTED: json.dumps(note)}}}
        return classify(json.dumps(found).encode())

    assert kind({"other": "x"}, read="1", other="d") == kind({"other": "y"}, read="1", other="d")
    assert kind({"read": "1"}, read="d") == kind({}, read="1") == kind({"read": "1"}, read="e")
    assert kind({"read": "1"}, read="d") != kind({"read": "2"}, read="d")
    assert kind({"read": None}, read="d") == kind({})


@pytest.mark.parametrize(
    "note", ['{"read":"\\ud800"}', '{"read":1,"read":"x"}', '{"read":{}}', "{"]
)
def test_object_whose_note_cannot_be_read_is_of_no_class_but_that_of_the_note(note: str) -> None:
    """OPA may read it, and would decide for all that have no note."""
    classify = classifier([("metadata", "annotations", "read")])
    assert classify is not None

    def kind(**annotations: str) -> bytes:
        return classify(json.dumps({"metadata": {"annotations": annotations}}).encode())

    noted = kind(read="1", **{REQUESTED: note})
    assert noted not in (kind(read="1"), kind(), kind(read="1", **{REQUESTED: note + " "}))
    assert noted == kind(read="1", other="2", **{REQUESTED: note})
    assert noted != kind(read="2", **{REQUESTED: note})
