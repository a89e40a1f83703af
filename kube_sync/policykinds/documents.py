"""Kubernetes objects in files: YAML or JSON, several in one, Lists of them.

Keeps true: what is wrong with a file is said in one line with its name; nothing is skipped but
empty documents.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from kube_sync.errors import Misconfigured

_DEFAULT: Final = "default"  # the namespace of what names none
_ENDINGS: Final = frozenset({".yaml", ".yml", ".json"})

# The same in C, where PyYAML was built with it.
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """One object, and the file that it is from."""

    file: str
    object: Json

    @property
    def kind(self) -> str:
        """Its kind, empty if it says none."""
        return str(self.object.get("kind") or "")

    @property
    def api_group(self) -> str:
        """The API group that it says it is of, empty for the core group."""
        group, slash, _ = str(self.object.get("apiVersion") or "").partition("/")
        return group if slash else ""

    @property
    def metadata(self) -> Json:
        """Its metadata, empty if it has none."""
        found = self.object.get("metadata")
        return found if isinstance(found, dict) else {}

    def namespace(self, asked: str | None) -> str:
        """Return where it would be, as kubectl finds it. Raises Misconfigured."""
        own = self.metadata.get("namespace")
        if own and asked and own != asked:
            name = self.metadata.get("name", "")
            msg = f"{self.file}: {self.kind} {name} is in namespace {own}, not in {asked}"
            raise Misconfigured(msg)
        return str(own or asked or _DEFAULT)

    def name(self) -> str:
        """Return its name. Raises Misconfigured where it has none."""
        found = self.metadata.get("name")
        if not isinstance(found, str) or not found:
            msg = f"{self.file}: a {self.kind} without metadata.name"
            raise Misconfigured(msg)
        return found


def read_files(paths: Iterable[str], option: str) -> list[Document]:
    """Return the objects of files and of all files in folders. Raises Misconfigured."""
    return [found for path in paths for file in _files(path, option) for found in _read(file)]


def _files(path: str, option: str) -> list[str]:
    if path == "-" or not (folder := Path(path)).is_dir():
        return [path]
    found = sorted(
        str(file)
        for file in folder.rglob("*")
        if file.suffix in _ENDINGS and file.is_file() and not _is_hidden(file, folder)
    )
    if not found:
        msg = f"{option}: {path}: no YAML or JSON file lies in this folder"
        raise Misconfigured(msg)
    return found


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _read(file: str) -> Iterator[Document]:
    name = "standard input" if file == "-" else file
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        documents = _parsed(text)
    except OSError as error:
        msg = f"{name}: {error.strerror}"
        raise Misconfigured(msg) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        msg = f"{name}: neither YAML nor JSON: {' '.join(str(error).split())}"
        raise Misconfigured(msg) from error
    for document in documents:
        yield from _objects(name, document)


def _parsed(text: str) -> list[Any]:
    try:
        # JSON is YAML, too, but what `kubectl get` prints is long, and this a hundred times faster.
        return [msgspec.json.decode(text)]
    except (msgspec.DecodeError, UnicodeEncodeError):
        return [_json(document) for document in yaml.load_all(text, Loader=_Loader)]


def _json(value: Any) -> Any:  # noqa: ANN401 - any YAML
    """Return YAML with keys that are text, as kubectl makes them: `yes: 1` is `"true": 1`."""
    if isinstance(value, dict):
        return {_key(key): _json(below) for key, below in value.items()}
    return [_json(below) for below in value] if isinstance(value, list) else value


def _key(key: object) -> str:
    if key is None or isinstance(key, bool):
        return "null" if key is None else str(key).lower()
    return str(key)


def _objects(file: str, document: Any) -> Iterator[Document]:  # noqa: ANN401 - any JSON
    if document is None:
        return
    if not isinstance(document, dict):
        msg = f"{file}: expected Kubernetes objects, found {type(document).__name__}"
        raise Misconfigured(msg)
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        # What the API server lists says only here of which kind it is.
        kind = str(document["kind"]).removesuffix("List")
        shared = {"apiVersion": document.get("apiVersion"), "kind": kind} if kind else {}
        for item in items:
            yield from _objects(file, shared | item if isinstance(item, dict) else item)
    else:
        yield Document(file, document)
