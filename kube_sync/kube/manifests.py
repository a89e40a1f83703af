"""Read Kubernetes objects from files: YAML or JSON, several in a file, Lists of them.

Invariant: an error names the file, and the document and its line if the file has several; only
empty documents are skipped. A duplicate key in a mapping is an error, also in JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON, Misconfigured, Terminal
from kube_sync.yamlnodes import NotYaml, Rules, documents, plain

_DEFAULT: Final = "default"  # the namespace of an object that sets none
_ENDINGS: Final = frozenset({".yaml", ".yml", ".json"})
_NOTHING: Final = "no YAML or JSON file lies in this folder"
_RULES: Final = Rules(keys_become_text=True)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """One object, and the file it was read from."""

    file: str
    object: Json
    place: str = ""  # position in the file: document, item of a List; empty if it is alone

    @property
    def where(self) -> str:
        """The file and the position in it: `policies.yaml, document 2 (line 14)`."""
        return f"{self.file}, {self.place}" if self.place else self.file

    @property
    def kind(self) -> str:
        """Its kind, empty if it has none."""
        return str(self.object.get("kind") or "")

    @property
    def api_group(self) -> str:
        """The API group in its apiVersion, empty for the core group."""
        group, slash, _ = str(self.object.get("apiVersion") or "").partition("/")
        return group if slash else ""

    @property
    def metadata(self) -> Json:
        """Its metadata, empty if it has none."""
        found = self.object.get("metadata")
        return found if isinstance(found, dict) else {}

    def namespace(self, requested: str | None) -> str:
        """Return its namespace, by kubectl's rules. Raises Misconfigured."""
        own = self.metadata.get("namespace")
        if own and requested and own != requested:
            name = self.metadata.get("name", "")
            msg = f"{self.where}: {self.kind} {name} is in namespace {own}, not in {requested}"
            raise Misconfigured(msg)
        return str(own or requested or _DEFAULT)

    def name(self) -> str:
        """Return its name. Raises Misconfigured if it has none."""
        found = self.metadata.get("name")
        if not isinstance(found, str) or not found:
            msg = f"{self.where}: a {self.kind} without metadata.name"
            raise Misconfigured(msg)
        return found


def is_manifest(file: Path) -> bool:
    """Return whether a file may contain objects, by its suffix."""
    return file.suffix in _ENDINGS


def read_files(
    paths: Iterable[str],
    *,
    objects_only: bool = True,
    wanted: Callable[[Path], bool] = is_manifest,
) -> list[Document]:
    """Return the objects of files, of the wanted files in folders, and of standard input for "-".

    Without `objects_only`, a list becomes a document with the list as `items`, and other values
    that are no mapping are skipped; otherwise both are errors. Raises Misconfigured, Terminal.
    """
    found = [one for path in paths for file in _files(path, wanted) for one in _read(file)]
    return [one for document in found for one in _objects(document, objects_only=objects_only)]


def files_of(path: Path, wanted: Callable[[Path], bool], nothing: str) -> list[Path]:
    """Return a file itself, or the wanted files below a folder that are not hidden, in order.

    Raises Misconfigured, with `nothing` as the message for a folder without any, and for a name
    that is no text, which OPA and reports could not have.
    """
    if not path.exists():
        msg = f"{path}: there is no such folder or file"
        raise Misconfigured(msg)
    found = [path]
    if path.is_dir():
        below = (file for file in path.rglob("*") if not _is_hidden(file, path))
        found = sorted(filter(wanted, below))
    if not found:
        msg = f"{path}: {nothing}"
        raise Misconfigured(msg)
    for file in found:
        try:
            str(file).encode()
        except UnicodeEncodeError as error:
            msg = f"{file}: its name is not UTF-8"
            raise Misconfigured(msg) from error
    return found


def text_of(file: str) -> str:
    """Return the text of a file, or of standard input for "-". Raises Terminal, naming it."""
    try:
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode()
    except OSError as error:
        msg = f"{file}: {error.strerror}"
        raise Terminal(msg) from error
    except UnicodeDecodeError as error:
        msg = f"{_called(file)}: not UTF-8 at byte {error.start}"
        raise Terminal(msg) from error


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _files(path: str, wanted: Callable[[Path], bool]) -> list[str]:
    return [path] if path == "-" else [str(f) for f in files_of(Path(path), wanted, _NOTHING)]


def _called(file: str) -> str:
    return "standard input" if file == "-" else file


def _read(file: str) -> list[Document]:
    """Return the documents of a file, of whatever type."""
    name, text = _called(file), text_of(file)
    try:
        found = _parsed(text)
    except NotYaml as error:
        where = f"{name}, document {error.document}" if error.document > 1 else name
        msg = f"{where}: {error}"
        raise Terminal(msg) from error
    if len(found) == 1:
        return [Document(name, found[0][1])]
    numbered = enumerate(found, 1)
    return [Document(name, value, f"document {n} (line {row})") for n, (row, value) in numbered]


def _parsed(text: str) -> list[tuple[int, Any]]:
    """Return the documents of a text, each with its first line number. Raises NotYaml."""
    try:
        # JSON is YAML too, but `kubectl get` output is long, and this is many times faster.
        msgspec.json.decode(text)  # rejects NaN and half surrogate pairs, which json accepts
        return [(1, json.loads(text, object_pairs_hook=_once))]
    except (*NO_JSON, ValueError):
        return [(node.row, plain(node)) for node in documents(text, _RULES)]


def _once(members: list[tuple[str, Any]]) -> Json:
    """Return a JSON object. Raises ValueError for a duplicate key."""
    found = dict(members)
    if len(found) < len(members):
        raise ValueError
    return found


def _objects(document: Document, *, objects_only: bool) -> Iterator[Document]:
    value: Any = document.object
    if value is None:
        return
    if not isinstance(value, dict):
        if objects_only:
            what = f"expected Kubernetes objects, found {type(value).__name__}"
            msg = f"{document.where}: {what}"
            raise Terminal(msg)
        if isinstance(value, list):
            yield Document(document.file, {"items": value}, document.place)
        return
    items = value.get("items")
    if document.kind.endswith("List") and isinstance(items, list):
        # The items of a List omit their kind; only the List states it.
        kind = document.kind.removesuffix("List")
        shared = {"apiVersion": value.get("apiVersion"), "kind": kind} if kind else {}
        for number, item in enumerate(items, 1):
            place = ", ".join(filter(None, (document.place, f"item {number}")))
            whole = shared | item if isinstance(item, dict) else item
            below = Document(document.file, whole, place)
            yield from _objects(below, objects_only=objects_only)
    else:
        yield document
