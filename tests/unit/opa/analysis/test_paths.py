from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.opa.analysis.paths import EACH, Path, covers, minimal, project

_KEYS = st.sampled_from(["a", "b", "c"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | _KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
)
_PATHS = st.lists(st.lists(st.none() | _KEYS, max_size=3).map(tuple), max_size=4)

KEPT: dict[str, tuple[list[Path], Any, Any]] = {
    "nothing": ([], {"a": 1}, {}),
    "everything": ([()], {"a": 1}, {"a": 1}),
    "one member": ([("a",)], {"a": {"b": 1}, "c": 1}, {"a": {"b": 1}}),
    "a parent without what is read": ([("a", "b")], {"a": {"c": 1}}, {"a": {}}),
    "no parent that is absent": ([("a", "b")], {"c": 1}, {}),
    "a scalar in place of an object": ([("a", "b")], {"a": "x"}, {"a": "x"}),
    "null in place of an object": ([("a", "b")], {"a": None}, {"a": None}),
    "an array in place of an object": ([("a", "b")], {"a": [1, {"b": 2}]}, {"a": []}),
    "every element": (
        [("a", EACH, "b")],
        {"a": [{"b": 1, "c": 2}, 3, []]},
        {"a": [{"b": 1}, 3, []]},
    ),
    "every member": (
        [("a", EACH, "b")],
        {"a": {"x": {"b": 1, "c": 2}, "y": 3}},
        {"a": {"x": {"b": 1}, "y": 3}},
    ),
    "a name and every member": (
        [("a", EACH, "b"), ("a", "x", "c")],
        {"a": {"x": {"b": 1, "c": 2}, "y": {"b": 3, "c": 4}}},
        {"a": {"x": {"b": 1, "c": 2}, "y": {"b": 3}}},
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_projection_keeps_what_is_named_and_the_type_of_what_is_passed(name: str) -> None:
    paths, value, kept = KEPT[name]
    assert project(value, paths) == kept


MINIMAL: dict[str, tuple[list[Path], list[Path], set[Path]]] = {
    "a leaf that is passed is kept": ([("a", "b")], [], {("a", "b")}),
    "a parent that is passed is not": ([("a",), ("a", "b")], [], {("a", "b")}),
    "the document itself is not": ([()], [], set()),
    "the document as a whole is": ([("a",)], [()], {()}),
    "what is whole covers what lies below": ([("a", "b")], [("a",)], {("a",)}),
    "each member whole is the whole": ([("a", EACH)], [], {("a",)}),
    "a name that each covers": ([("a", EACH, "b"), ("a", "x", "b")], [], {("a", EACH, "b")}),
    "a name below which more is read": (
        [("a", EACH, "b"), ("a", "x", "b"), ("a", "x", "c")],
        [],
        {("a", EACH, "b"), ("a", "x", "b"), ("a", "x", "c")},
    ),
    "a name that each covers by each": (
        [("a", EACH, EACH, "b"), ("a", "x", "y", "b")],
        [],
        {("a", EACH, EACH, "b")},
    ),
}


@pytest.mark.parametrize("name", MINIMAL)
def test_paths_are_the_fewest(name: str) -> None:
    passed, whole, fewest = MINIMAL[name]
    assert minimal(passed, whole) == fewest


def test_path_covers_what_lies_below_it() -> None:
    assert covers((), ("a",))
    assert covers(("a", EACH), ("a", "b", "c"))
    assert not covers(("a", "b"), ("a",))
    assert not covers(("a", "b"), ("a", EACH))


@given(value=_JSON, paths=_PATHS)
def test_fewest_paths_keep_the_same(value: Any, paths: list[Path]) -> None:
    assert project(value, minimal((), paths)) == project(value, paths)


@given(value=_JSON, paths=_PATHS, more=_PATHS)
def test_projection_of_a_wider_projection_is_the_same(
    value: Any, paths: list[Path], more: list[Path]
) -> None:
    """So a projector may keep more: names, or what another decision reads."""
    assert project(project(value, [*paths, *more]), paths) == project(value, paths)
