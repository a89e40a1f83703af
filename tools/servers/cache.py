"""The user's cache folder, and the lock that lets one process at a time fill an entry of it.

Keeps true: an entry is whole or absent (written aside, then renamed), and its name has the version,
so a new pin never meets an old file. The lock ends with the process that holds it, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.servers.console import say


def cache_dir(*parts: str) -> Path:
    """Return a folder below `${XDG_CACHE_HOME:-~/.cache}/kube-sync`, made when missing."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base, "kube-sync", *parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock of one cache entry; say so where another process has it first."""
    with (cache_dir("locks") / f"{name}.lock").open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that prepares {name} …")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """Lend a path beside the target that becomes the target when the block succeeds."""
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield aside
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
