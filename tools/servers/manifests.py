"""Manifests of files, folders and kustomizations as objects, read once for a process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from tools.servers.binaries import ensure_binary
from tools.servers.errors import ToolError

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_SECONDS = 120.0
# The one of libyaml, which takes a seventh of the time, where there is one.
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def manifests_of(path: Path) -> tuple[Any, ...]:
    """Return the objects of a file or a folder; a kustomization is built. Raises ToolError."""
    if (path / "kustomization.yaml").exists():
        return _kustomized(path.resolve())
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return tuple(
        one
        for file in files
        if file.suffix in _SUFFIXES
        for one in _objects(file.resolve(), file.stat().st_mtime_ns)
    )


def kustomize(folder: Path) -> str:
    """Build a kustomization with the pinned kustomize. Raises ToolError with what it says."""
    command = [str(ensure_binary("kustomize")), "build", str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if answer.returncode != 0:
        msg = f"kustomize build {folder}: {answer.stderr.strip()}"
        raise ToolError(msg)
    return answer.stdout


def documents_of(text: str) -> Iterator[Any]:
    """Yield the objects of YAML or JSON, those of Lists one by one."""
    for document in yaml.load_all(text, Loader=_Loader):
        if document and document["kind"] == "List":
            yield from document["items"]
        elif document:
            yield document


@lru_cache
def _kustomized(folder: Path) -> tuple[Any, ...]:
    return tuple(documents_of(kustomize(folder)))


@lru_cache
def _objects(file: Path, _changed: int) -> tuple[Any, ...]:
    return tuple(documents_of(file.read_text(encoding="utf-8")))
