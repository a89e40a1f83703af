from __future__ import annotations

import os
from pathlib import Path

import pytest

from kube_sync.errors import Misconfigured
from kube_sync.runtime.tokenfile import TokenFile


def test_no_file_means_no_token() -> None:
    assert TokenFile(None).current() is None
    assert TokenFile(None).headers() == {}


def test_white_space_around_the_token_is_not_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" secret\n")
    assert TokenFile(str(tmp_path / "token")).headers() == {"Authorization": "Bearer secret"}


def test_a_rewritten_file_gives_the_new_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    os.utime(file, ns=(0, 1))
    token = TokenFile(str(file))
    assert token.current() == "old"
    file.write_text("new")
    os.utime(file, ns=(0, 2))
    assert token.current() == "new"


def test_a_swapped_symbolic_link_gives_the_new_token_within_the_same_clock_tick(
    tmp_path: Path,
) -> None:
    """Kubernetes rotates mounted Secrets by renaming a symbolic link over the old one."""
    for name in ("old", "new"):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, ns=(0, 1))
    (tmp_path / "token").symlink_to("old")
    token = TokenFile(str(tmp_path / "token"))
    assert token.current() == "old"
    (tmp_path / "next").symlink_to("new")
    (tmp_path / "next").rename(tmp_path / "token")
    assert token.current() == "new"


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    """It is asked for with every request."""
    file = tmp_path / "token"
    file.write_text("secret")
    os.utime(file, ns=(0, 1))
    token = TokenFile(str(file))
    token.current()
    file.write_text("unseen")
    os.utime(file, ns=(0, 1))
    assert token.current() == "secret"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"^token file .*/gone: No such file"):
        TokenFile(str(tmp_path / "gone")).current()


def test_a_file_that_goes_later_is_named_and_its_token_is_not_used_any_more(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    token = TokenFile(str(file))
    token.current()
    file.unlink()
    with pytest.raises(Misconfigured, match="No such file"):
        token.headers()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\n", "empty"),
        (b"\xff", "not text"),
        (b"two words", "more than one word"),
        (b"one\ntwo words", "more than one word"),
    ],
)
def test_a_file_without_a_usable_token_says_why(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    """A line break would end the header, and the request would fail far from its cause."""
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(Misconfigured, match=f"^token file .*/token: {reason}"):
        TokenFile(str(tmp_path / "token")).current()


def test_of_more_tokens_the_first_is_shown_and_any_is_taken(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("new\n\n old \n")
    token = TokenFile(str(tmp_path / "token"))
    assert token.headers() == {"Authorization": "Bearer new"}
    assert [token.accepts(f"Bearer {word}") for word in ("new", "old")] == [True, True]
    wrong = ("", "new", "Bearer ", "Bearer other", "bearer new", "Bearer new\n", "Bearer \udcff")
    assert [header for header in wrong if token.accepts(header)] == []


def test_without_a_file_anybody_is_let_in() -> None:
    assert TokenFile(None).accepts("")


def test_token_of_a_file_that_is_gone_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    token = TokenFile(str(tmp_path / "token"))
    assert token.accepts("Bearer secret")
    (tmp_path / "token").unlink()
    with pytest.raises(Misconfigured, match="No such file"):
        token.accepts("Bearer secret")
