from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.config import Resource
from kube_sync.replicator.projection import Path, configured, keeping, project

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
_NUMBER = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), _NUMBER, _TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXT, inner, max_size=3)),
    max_leaves=12,
)
_ANNOTATIONS = st.one_of(
    st.none(),
    st.dictionaries(st.one_of(_TEXT, st.just(LAST_APPLIED)), _TEXT, max_size=4),
)
_METADATA = st.fixed_dictionaries(
    {"name": _TEXT},
    optional={
        "managedFields": _JSON,
        "annotations": _ANNOTATIONS,
        "labels": _JSON,
        "namespace": _TEXT,
        "uid": _TEXT,
    },
)
_OBJECT = st.builds(
    lambda rest, known: {**rest, **known},
    st.dictionaries(_TEXT, _JSON, max_size=4),
    st.fixed_dictionaries(
        {"metadata": _METADATA},
        optional={"kind": st.sampled_from(["ReplicaSet", "Secret", "secret"]), "data": _JSON},
    ),
)


def expected(found: dict[str, Any]) -> dict[str, Any]:
    """Say the same as `project`, on decoded JSON."""
    found = copy.deepcopy(found)
    found["metadata"].pop("managedFields", None)
    (found["metadata"].get("annotations") or {}).pop(LAST_APPLIED, None)
    if found.get("kind") == "Secret":
        found.pop("data", None)
        found.pop("stringData", None)
    return found


@given(_OBJECT, st.booleans())
def test_everything_but_the_bookkeeping_is_unchanged(
    found: dict[str, Any],
    ascii_only: bool,  # noqa: FBT001 - Hypothesis gives it
) -> None:
    body = json.dumps(found, ensure_ascii=ascii_only).encode()
    assert json.loads(project(body)) == expected(found)


@given(_OBJECT)
def test_projecting_twice_is_projecting_once(found: dict[str, Any]) -> None:
    once = project(json.dumps(found).encode())
    assert project(once) == once


@given(_TEXT.filter(bool), st.sampled_from([None, (",", ":")]))
def test_values_of_a_secret_never_come_through(
    value: str, separators: tuple[str, str] | None
) -> None:
    value = f"<{value}>"
    found = {
        "kind": "Secret",
        "metadata": {"name": "s", "annotations": {LAST_APPLIED: value}, "managedFields": [value]},
        "data": {"password": value},
        "stringData": {"password": value},
        "type": "Opaque",
    }
    projected = json.loads(project(json.dumps(found, separators=separators).encode()))
    assert projected == {
        "kind": "Secret",
        "metadata": {"name": "s", "annotations": {}},
        "type": "Opaque",
    }


SECRET = {
    "kind": "Secret",
    "metadata": {"name": "s", "annotations": {LAST_APPLIED: "dQ=="}, "managedFields": [1]},
    "data": {"user": "dQ=="},
    "stringData": {"token": "dQ=="},
    "type": "Opaque",
}
VALUES = {"data": {"user": "dQ=="}, "stringData": {"token": "dQ=="}}


@pytest.mark.parametrize(
    ("allowed", "fields", "values"),
    [
        (False, None, {}),
        (False, "all", {}),
        (False, "auto", {}),
        (True, "all", VALUES),
        (True, "auto", VALUES),
        (True, (("data",),), {"data": {"user": "dQ=="}}),
        (True, ("type",), {}),
    ],
)
def test_values_of_secrets_come_through_only_where_the_configuration_allows_them(
    allowed: bool,  # noqa: FBT001 - a case
    fields: Any,
    values: dict[str, Any],
) -> None:
    """Never with kubectl's annotation, which repeats them."""
    resource = Resource("", "v1", "secrets", fields=fields, secrets=allowed)
    projected = configured(resource)(json.dumps(SECRET).encode())
    assert {k: v for k, v in json.loads(projected).items() if k in VALUES} == values
    assert LAST_APPLIED not in projected.decode()
    assert "managedFields" not in projected.decode()


def test_data_of_other_kinds_comes_through() -> None:
    body = b'{"kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"b"}}'
    assert project(body) == body


