"""Kubernetes objects from files: YAML of many documents, JSON, Lists.

Keeps true: what is wrong with a document is said with its file and its number; text stays text
where it looks like a time, and keys are texts. Objects are looked at by nobody but the topology,
so whatever else is in the files is no error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kube_sync.errors import Misconfigured, Terminal
from kube_sync.settings.yamlfile import explain

_SUFFIXES = (".yaml", ".yml", ".json")
_NO_OBJECTS = ("kustomization.yaml", "kustomization.yml")
_NO_YAML = (yaml.YAMLError, ValueError, RecursionError)  # no number: 0o9; no date: 2020-99-99


class _Yaml(yaml.SafeLoader):
    """YAML whose times are texts, as they are in JSON."""


# Assigned, not declared: the stubs call it an instance variable.
_Yaml.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object, and where it was found."""

    place: str  # as `web.yaml, document 2`
    body: Mapping[str, Any]


def read_manifests(paths: Iterable[str]) -> list[Manifest]:
    """Return the objects of folders and files. Raises Misconfigured, Terminal."""
    return [manifest for path in paths for manifest in _of(path)]


def _of(path: str) -> Iterator[Manifest]:
    if path == "-":
        yield from _documents("standard input", _decoded(sys.stdin.buffer.read(), path))
        return
    for file in _files(Path(path)):
        try:
            content = file.read_bytes()
        except OSError as error:
            msg = f"{file}: {error.strerror}"
            raise Terminal(msg) from error
        yield from _documents(str(file), _decoded(content, str(file)))


def _files(path: Path) -> list[Path]:
    if not path.exists():
        msg = f"{path}: there is no such folder or file"
        raise Misconfigured(msg)
    found = sorted(_below(path)) if path.is_dir() else [path]
    if not found:
        msg = f"{path}: no manifest ({', '.join(f'*{suffix}' for suffix in _SUFFIXES)}) lies there"
        raise Misconfigured(msg)
    return found


def _below(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.suffix in _SUFFIXES and file.name not in _NO_OBJECTS and not hidden:
            yield file


def _decoded(content: bytes, file: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        msg = f"{file}: not UTF-8 at byte {error.start}"
        raise Terminal(msg) from error


def _documents(file: str, text: str) -> Iterator[Manifest]:
    number = 0
    try:
        for number, document in enumerate(yaml.load_all(text, Loader=_Yaml), 1):
            yield from _objects(f"{file}, document {number}", _with_text_keys(document, {}))
    except _NO_YAML as error:
        msg = f"{file}, document {number + 1}: not YAML: {explain(error)}"
        raise Terminal(msg) from error


def _objects(place: str, document: object) -> Iterator[Manifest]:
    """Yield the object of a document, or those of a List; an empty document has none."""
    if document is None:
        return
    if not isinstance(document, dict):
        msg = f"{place}: expected an object, found {type(document).__name__}"
        raise Terminal(msg)
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        for number, item in enumerate(items, 1):
            yield from _objects(f"{place}, item {number}", item)
        return
    metadata = document.get("metadata")
    said = (
        ("apiVersion", document.get("apiVersion")),
        ("kind", document.get("kind")),
        ("metadata.name", metadata.get("name") if isinstance(metadata, dict) else None),
    )
    for field, value in said:
        if not isinstance(value, str) or not value:
            msg = f"{place}: {field}: a Kubernetes object needs one, as text"
            raise Terminal(msg)
    yield Manifest(place, document)


def _with_text_keys(value: object, known: dict[int, object]) -> object:
    """Return YAML as it would be in JSON; what is there twice by alias is made once."""
    if not isinstance(value, dict | list):
        return value
    if id(value) in known:
        found = known[id(value)]
        if found is None:
            msg = "an alias within what it is an alias of"
            raise ValueError(msg)
        return found
    known[id(value)] = None
    if isinstance(value, dict):
        made: object = {_key(k): _with_text_keys(v, known) for k, v in value.items()}
    else:
        made = [_with_text_keys(item, known) for item in value]
    known[id(value)] = made
    return made


def _key(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)
