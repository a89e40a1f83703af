"""The initial objects of all cases of a scenario, read from its file and those that it names.

Invariant: each object exists once, in a collection of the configuration.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kube_sync.config import CLUSTERS
from kube_sync.errors import Terminal
from kube_sync.inspect.scenarios.collections import (
    FACTS,
    Collections,
    InvalidObject,
    invalid_metadata,
)
from kube_sync.inspect.scenarios.strict_yaml import StrictReader
from kube_sync.kube.collection import Item
from kube_sync.kube.manifests import read_files
from kube_sync.objects import ObjectKey
from kube_sync.yamlnodes import Node, plain


class InitialObjects:
    """Objects by their collection's name in OPA."""

    def __init__(self, collections: Collections, reader: StrictReader) -> None:
        self.collections = collections
        self.objects: dict[str, dict[ObjectKey, Item]] = {name: {} for name in collections.places}
        self._reader = reader

    @property
    def fleet(self) -> frozenset[str]:
        """The names of all clusters."""
        return frozenset(key.name for key in self.objects.get(CLUSTERS, ()))

    def add_clusters(self, node: Node) -> None:
        """Take clusters: files, objects, or a mapping of names to facts."""
        if CLUSTERS not in self.collections.places:
            self._reader.add_problem(node, f'there is no "{CLUSTERS}" in replicate.resources')
        elif isinstance(node.value, dict):
            for name, below in node.value.items():
                if (item := self.item_of_facts(name, below)) is not None:
                    self._store(below, CLUSTERS, item)
        else:
            self.add(node, CLUSTERS)

    def add(self, node: Node, only: str | None = None) -> None:
        """Take files of objects, and inline objects; `only` those of one collection."""
        for item in [node] if isinstance(node.value, str) else self._reader.items(node):
            if isinstance(item.value, str):
                self._add_file(item, only)
            elif isinstance(item.value, dict):
                if (body := read_body(item, self._reader)) is not None:
                    self._add_object(item, body, only)
            else:
                self._reader.add_unexpected(item, "an object, or a file of objects")

    def item_of_facts(self, name: str, node: Node) -> Item | None:
        """Return a cluster made of its facts, None if something is wrong."""
        if (facts := read_facts(node, self._reader)) is None:
            return None
        try:
            return self.collections.item_of_facts(CLUSTERS, name, facts)
        except InvalidObject as error:
            self._reader.add_problem(node, str(error))
            return None

    def _add_file(self, node: Node, only: str | None) -> None:
        path = relative_to_file(self._reader.file, self._reader.text(node))
        try:
            documents = read_files([path])
        except Terminal as error:
            self._reader.add_problem(node, str(error))
            return
        # Manifests may have objects that are not replicated; one without any other is an error.
        wanted = [d for d in documents if self._is_wanted(d.object, only)]
        for document in wanted:
            where = f"{document.file}: {_object_name(document.object)}: "
            self._add_object(node, document.object, only, where)
        if not wanted:
            what = only or "objects of replicate.resources"
            self._reader.add_problem(node, f"{path}: there are no {what} in it")

    def _is_wanted(self, body: dict[str, Any], only: str | None) -> bool:
        names = self.collections.of(body)
        return only in names if only is not None else bool(names)

    def _add_object(
        self, node: Node, body: dict[str, Any], only: str | None, where: str = ""
    ) -> None:
        try:
            found = self.collections.items_of(body)
        except InvalidObject as error:
            self._reader.add_problem(node, f"{where}{error}")
            return
        names = [name for name, _ in found]
        if only is not None and only not in names:
            self._reader.add_problem(node, f"{where}expected {only}, found {', '.join(names)}")
            return
        for name, item in found:
            self._store(node, name, item, where)

    def _store(self, node: Node, name: str, item: Item, where: str = "") -> None:
        if item.key in self.objects[name]:
            self._reader.add_problem(node, f"{where}{name} {item.key} is here twice")
        self.objects[name][item.key] = item


def read_facts(node: Node, reader: StrictReader, *, removes: bool = False) -> dict[str, Any] | None:
    """Return facts, None if something is wrong; with `removes` null removes one."""
    before = len(reader.problems)
    facts = reader.members(node, FACTS)
    for key, found in facts.items():
        if not isinstance(found.value, dict) and not (removes and found.value is None):
            reader.add_unexpected(found, "a mapping")
        elif key in ("labels", "annotations") and isinstance(found.value, dict):
            for member in found.value.values():
                if not isinstance(member.value, str) and not (removes and member.value is None):
                    reader.add_unexpected(member, "a text: put it into quotes")
    if removes and node.value == {}:
        reader.add_problem(node, "nothing is given: leave it out")
    if len(reader.problems) > before:
        return None
    return {key: plain(found) for key, found in facts.items()}


def read_body(node: Node, reader: StrictReader) -> dict[str, Any] | None:
    """Return a whole object, None if a part of it is wrong."""
    body: dict[str, Any] = plain(node)
    problems = [*invalid_metadata(body)]
    for path, message in problems:
        reader.add_problem(_below(node, path), message)
    return None if problems else body


def relative_to_file(file: str, path: str) -> str:
    """Return a path in a file, relative to the working directory."""
    return os.path.normpath(Path(file).parent / path)


def _object_name(body: Mapping[str, Any]) -> str:
    metadata = body.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{body.get('kind', 'an object')} {name}".strip()


def _below(node: Node, path: tuple[str, ...]) -> Node:
    """Return the value at a path of keys, or the last existing one on the way."""
    for key in path:
        if not isinstance(node.value, dict) or key not in node.value:
            return node
        node = node.value[key]
    return node