def test_numbers_keep_every_digit() -> None:
    """A float in between would round what a policy compares."""
    body = b'{"metadata":{},"big":123456789012345678901234567890,"exact":1.10}'
    assert project(body) == body


def test_annotation_that_only_mentions_the_bookkeeping_stays() -> None:
    body = json.dumps({"metadata": {"annotations": {"about": LAST_APPLIED}}}).encode()
    assert json.loads(project(body)) == json.loads(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"metadata":[]}',
        b'{"metadata":{"annotations":["kubectl.kubernetes.io/last-applied-configuration"]}}',
    ],
)
def test_what_is_no_object_raises_decode_error(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        project(body)


def test_object_without_metadata_raises_key_error() -> None:
    with pytest.raises(KeyError):
        project(b"{}")


_ABSENT: Any = object()
_ALWAYS = [["apiVersion"], ["kind"]] + [["metadata", n] for n in ("name", "namespace", "uid")]


def named(found: Any, paths: list[list[str]]) -> Any:
    """Say the same as `keeping`, on decoded JSON and path by path."""
    if [] in paths:
        return found
    if isinstance(found, list):
        elements = [named(element, paths) for element in found]
        return [element for element in elements if element is not _ABSENT]
    if not isinstance(found, dict):
        return _ABSENT
    kept = {}
    for key, value in found.items():
        rest = [path[1:] for path in paths if path[0] == key]
        if rest and (part := named(value, rest)) is not _ABSENT:
            kept[key] = part
    return kept


def expected_of_named(found: dict[str, Any], paths: list[list[str]]) -> dict[str, Any]:
    kept: dict[str, Any] = named(copy.deepcopy(found), [*_ALWAYS, *paths])
    if not any(path[:2] == ["metadata", "managedFields"] for path in paths):
        kept["metadata"].pop("managedFields", None)
    wanted = any(path[:3] == ["metadata", "annotations", LAST_APPLIED] for path in paths)
    if found.get("kind") == "Secret" or not wanted:
        (kept["metadata"].get("annotations") or {}).pop(LAST_APPLIED, None)
    return kept


def paths_in(found: Any, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return every path that leads somewhere."""
    if isinstance(found, list):
        return [path for element in found for path in paths_in(element, before)]
    if not isinstance(found, dict):
        return []
    here = [(*before, key) for key in found]
    return here + [path for at in here for path in paths_in(found[at[-1]], at)]


@st.composite
def _objects_and_paths(draw: st.DrawFn) -> tuple[dict[str, Any], list[list[str]]]:
    found = draw(_OBJECT)
    there = st.sampled_from(paths_in(found))
    beyond = st.builds(lambda path, key: (*path, key), there, _TEXT)
    paths = draw(st.lists(st.one_of(there, beyond), max_size=5))
    return found, [list(path) for path in paths]


@given(_objects_and_paths(), st.sampled_from([None, 1]))
def test_named_fields_are_what_a_plain_walk_finds(
    case: tuple[dict[str, Any], list[list[str]]], indent: int | None
) -> None:
    found, paths = case
    body = json.dumps(found, indent=indent).encode()
    projected = keeping(map(tuple, paths))(body)
    assert json.loads(projected) == expected_of_named(found, paths)


@given(_objects_and_paths())
def test_keeping_named_fields_twice_is_keeping_them_once(
    case: tuple[dict[str, Any], list[list[str]]],
) -> None:
    found, paths = case
    keep = keeping(map(tuple, paths))
    once = keep(json.dumps(found).encode())
    assert keep(once) == once


def kept(found: dict[str, Any], *paths: Path) -> Any:
    return json.loads(keeping(paths)(json.dumps(found).encode()))


def test_what_names_an_object_is_always_kept() -> None:
    """A decision is bound to the uid that it was made on."""
    metadata = {"name": "a", "namespace": "n", "uid": "u", "labels": {"x": "y"}}
    found = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"a": 1}}
    assert kept(found, ("status",)) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "n", "uid": "u"},
    }


def test_path_goes_on_in_each_element_of_an_array() -> None:
    containers = [{"image": "a", "env": [1]}, {"env": [2]}, None, [{"image": "b"}]]
    found = {"metadata": {}, "spec": {"containers": containers}}
    assert kept(found, ("spec", "containers", "image"))["spec"] == {
        "containers": [{"image": "a"}, {}, [{"image": "b"}]]
    }


def test_who_keeps_an_annotation_keeps_what_was_asked_for_instead() -> None:
    """A decision on what is kept would be about what an earlier one wrote."""
    annotations = {"a": "1", "b": "2", "kube-sync.io/requested": '{"a":null}'}
    found = {"metadata": {"annotations": annotations}, "spec": {}}
    one = kept(found, ("metadata", "annotations", "a"))["metadata"]
    assert one == {"annotations": {"a": "1", "kube-sync.io/requested": '{"a":null}'}}
    assert kept(found, ("metadata", "annotations")) == {"metadata": {"annotations": annotations}}
    assert kept(found, ("metadata", "labels"), ("spec",)) == {"metadata": {}, "spec": {}}


@pytest.mark.parametrize("swap", [False, True])
def test_shorter_of_two_overlapping_paths_wins(swap: bool) -> None:  # noqa: FBT001 - a case
    paths = (("spec", "a"), ("spec", "a", "b"))
    found = {"metadata": {}, "spec": {"a": {"b": 1, "c": 2}, "d": 3}}
    assert kept(found, *(reversed(paths) if swap else paths))["spec"] == {"a": {"b": 1, "c": 2}}


def test_bookkeeping_below_a_named_field_stays_out_unless_it_is_named_itself() -> None:
    metadata = {"name": "a", "managedFields": [{}], "annotations": {LAST_APPLIED: "{}", "m": "1"}}
    found = {"metadata": metadata}
    tidy = {"name": "a", "annotations": {"m": "1"}}
    applied = ("metadata", "annotations", LAST_APPLIED)
    assert kept(found, ("metadata",))["metadata"] == tidy
    assert kept(found, ("metadata",), applied, ("metadata", "managedFields")) == found


@pytest.mark.parametrize(
    ("paths", "values"),
    [
        ([("metadata",), ("type",)], {}),
        ([("metadata",), ("metadata", "annotations", LAST_APPLIED)], {}),
        ([("data", "user")], {"data": {"user": "dQ=="}}),
        ([("stringData",)], {"stringData": {"token": "dG9rZW4="}}),
    ],
)
def test_values_of_a_secret_come_through_only_where_they_are_named(
    paths: list[Path], values: dict[str, Any]
) -> None:
    """Not with what kubectl has written about them either."""
    found = {
        "kind": "Secret",
        "metadata": {"name": "s", "annotations": {LAST_APPLIED: "dQ== dG9rZW4="}},
        "data": {"user": "dQ==", "password": "cA=="},
        "stringData": {"token": "dG9rZW4="},
        "type": "Opaque",
    }
    projected = kept(found, *paths)
    assert {k: v for k, v in projected.items() if k.endswith("ata") and k != "metadata"} == values
    assert LAST_APPLIED not in json.dumps(projected)


def test_numbers_in_named_fields_keep_every_digit() -> None:
    body = b'{"metadata":{},"spec":{"big":123456789012345678901234567890,"exact":1.10}}'
    assert keeping([("spec", "big"), ("spec", "exact")])(body) == body


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"metadata":["x"],"a":{}}'])
def test_named_fields_of_what_is_no_object_raise_decode_error(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        keeping([("a", "b")])(body)


def test_named_field_below_very_many_arrays_raises_decode_error() -> None:
    """Python's stack is no reason for the replicator to end."""
    body = b'{"metadata":{},"a":' + b"[" * 900 + b"]" * 900 + b"}"
    with pytest.raises(msgspec.DecodeError):
        keeping([("a", "b")])(body)


@pytest.mark.parametrize("body", [b"{}", b'{"metadata":7}'])
def test_named_fields_of_an_object_without_metadata_raise_key_error(body: bytes) -> None:
    with pytest.raises(KeyError):
        keeping([("a",)])(body)
