"""Files of Rego, as the modules that they hold.

Keeps true: each file is one module, whose id is its name as the person who asked would write it,
so that every message names a file that is there. Tests are no policies, and neither is what lies
in a hidden folder (a mounted ConfigMap keeps a second copy of its files in one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from kube_sync.errors import Misconfigured, Terminal
from kube_sync.policykinds.documents import files_below
from kube_sync.regoversion import V1, by_default


def read_sources(paths: Iterable[str], rego_version: int = V1) -> dict[str, str]:
    """Return the modules of folders and files, by file name. Raises Misconfigured, Terminal.

    `rego_version` is that of modules that state none.
    """
    files = (file for path in paths for file in _files(Path(path)))
    return {str(file): by_default(_text(file), rego_version) for file in files}


def files_of(path: Path, wanted: Callable[[Path], bool], nothing: str) -> list[Path]:
    """Return a file itself, or the wanted files below a folder that are not hidden, in order.

    Raises Misconfigured, with `nothing` as what is wrong with a folder that holds none.
    """
    if not path.exists():
        msg = f"{path}: there is no such folder or file"
        raise Misconfigured(msg)
    if not path.is_dir():
        return [path]
    found = files_below(path, wanted)
    if not found:
        msg = f"{path}: {nothing}"
        raise Misconfigured(msg)
    return found


def by_folder(sources: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return the modules of each folder that holds some itself."""
    folders: dict[str, dict[str, str]] = {}
    for file, source in sorted(sources.items()):
        folders.setdefault(str(Path(file).parent), {})[file] = source
    return folders


def _files(path: Path) -> list[Path]:
    return files_of(path, is_policy, "no policy (*.rego, tests left out) lies in this folder")


def is_policy(file: Path) -> bool:
    """Tell whether a file is of Rego, and no test."""
    return file.suffix == ".rego" and not file.name.endswith("_test.rego") and file.is_file()


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        msg = f"{file}: {error.strerror}"
        raise Terminal(msg) from error
    except UnicodeDecodeError as error:
        msg = f"{file}: not UTF-8 at byte {error.start}"
        raise Terminal(msg) from error
