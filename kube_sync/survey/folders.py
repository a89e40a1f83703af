"""Which files a path on the command line means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kube_sync.errors import Misconfigured


def files_of(path: Path, wanted: Callable[[Path], bool], nothing: str) -> list[Path]:
    """Return a file itself, or the wanted files below a folder that are not hidden, in order.

    Raises Misconfigured, with `nothing` as what is wrong with a folder that holds none.
    """
    if not path.exists():
        msg = f"{path}: there is no such folder or file"
        raise Misconfigured(msg)
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if not _is_hidden(file, path) and wanted(file))
    if not found:
        msg = f"{path}: {nothing}"
        raise Misconfigured(msg)
    return found


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)
