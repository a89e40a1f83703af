from __future__ import annotations

from typing import Any

import pytest

from kube_sync.scenarios.located import Invalid, Node, parsed, plain


def at(node: Node, *path: str | int) -> Node:
    for key in path:
        match node.value, key:
            case dict() as members, str():
                node = members[key]
            case list() as items, int():
                node = items[key]
    return node


def said(text: str) -> str:
    with pytest.raises(Invalid) as raised:
        parsed(text, "f.yaml")
    (problem,) = raised.value.problems
    return str(problem)


def test_every_value_knows_its_row_and_its_key() -> None:
    node = parsed("a:\n  b:\n    - 1\n    - c: x\n\n'd/e f': 2\n", "f.yaml")
    places = [
        (found.row, found.key)
        for found in (at(node, "a", "b", 1, "c"), at(node, "a", "b"), at(node, "d/e f"))
    ]
    assert places == [(4, "a.b[1].c"), (2, "a.b"), (6, '"d/e f"')]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a: 1, b: [true, null, 1.5, x]}", {"a": 1, "b": [True, None, 1.5, "x"]}),
        ("a: 2026-11-22", {"a": "2026-11-22"}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("x: &x {b: 1}\ny: &y {b: 2, e: 4}\nd: {<<: [*x, *y]}", {"b": 1, "e": 4}),
        ("---\na: 1\n---\n", {"a": 1}),
    ],
)
def test_yaml_is_read_as_json(text: str, value: Any) -> None:
    found = plain(parsed(text, "f.yaml"))
    assert found == value or found["d"] == value


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "f.yaml: there is nothing in it"),
        ("# nothing\n", "f.yaml: there is nothing in it"),
        ("a: 1\n---\nb: 2\n", "f.yaml:3: a second document: a file is one scenario"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "f.yaml:4: b.c: this key is here twice"),
        ("a: {yes: 1}", "f.yaml:1: a: the key yes is no text: put it into quotes"),
        ("a:\n - 1: 2", "f.yaml:2: a[0]: the key 1 is no text: put it into quotes"),
        ("a: .nan", "f.yaml:1: a: .nan is not of JSON"),
        ("a: !!binary aGk=", "f.yaml:1: a: binary is not of JSON"),
        ("a: !mine 1", "f.yaml:1: a: !mine is not of JSON"),
        (
            "a: 99999999999999999999",
            "f.yaml:1: a: 99999999999999999999 is no number that OPA reads",
        ),
        ("a: &x [*x]", "f.yaml:1: a[0]: an alias of something that it lies in"),
        ("a: {<<: 1}", "f.yaml:1: a: << merges mappings and nothing else"),
    ],
)
def test_what_json_has_not_is_said_with_its_row(text: str, line: str) -> None:
    assert said(text) == line


def test_text_that_is_no_yaml_is_said_with_its_row() -> None:
    assert said("a:\n  - b\n c: d\n").startswith("f.yaml:3: not YAML: ")
    assert said("a: \x01").startswith("f.yaml: not YAML: ")


def test_aliases_that_multiply_are_refused() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(Invalid, match="more than 500 values, aliases followed"):
        parsed("\n".join(rows), "f.yaml", 500)
    assert parsed("\n".join(rows[:2]), "f.yaml", 500).row == 1


def test_values_that_are_nested_too_deeply_are_refused() -> None:
    with pytest.raises(Invalid):
        parsed("[" * 2000 + "]" * 2000, "f.yaml")
