"""The code of the previous release, beside the present one: out of the history of this checkout.

The previous release is the newest tag `v…` before the present commit. While there is none it is
the commit that `previous_release.txt` names. A checkout without it is an error, since a test that
is left out says nothing about upgrades.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_PINNED = Path(__file__).with_name("previous_release.txt")
_TREES = ("kube_sync", "rego")
_HOW_TO = (
    "this checkout does not have the previous release, {release}: fetch its whole history "
    "(git fetch --unshallow --tags; for actions/checkout `fetch-depth: 0`)"
)


def previous_release(root: Path = _ROOT, pinned: Path = _PINNED) -> str:
    """Return the tag or commit of the release before the present code."""
    tags = _git(root, "tag", "--list", "v*", "--sort=-v:refname", "--merged", "HEAD^")
    if tags is not None and (found := tags.decode().split()):
        return found[0]
    lines = pinned.read_text(encoding="utf-8").splitlines()
    (commit,) = (line for line in lines if line and not line.startswith("#"))
    return commit


def export_release(
    release: str, folder: Path, root: Path = _ROOT, trees: Sequence[str] = _TREES
) -> Path:
    """Write the code of a release into a folder, and return it; fail where it is not to be had."""
    packed = _git(root, "archive", "--format=tar", release, *trees)
    if packed is None:
        pytest.fail(_HOW_TO.format(release=release))
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _git(root: Path, *arguments: str) -> bytes | None:
    """Return what git prints, None if it fails."""
    command = ["git", "-C", str(root), *arguments]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return ran.stdout if ran.returncode == 0 else None
