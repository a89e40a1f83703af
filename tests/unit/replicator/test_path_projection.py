from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kube_sync.objects import SECRET_VALUES
from kube_sync.opa.analysis import paths
from kube_sync.opa.analysis.paths import EACH, Path
from kube_sync.policies.required_fields import Form
from kube_sync.replicator.path_projection import narrowing
from kube_sync.replicator.projection import keeps_version
from kube_sync.replicator.projection import project as whole
from tests.parts import examples

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
NAMES = {"apiVersion": "v1", "kind": "Thing"}
NAMED = {**NAMES, "metadata": {"name": "a", "namespace": "n", "uid": "u"}}

_KEYS = st.sampled_from(["a", "b", "spec", "name", "labels", "annotations", 'o"d', "ü"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | _KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
)
_METADATA = st.dictionaries(_KEYS, _JSON, max_size=4)
_OBJECT = st.builds(
    lambda rest, metadata: {**NAMES, **rest, "metadata": metadata},
    st.dictionaries(_KEYS, _JSON, max_size=4),
    _METADATA,
)
_TAIL = st.lists(st.none() | _KEYS, max_size=4).map(tuple)
_PATHS = st.lists(_TAIL | _TAIL.map(lambda tail: ("metadata", *tail)), max_size=4)


def narrowed(found: Any, *wanted: Path) -> Any:
    return json.loads(narrowing(wanted)(json.dumps(found).encode()))


@settings(max_examples=examples(200))
@given(found=_OBJECT, wanted=_PATHS)
@example(found={**NAMED, "spec": {"a": {"b": 1}, "b": 2}}, wanted=[("spec", EACH, "b")])
@example(found={**NAMED, "a": {"b": {"a": 1, "b": 2}}}, wanted=[("a", EACH, "a"), ("a", "b", "b")])
def test_what_the_paths_keep_is_what_they_keep_of_the_whole(
    found: dict[str, Any], wanted: list[Path]
) -> None:
    kept = narrowed(found, *wanted)
    assert paths.project(kept, wanted) == paths.project(found, wanted)
    for name in ("apiVersion", "kind"):
        assert kept[name] == found[name]
    assert kept["metadata"].get("name") == found["metadata"].get("name")


@settings(max_examples=examples(200))
@given(found=_OBJECT, wanted=_PATHS)
def test_narrowing_again_changes_nothing(found: dict[str, Any], wanted: list[Path]) -> None:
    project = narrowing(wanted)
    once = project(json.dumps(found).encode())
    assert project(once) == once


KEPT: dict[str, tuple[list[Path], Any, Any]] = {
    "nothing": ([], {"spec": 1}, {}),
    "a leaf": ([("spec", "a")], {"spec": {"a": 1, "b": 2}}, {"spec": {"a": 1}}),
    "a parent without what is read": ([("spec", "a")], {"spec": {"b": 2}}, {"spec": {}}),
    "no parent that is absent": ([("spec", "a")], {"status": 2}, {}),
    "null in place of an object": ([("spec", "a")], {"spec": None}, {"spec": None}),
    "a scalar in place of an object": ([("spec", "a")], {"spec": 3}, {"spec": 3}),
    "an array in place of an object": ([("spec", "a")], {"spec": [1]}, {"spec": []}),
    "every element": (
        [("spec", EACH, "a")],
        {"spec": [{"a": 1, "b": 2}, None, {"b": 3}]},
        {"spec": [{"a": 1}, None, {}]},
    ),
    "elements of all types": (
        [("spec", EACH, "a")],
        {"spec": [{"a": 1, "b": 2}, 3, [], "x"]},
        {"spec": [{"a": 1}, 3, [], "x"]},
    ),
    "every member": (
        [("spec", EACH, "a")],
        {"spec": {"x": {"a": 1, "b": 2}, "y": {}}},
        {"spec": {"x": {"a": 1}, "y": {}}},
    ),
    "a key that no field can be called": (
        [("spec", "o\\d", "a")],
        {"spec": {"o\\d": 1, "b": 2}},
        {"spec": {"o\\d": 1, "b": 2}},
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_only_what_is_read_and_what_names_the_object_is_kept(name: str) -> None:
    wanted, found, kept = KEPT[name]
    assert narrowed({**NAMED, **found}, *wanted) == {**NAMED, **kept}


def test_bytes_of_what_is_kept_are_those_that_came() -> None:
    body = (
        '{"apiVersion":"v1","kind":"Thing","metadata":{"name":"\\u0061","resourceVersion":"7"},'
        '"spec":{"big":123456789012345678901234567890,"exact":1.10,"twice":{"a":1,"a":2},'
        '"text":"\\u00fc ü \\/"},"spec":{"big":1.0e2}}'
    )
    assert narrowing([("spec", "big")])(body.encode()) == (
        b'{"apiVersion":"v1","kind":"Thing","metadata":{"name":"\\u0061"},"spec":{"big":1.0e2}}'
    )
    once = body.replace(',"spec":{"big":1.0e2}', "")
    for name, kept in (
        ("big", "123456789012345678901234567890"),
        ("exact", "1.10"),
        ("twice", '{"a":1,"a":2}'),
        ("text", '"\\u00fc ü \\/"'),
    ):
        assert f'"spec":{{"{name}":{kept}}}'.encode() in narrowing([("spec", name)])(once.encode())


BOOKKEEPING = {
    **NAMES,
    "metadata": {
        "name": "a",
        "managedFields": [1],
        "annotations": {LAST_APPLIED: "x", "b": "y"},
        "resourceVersion": "7",
    },
}


@pytest.mark.parametrize(
    "path",
    [
        (),
        (EACH, "a"),
        ("metadata",),
        ("metadata", EACH),
        ("metadata", "managedFields"),
        ("metadata", "annotations"),
        ("metadata", "annotations", EACH),
        ("metadata", "annotations", EACH, "x"),
    ],
)
def test_bookkeeping_stays_out_whatever_is_kept_whole(path: Path) -> None:
    metadata = narrowed(BOOKKEEPING, path)["metadata"]
    assert "managedFields" not in metadata
    assert metadata.get("annotations", {"b": "y"}) == {"b": "y"}


def test_annotation_of_kubectl_is_kept_where_it_is_named() -> None:
    path = ("metadata", "annotations", LAST_APPLIED)
    assert narrowed(BOOKKEEPING, path)["metadata"]["annotations"] == {LAST_APPLIED: "x"}
    secret = {**BOOKKEEPING, "kind": "Secret"}
    assert narrowed(secret, path)["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        ([], ()),
        ([()], ("type",)),
        ([(EACH, "a")], ("type",)),
        ([(), ("metadata", "annotations", LAST_APPLIED)], ("type",)),
        ([("data", "a")], ("data",)),
        ([("data",)], ("data",)),
        ([(), ("data",)], ("data", "stringData", "type")),
    ],
)
def test_values_of_a_secret_come_through_only_where_a_path_names_them(
    wanted: list[Path], kept: tuple[str, ...]
) -> None:
    secret = {**NAMED, "kind": "Secret", "data": {"a": "s"}, "stringData": {"a": "s"}, "type": "x"}
    assert tuple(sorted(narrowed(secret, *wanted).keys() - NAMED.keys())) == kept


@pytest.mark.parametrize("wanted", [(), (EACH, "a"), ("metadata",), ("data", "a")])
def test_values_that_are_allowed_come_through_with_all_of_a_secret(wanted: Path) -> None:
    annotations = {LAST_APPLIED: "s", "b": "y"}
    metadata = {"name": "a", "annotations": annotations}
    secret = {**NAMED, "metadata": metadata, "kind": "Secret", "data": {"a": "s", "b": "t"}}
    kept = json.loads(narrowing([wanted], values=True)(json.dumps(secret).encode()))
    whole = wanted in ((), (EACH, "a"))
    only = {"a": "s"} if wanted == ("data", "a") else None
    assert kept.get("data") == (secret["data"] if whole else only)
    assert LAST_APPLIED not in json.dumps(kept)


_INSIDE = st.lists(st.none() | st.sampled_from(["data", "a"]), max_size=3).map(tuple)
_OF_SECRETS = st.lists(
    _INSIDE | st.sampled_from([("stringData",), ("metadata", "annotations", LAST_APPLIED)]),
    max_size=4,
)


@settings(max_examples=examples(200))
@given(wanted=_OF_SECRETS)
@example(wanted=[(EACH, EACH), ("data", "a")])
def test_whatever_is_read_of_secrets_no_value_is_left_where_none_is_allowed(
    wanted: list[Path],
) -> None:
    value = "dG9wIHNlY3JldA=="
    metadata = {"name": "a", "annotations": {LAST_APPLIED: value, "a": "b"}}
    secret = {**NAMED, "kind": "Secret", "data": {"a": value}, "stringData": {"a": value}}
    form = Form(tuple(wanted), namespaced=True).without(SECRET_VALUES)
    kept = narrowing(form.paths)(json.dumps({**secret, "metadata": metadata}).encode())
    assert value not in kept.decode()


def test_version_is_kept_only_where_it_is_read() -> None:
    assert not keeps_version(narrowing([("spec",)]))
    assert keeps_version(narrowing([("metadata",)]))
    assert keeps_version(narrowing([("metadata", "resourceVersion")]))


def test_everything_is_what_is_replicated_without_a_word_about_fields() -> None:
    assert narrowing([()]) is whole


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b'{"a":', b'{"metadata":{"annotations":' + b"[" * 9999]
)
@pytest.mark.parametrize("path", [("spec", "a"), ("metadata", "annotations"), ("metadata",)])
def test_what_is_no_object_is_refused(body: bytes, path: Path) -> None:
    with pytest.raises(msgspec.DecodeError):
        narrowing([path])(body)


def test_arrays_without_end_are_refused() -> None:
    deep = b'{"metadata":{},"a":' + b'{"x":1,"l":' * 5000 + b"1" + b"}" * 5001
    path = ("a", *("l",) * 300, "x")
    assert narrowing([path])(b'{"metadata":{},"a":1}') == b'{"metadata":{},"a":1}'
    with pytest.raises(msgspec.DecodeError):
        narrowing([path])(deep)
