"""Kubernetes objects in files: YAML or JSON, several in one, Lists of them.

Keeps true: an error names the file, and the document where a file has several; nothing is skipped
but empty documents.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
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
    place: str = ""  # in the file: which document, which item of a List; empty where it is alone

    @property
    def where(self) -> str:
        """The file, and the place in it: `policies.yaml, document 2 (line 14)`."""
        return f"{self.file}, {self.place}" if self.place else self.file

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
            msg = f"{self.where}: {self.kind} {name} is in namespace {own}, not in {asked}"
            raise Misconfigured(msg)
        return str(own or asked or _DEFAULT)

    def name(self) -> str:
        """Return its name. Raises Misconfigured where it has none."""
        found = self.metadata.get("name")
        if not isinstance(found, str) or not found:
            msg = f"{self.where}: a {self.kind} without metadata.name"
            raise Misconfigured(msg)
        return found


def read_files(paths: Iterable[str], option: str, *, objects_only: bool = True) -> list[Document]:
    """Return the objects of files and of all files in folders. Raises Misconfigured.

    Without `objects_only`, a list is a document whose object has it as `items`, and other values
    that are no mapping are skipped; otherwise both are errors.
    """
    found = [one for path in paths for file in _files(path, option) for one in _read(file)]
    return [one for part in found for one in _objects(part, objects_only=objects_only)]


def _files(path: str, option: str) -> list[str]:
    if path == "-" or not (folder := Path(path)).is_dir():
        return [path]
    found = files_below(folder, lambda file: file.suffix in _ENDINGS and file.is_file())
    if not found:
        msg = f"{option}: {path}: no YAML or JSON file lies in this folder"
        raise Misconfigured(msg)
    return [*map(str, found)]


def files_below(folder: Path, wanted: Callable[[Path], bool]) -> list[Path]:
    """Return the wanted files in a folder and below it that are not hidden, in order."""
    return sorted(
        file for file in folder.rglob("*") if not _is_hidden(file, folder) and wanted(file)
    )


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


@dataclass(frozen=True, slots=True)
class _Part:
    """One document of a file, of any shape."""

    file: str
    value: Any
    place: str


def _read(file: str) -> list[_Part]:
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
    if len(documents) == 1:
        return [_Part(name, documents[0][1], "")]
    numbered = enumerate(documents, 1)
    return [_Part(name, it, f"document {n} (line {line})") for n, (line, it) in numbered]


def _parsed(text: str) -> list[tuple[int, Any]]:
    """Return the documents of a text, each with the line on which it begins."""
    try:
        # JSON is YAML, too, but what `kubectl get` prints is long, and this a hundred times faster.
        return [(1, msgspec.json.decode(text))]
    except (msgspec.DecodeError, UnicodeEncodeError):
        return list(_yaml_documents(text))


def _yaml_documents(text: str) -> Iterator[tuple[int, Any]]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node: Any = loader.get_node()
            yield node.start_mark.line + 1, _json(loader.construct_document(node))
    finally:
        loader.dispose()


def _json(value: Any) -> Any:  # noqa: ANN401 - any YAML
    """Return YAML with keys that are text, as kubectl makes them: `yes: 1` is `"true": 1`."""
    if isinstance(value, dict):
        return {_key(key): _json(below) for key, below in value.items()}
    return [_json(below) for below in value] if isinstance(value, list) else value


def _key(key: object) -> str:
    if key is None or isinstance(key, bool):
        return "null" if key is None else str(key).lower()
    return str(key)


def _objects(part: _Part, *, objects_only: bool) -> Iterator[Document]:
    document = part.value
    if document is None:
        return
    if not isinstance(document, dict):
        if objects_only:
            where = Document(part.file, {}, part.place).where
            msg = f"{where}: expected Kubernetes objects, found {type(document).__name__}"
            raise Misconfigured(msg)
        if isinstance(document, list):
            yield Document(part.file, {"items": document}, part.place)
        return
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        # What the API server lists says only here of which kind it is.
        kind = str(document["kind"]).removesuffix("List")
        shared = {"apiVersion": document.get("apiVersion"), "kind": kind} if kind else {}
        for number, item in enumerate(items, 1):
            value = shared | item if isinstance(item, dict) else item
            place = ", ".join(filter(None, (part.place, f"item {number}")))
            yield from _objects(_Part(part.file, value, place), objects_only=objects_only)
    else:
        yield Document(part.file, document, part.place)
