from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_sync.replicator.projection import project

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
    optional={"managedFields": _JSON, "annotations": _ANNOTATIONS, "labels": _JSON},
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


@settings(deadline=None)
@given(_OBJECT, st.booleans())
def test_everything_but_the_bookkeeping_is_unchanged(
    found: dict[str, Any],
    ascii_only: bool,  # noqa: FBT001 - Hypothesis gives it
) -> None:
    body = json.dumps(found, ensure_ascii=ascii_only).encode()
    assert json.loads(project(body)) == expected(found)


@settings(deadline=None)
@given(_OBJECT)
def test_projecting_twice_is_projecting_once(found: dict[str, Any]) -> None:
    once = project(json.dumps(found).encode())
    assert project(once) == once


@settings(deadline=None)
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
