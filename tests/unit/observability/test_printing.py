from __future__ import annotations

import json

import pytest
import yaml

from kube_sync.observability.printing import as_yaml, cut, indented, joined, plain, table

ONE = {"name": "a\n\nb", "none": None, "clusters": ["c1", "c2"]}


def test_yaml_of_a_document_says_the_same_in_the_same_order() -> None:
    text = as_yaml(indented(ONE))
    assert yaml.safe_load(text) == ONE
    assert text.startswith("name:")
    assert not text.endswith("\n")


def test_yaml_of_several_documents_has_all_of_them() -> None:
    assert [*yaml.safe_load_all(as_yaml(joined([indented(ONE), indented([])])))] == [ONE, []]
    assert json.loads(joined([indented(ONE)])) == ONE


def test_columns_are_as_wide_as_their_widest_cell_and_lines_end_with_text() -> None:
    assert table([("A", "B", "C"), ("long", "x", ""), ("", "", "c")]) == [
        "A     B  C",
        "long  x",
        "         c",
    ]


@pytest.mark.parametrize(
    ("text", "shown"), [("a\nb\tc", "a b c"), ("\x1b[2J\u202e", "�[2J�"), ("c, ü", "c, ü")]
)
def test_text_of_others_is_one_line_that_moves_no_cursor(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_what_is_kept_stays() -> None:
    assert plain("a\nb\x07", "\n") == "a\nb�"


def test_what_is_too_long_is_cut() -> None:
    assert [cut(text, 3) for text in ("abc", "abcd")] == ["abc", "ab…"]
