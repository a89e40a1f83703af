from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.earlier import export_release, previous_release


def _git(root: Path, *arguments: str) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    command = ["git", "-C", str(root), *who, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of two commits, whose code says which one it is of."""
    root = tmp_path / "checkout"
    root.mkdir()
    _git(root, "init", "--quiet")
    for release in ("first", "second"):
        for tree in ("kube_sync", "rego"):
            (root / tree).mkdir(exist_ok=True)
            (root / tree / "release").write_text(release, encoding="utf-8")
        _git(root, "add", ".")
        _git(root, "commit", "--quiet", "--no-verify", "--message", release)
    return root


@pytest.fixture
def pinned(tmp_path: Path) -> Path:
    file = tmp_path / "previous_release.txt"
    file.write_text("# Which one.\nfeed\n", encoding="utf-8")
    return file


def test_previous_release_is_the_newest_tag_before_the_present_commit(
    checkout: Path, pinned: Path
) -> None:
    _git(checkout, "tag", "v0.9.0", "HEAD^")
    _git(checkout, "tag", "v0.10.0", "HEAD^")
    _git(checkout, "tag", "v0.11.0", "HEAD")
    assert previous_release(checkout, pinned) == "v0.10.0"


def test_previous_release_is_the_pinned_commit_while_there_is_no_tag(
    checkout: Path, pinned: Path
) -> None:
    _git(checkout, "tag", "v0.11.0", "HEAD")
    assert previous_release(checkout, pinned) == "feed"


def test_code_of_a_release_is_that_of_its_commit(checkout: Path, tmp_path: Path) -> None:
    code = export_release("HEAD^", tmp_path / "code", checkout)
    assert (code / "kube_sync/release").read_text(encoding="utf-8") == "first"
    assert (code / "rego/release").read_text(encoding="utf-8") == "first"


def test_checkout_without_the_release_fails_and_says_what_to_fetch(
    checkout: Path, tmp_path: Path
) -> None:
    with pytest.raises(pytest.fail.Exception, match="git fetch --unshallow --tags"):
        export_release("feed" * 10, tmp_path / "code", checkout)
