"""YAML as JSON, with rows: what is read, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kube_sync import yamlnodes
from kube_sync.yamlnodes import Node, NotYaml, Rules, documents, plain, single

STRICT = Rules()
KUBECTL = Rules(keys_become_text=True)
CONFIGURATION = Rules(words=True, any_number=True)


def parsed(text: str, rules: Rules = STRICT) -> Node:
    (found,) = documents(text, rules)
    return found


def json_of(text: str, rules: Rules = STRICT) -> Any:
    return plain(parsed(text, rules))


def at(node: Node, *path: str | int) -> Node:
    for key in path:
        match node.value, key:
            case dict() as members, str():
                node = members[key]
            case list() as items, int():
                node = items[key]
    return node


def said(text: str, rules: Rules = STRICT) -> str:
    with pytest.raises(NotYaml) as raised:
        single(text, rules, "scenario")
    return str(raised.value)


def test_every_value_knows_its_row_and_its_key() -> None:
    node = parsed("a:\n  b:\n    - 1\n    - c: x\n\n'd/e f': 2\n")
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
        ("a: =", {"a": "="}),
        ("'<<': 1", {"<<": 1}),
        ("a: !!str 1", {"a": "1"}),
        ("a: ! 1\nb: ! {c: ! [d]}", {"a": 1, "b": {"c": ["d"]}}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
        ("2026-11-22: 1e3", {"2026-11-22": "1e3"}),
        ("a: -0.5e+300", {"a": -0.5e300}),
        ("a: !!map {b: !!seq [1]}", {"a": {"b": [1]}}),
    ],
)
def test_yaml_is_read_as_json(text: str, value: Any) -> None:
    found = json_of(text)
    assert found == value or found["d"] == value


def test_keys_become_text_as_kubectl_makes_them_where_the_rules_say_so() -> None:
    text = "{yes: 1, null: 2, 3: {4.5: 6}}"
    assert json_of(text, KUBECTL) == {"true": 1, "null": 2, "3": {"4.5": 6}}
    assert said("{1: a, '1': b}", KUBECTL) == "1: this key is here twice (line 1)"
    assert said("{[a]: 1}", KUBECTL) == "a key is no text: put it into quotes (line 1)"


def test_configuration_has_words_in_place_of_booleans_and_any_number() -> None:
    value = json_of("[off, yes, true, .inf, 99999999999999999999]", CONFIGURATION)
    assert value == ["off", "yes", True, float("inf"), 99999999999999999999]


def test_one_document_is_found_beside_empty_ones() -> None:
    found = single("---\n---\na: 1\n---\n", STRICT, "scenario")
    assert found == Node({"a": Node(1, 3, "a")}, 3, "")
    assert single("# nothing\n", STRICT, "scenario") is None
    assert said("a: 1\n---\nb: 2\n") == "a second document: a file is one scenario (line 3)"


def test_all_documents_are_found_with_their_rows() -> None:
    found = documents("# first\na: &x 1\n---\n---\nb: 2\n", STRICT)
    assert [(node.row, plain(node)) for node in found] == [(2, {"a": 1}), (4, None), (5, {"b": 2})]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "b.c: this key is here twice (line 4)"),
        ("a: {yes: 1}", "a: the key yes is no text: put it into quotes (line 1)"),
        ("a:\n - 1: 2", "a[0]: the key 1 is no text: put it into quotes (line 2)"),
        ("a: .nan", "a: .nan is not of JSON (line 1)"),
        ("a: 1.0e+400", "a: 1.0e+400 is not of JSON (line 1)"),
        ("a: !!binary aGk=", "a: binary is not of JSON (line 1)"),
        ("a: !!set {b}", "a: set is not of JSON (line 1)"),
        ("a: !mine 1", "a: !mine is not of JSON (line 1)"),
        ("a: 99999999999999999999", "a: 99999999999999999999 is no number that OPA reads (line 1)"),
        ("a: &x [*x]", "a[0]: an alias of something that it lies in (line 1)"),
        ("a: *x", "a: an alias of nothing (line 1)"),
        ("a: &x 1\n---\na: *x", "a: an alias of nothing (line 3)"),
        ("a: !!merge x", "a: merge is not of JSON (line 1)"),
        ("a: {<<: 1}", "a: << merges mappings and nothing else (line 1)"),
        ("a: {<<: [{b: 1}, 1]}", "a: << merges mappings and nothing else (line 1)"),
        ("a: 0b_", "not YAML: invalid literal for int() with base 2: ''"),
    ],
)
def test_what_json_has_not_is_said_with_its_row(text: str, line: str) -> None:
    assert said(text) == line


def test_document_that_is_wrong_is_counted() -> None:
    for text in ("a: 1\n---\n---\na: {b: 1, b: 2}", "a: 1\n---\n---\na: ["):
        with pytest.raises(NotYaml) as raised:
            documents(text, STRICT)
        assert raised.value.document == 3


def test_text_that_is_no_yaml_is_said_with_its_row_and_not_its_content() -> None:
    text = said("a:\n  - b\n s3cret: d\n")
    assert text.startswith("not YAML: while parsing a block mapping, ")
    assert text.endswith(" (line 3, column 2)")
    assert "s3cret" not in text
    assert said("a: \x01").startswith("not YAML: ")


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    assert said('a: "\ud800"').startswith("not YAML: 'utf-8' codec can't encode")
    assert said(r'a: "\ud800"').startswith("not YAML: ")


def test_an_error_without_a_place_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise yaml.MarkedYAMLError(problem="it is wrong")

    monkeypatch.setattr(yamlnodes, "_Texts", fails)
    assert said("a") == "not YAML: it is wrong"


def test_aliases_that_multiply_are_refused_where_their_number_counts() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(NotYaml, match="more than 500 values, aliases followed"):
        parsed("\n".join(rows), Rules(most=500))
    assert parsed("\n".join(rows[:2]), Rules(most=500)).row == 1


def test_aliases_are_refused_where_the_rules_say_so() -> None:
    assert said("a: &x 1\nb: *x", Rules(aliases=False)) == "b: an alias (line 2)"


def test_aliases_share_their_value() -> None:
    rows = ["- &a0 [x]", *(f"- &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 41))]
    value = json_of("\n".join(rows))
    assert value[-1][0] is value[-1][1] is value[-2]


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 200_000, "{a: " * 10_000])
def test_values_that_are_nested_too_deeply_are_refused(text: str) -> None:
    assert said(text) == "not YAML: nested too deeply (line 1)"
    assert parsed("- " * 200 + "a").row == 1
