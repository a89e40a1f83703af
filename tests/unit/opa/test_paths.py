from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.opa import paths
from tests.fakes.opa import parse_pointer

# Whatever people call things, and more of what has a meaning in a path.
_PART = st.text(st.one_of(st.sampled_from("/~%01. +ü"), st.characters(codec="utf-8")), min_size=1)
_PATH = st.lists(_PART, min_size=1, max_size=4).map(tuple)


@given(_PATH)
def test_pointer_read_as_opa_reads_it_is_the_path_again(path: tuple[str, ...]) -> None:
    """OPA splits, decodes %XX, then undoes RFC 6901; another order mixes objects up."""
    assert parse_pointer(paths.pointer(path)) == path


@given(_PATH)
def test_url_split_and_decoded_is_the_path_again(path: tuple[str, ...]) -> None:
    assert tuple(unquote(part) for part in paths.url(path).split("/")[1:]) == path


@given(_PATH, _PATH)
def test_different_paths_have_different_spellings(
    one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    assert (paths.pointer(one) == paths.pointer(other)) == (one == other)
    assert (paths.url(one) == paths.url(other)) == (one == other)


@pytest.mark.parametrize(
    ("part", "spelt"),
    [("a/b", "/a~1b"), ("~", "/~0"), ("~1", "/~01"), ("50%", "/50%25"), ("%2F", "/%252F")],
)
def test_pointer_escapes_what_has_a_meaning(part: str, spelt: str) -> None:
    assert paths.pointer((part,)) == spelt


def test_empty_path_is_the_root() -> None:
    assert paths.pointer(()) == ""
    assert paths.url(()) == ""
