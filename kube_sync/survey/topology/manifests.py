"""Kubernetes objects from files: YAML of many documents, JSON, Lists.

Keeps true: what is wrong with a document is said with its file and its number; text stays text
where it looks like a time, and keys are texts. Objects are looked at by nobody but the topology,
so whatever else is in the files is no error.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError

from kube_sync.errors import Terminal
from kube_sync.settings.yamlfile import explain
from kube_sync.survey.sources import files_of

_SUFFIXES = (".yaml", ".yml", ".json")
_NO_OBJECTS = ("kustomization.yaml", "kustomization.yml")
_END = object()
_NO_YAML = (yaml.YAMLError, ValueError, RecursionError)  # no number: 0o9; no date: 2020-99-99


class _Yaml(yaml.SafeLoader):
    """YAML as JSON would have it: times are texts, keys are texts, and none is there twice."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401 - as there
        """Return a mapping as it is written. Raises yaml.YAMLError: a key is there twice."""
        node = super().compose_mapping_node(anchor)
        found: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ComposerError(None, None, "a key that is no text", key.start_mark)
            if key.value in found:
                raise ComposerError(None, None, f'"{key.value}" is there twice', key.start_mark)
            found.add(key.value)
        return node

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002 - as there
    ) -> dict[Hashable, Any]:
        """Return a mapping whose keys are what is written."""
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}


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
    suffixes = ", ".join(f"*{suffix}" for suffix in _SUFFIXES)
    return files_of(path, _is_manifest, f"no manifest ({suffixes}) lies there")


def _is_manifest(file: Path) -> bool:
    return file.suffix in _SUFFIXES and file.name not in _NO_OBJECTS


def _decoded(content: bytes, file: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        msg = f"{file}: not UTF-8 at byte {error.start}"
        raise Terminal(msg) from error


def _documents(file: str, text: str) -> Iterator[Manifest]:
    documents = yaml.load_all(text, Loader=_Yaml)
    number = 0
    while True:
        number += 1
        place = f"{file}, document {number}"
        try:
            document = next(documents, _END)
            _refuse_loops(document, frozenset(), set())
            _refuse_halves(document, set())
        except _NO_YAML as error:
            msg = f"{place}: not YAML: {explain(error)}"
            raise Terminal(msg) from error
        if document is _END:
            return
        yield from _objects(place, document)


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


def _refuse_loops(value: object, around: frozenset[int], done: set[int]) -> None:
    """Raise ValueError for an alias within what it is an alias of: no JSON can say that."""
    if not isinstance(value, dict | list) or id(value) in done:
        return
    if id(value) in around:
        msg = "an alias within what it is an alias of"
        raise ValueError(msg)
    for item in value.values() if isinstance(value, dict) else value:
        _refuse_loops(item, around | {id(value)}, done)
    done.add(id(value))


def _refuse_halves(value: object, done: set[int]) -> None:
    """Raise ValueError for half of a surrogate pair: JSON can write it, and no UTF-8 can."""
    if isinstance(value, str):
        if not value.isascii():
            value.encode()
        return
    if not isinstance(value, dict | list) or id(value) in done:
        return
    done.add(id(value))  # an alias may be there many times
    for item in (*value, *value.values()) if isinstance(value, dict) else value:
        _refuse_halves(item, done)
