from __future__ import annotations

from typing import Any

import pytest

from kube_sync.opa.analysis.moving import Ground, Trouble, leads_to, move

GROUND = Ground(
    frozenset({("lib",), ("io", "k8s", "one")}), frozenset({("kubernetes",), ("lib", "held")})
)


@pytest.mark.parametrize(
    ("path", "moves"),
    [
        ("lib", None),  # data lies below it
        ("lib.rule", True),
        ("lib.held", None),
        ("lib.held.x", None),
        ("library", False),
        ("io.k8s.one", True),
        ("io.k8s.one.deny", True),
        ("io.k8s", None),
        ("io.k8s.two", False),
        ("kubernetes", False),
        ("kubernetes.things.a", False),
        ("other", False),
    ],
)
def test_what_leads_into_a_package_alone_moves(path: str, *, moves: bool | None) -> None:
    assert GROUND.moves(tuple(path.split("."))) is moves


def test_all_of_the_data_is_more_than_one_package() -> None:
    assert GROUND.moves(()) is None


def _term(kind: str, value: Any, row: int = 1, col: int = 1) -> Any:
    return {"type": kind, "value": value, "location": {"row": row, "col": col}}


def _tree(*rules: Any, name: str = "lib") -> Any:
    path = [_term("var", "data", 1, 9), _term("string", name, 1, 9)]
    return {"package": {"path": path}, "rules": list(rules)}


def _ref(row: int, col: int) -> Any:
    return _term("ref", [_term("var", "data", row, col), _term("string", "lib"), _term("var", "x")])


SOURCE = "package lib\nx := data.lib.y\n"


@pytest.mark.parametrize(
    ("row", "col"), [(2, 5), (3, 6), (4, 1), (0, 6), (-1, 6), (2, 0), (2, 99), (1, 6)]
)
def test_place_that_does_not_say_what_the_tree_says_moves_nothing(row: int, col: int) -> None:
    ground = Ground(frozenset({("lib",)}))
    assert move(SOURCE, _tree(_ref(2, 6)), ground, ("p", "q")).source == (
        "package p.q.lib\nx := data.p.q.lib.y\n"
    )
    moved = move(SOURCE, _tree(_ref(row, col)), ground, ("p", "q"))
    assert moved.source == ""
    assert moved.troubles == (Trouble(row, "'data' is not where it was"),)


def test_package_that_is_not_where_it_was_moves_nothing() -> None:
    moved = move(SOURCE, _tree(name="other"), Ground(frozenset()), ("p",))
    assert moved.troubles == (Trouble(1, "'other' is not where it was"),)


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"package": {"path": []}},
        {"package": {"path": [1, {"value": 2}]}},
        _tree({"type": "ref", "value": None}),
        _tree({"type": "ref", "value": []}),
        _tree({"type": "ref", "value": [{"type": "var", "value": "data"}]}),
        _tree({"type": "var"}),
        None,
    ],
)
def test_tree_that_cannot_be_read_moves_nothing(tree: Any) -> None:
    (trouble,) = move(SOURCE, tree, GROUND, ("p",)).troubles
    assert trouble.message.startswith("its syntax tree cannot be read")


def test_tree_that_cannot_be_read_may_lead_anywhere() -> None:
    tree = _tree({"type": "ref", "value": None})
    (trouble,) = leads_to(tree, GROUND)
    assert trouble.message.startswith("its syntax tree cannot be read")


def test_the_name_of_all_data_alone_leads_to_all_of_it() -> None:
    (trouble,) = leads_to(_tree(_term("var", "data", 3), _term("var", "x")), GROUND)
    assert trouble == Trouble(3, "data may lead to what is staged, from what is not")
