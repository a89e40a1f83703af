"""Reads Rego files as modules.

Invariant: each file is one module, whose id is its name as the user spelt it,
so that every message names an existing file. Tests are no policies, and neither are files
in a hidden folder (a mounted ConfigMap keeps a second copy of its files in one).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kube_sync.kube.manifests import files_of, text_of
from kube_sync.regoversion import V1, by_default


def read_sources(paths: Iterable[str], rego_version: int = V1) -> dict[str, str]:
    """Return the modules of folders and files, by file name. Raises Misconfigured, Terminal.

    `rego_version` is that of modules that state none.
    """
    files = (file for path in paths for file in _files(Path(path)))
    return {str(file): by_default(text_of(str(file)), rego_version) for file in files}


def by_folder(sources: dict[str, str]) -> dict[str, dict[str, str]]:
    """Group the modules by the folder that directly holds them."""
    folders: dict[str, dict[str, str]] = {}
    for file, source in sorted(sources.items()):
        folders.setdefault(str(Path(file).parent), {})[file] = source
    return folders


def _files(path: Path) -> list[Path]:
    return files_of(path, is_policy, "no policy (*.rego, tests left out) lies in this folder")


def is_policy(file: Path) -> bool:
    """Return whether a file is Rego, and no test."""
    return file.suffix == ".rego" and not file.name.endswith("_test.rego") and file.is_file()
