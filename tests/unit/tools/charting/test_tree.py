from __future__ import annotations

import pytest

from tools.charting.tree import Conflict, Either, Only, layered


def test_what_is_the_same_in_both_builds_depends_on_nothing() -> None:
    build = {"a": [1, {"name": "x"}]}
    assert layered(build, build, build, "C") is build


def test_keys_and_items_that_one_build_adds_depend_on_its_condition() -> None:
    before = {"args": ["run"], "volumes": [{"name": "a"}], "kind": "Pod"}
    after = {
        "args": ["run", "-x"],
        "volumes": [{"name": "b"}, {"name": "a"}],
        "kind": "Pod",
        "e": 1,
    }
    assert layered(before, before, after, "C") == {
        "args": ["run", Only("C", "-x")],
        "volumes": [{"name": "a"}, Only("C", {"name": "b"})],
        "kind": "Pod",
        "e": Only("C", 1),
    }


def test_values_that_differ_are_one_or_the_other() -> None:
    before = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}}
    after = {"strategy": {"type": "Recreate"}}
    assert layered(before, before, after, "C")["strategy"] == {
        "type": Either("C", "Recreate", "RollingUpdate"),
        "rollingUpdate": Only("not (C)", {}),
    }


def test_two_conditions_are_put_into_one_tree() -> None:
    before = {"containers": [{"name": "x"}, {"name": "y"}]}
    first = {"containers": [{"name": "x", "env": [1]}, {"name": "y"}]}
    second = {"containers": [{"name": "x"}, {"name": "y", "env": [2]}, {"name": "z"}]}
    tree = layered(before, before, first, "A")
    assert layered(tree, before, second, "B") == {
        "containers": [
            {"name": "x", "env": Only("A", [1])},
            {"name": "y", "env": Only("B", [2])},
            Only("B", {"name": "z"}),
        ]
    }


@pytest.mark.parametrize(
    ("before", "first", "second"),
    [
        ({"a": 1}, {"a": 2}, {"a": 3}),
        ({}, {"a": 1}, {"a": 2}),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, {"a": [1]}),
    ],
)
def test_conditions_that_change_the_same_place_are_an_error(
    before: dict[str, object], first: dict[str, object], second: dict[str, object]
) -> None:
    tree = layered(before, before, first, "A")
    with pytest.raises(Conflict, match=r"^B: "):
        layered(tree, before, second, "B")
