"""Finds the row of a file that a finding is about, as code scanning shows it.

Rego in a ConfigMap or a PlacementPolicy has rows of its own, counted from the first row of the
module; the manifest's row is that of the key, plus these. Findings on what is no file here (a
module of the cluster, standard input) have no position.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kube_sync.kube.policynames import is_object, object_key
from kube_sync.objects import ObjectKey
from kube_sync.yamlnodes import Node, NotYaml, Rules, documents

# As a plan names the module of a manifest: `policies.yaml (policies/placement/policy.rego)`.
_IN_MANIFEST: Final = re.compile(r"(?P<file>.+) \((?P<module>[^()/]+/[^()/]+/[^()/]+)\)")
_BLOCK: Final = re.compile(r"[|>][-+0-9]*\s*(?:#.*)?$")  # YAML 1.2, 8.1: a block scalar's header
_RULES: Final = Rules(keys_become_text=True)


@dataclass(frozen=True, slots=True)
class Position:
    """A whole row of a file; `uri` is relative to the working directory, if the file is below."""

    uri: str
    row: int
    length: int  # characters


class Positions:
    """Finds positions; each file is read once."""

    def __init__(self) -> None:
        self._rows: dict[str, list[str]] = {}
        self._nodes: dict[str, list[Node]] = {}

    def find(self, name: str, row: int) -> Position | None:
        """Return the position of a row, None if there is no such file.

        `name`: a file, or a file and the module in it. `row` counts from 1; 0 is the whole file,
        shown at its first row.
        """
        found = _IN_MANIFEST.fullmatch(name)
        file = os.path.normpath(name if found is None else found["file"])
        if not (rows := self._rows_of(file)):
            return None
        if found is not None:
            row = self._row_in_manifest(file, found["module"], row)
        row = min(max(row, 1), len(rows))
        return Position(_uri(file), row, len(rows[row - 1]))

    def _rows_of(self, file: str) -> list[str]:
        if file not in self._rows:
            try:
                self._rows[file] = Path(file).read_text(encoding="utf-8").splitlines()
            except (OSError, ValueError):  # a folder, a name with a zero byte, not UTF-8
                self._rows[file] = []
        return self._rows[file]

    def _row_in_manifest(self, file: str, module: str, row: int) -> int:
        if file not in self._nodes:
            try:
                text = "\n".join(self._rows[file])
                self._nodes[file] = [one for node in documents(text, _RULES) for one in _all(node)]
            except NotYaml:
                self._nodes[file] = []
        namespace, name, key = module.split("/")
        policy = ObjectKey(namespace, name)
        modules = _of_object if is_object(policy) else _of_config_map
        named = [
            (_text(node, "metadata", "name"), source)
            for node in self._nodes[file]
            for source in modules(node, key)
        ]
        # A staged policy has another name than the one that it stands for.
        own = [one for said, one in named if said == object_key(policy).name]
        sources = own or [one for _, one in named]
        if len(sources) != 1:
            return 0
        above = sources[0].row
        return above + row if _BLOCK.search(self._rows[file][above - 1]) else above


def _all(node: Node) -> Iterator[Node]:
    """Yield the objects of a document: of a List each of its items."""
    match _member(node, "items"):
        case Node(value=list() as items):
            yield from items
        case _:
            yield node


def _of_config_map(node: Node, key: str) -> Iterator[Node]:
    """Yield the module of a ConfigMap that has this key."""
    if (source := _member(node, "data", key)) is not None:
        yield source


def _of_object(node: Node, key: str) -> Iterator[Node]:
    """Yield the module of a PlacementPolicy that has this name."""
    match _member(node, "spec", "modules"):
        case Node(value=list() as modules):
            for module in modules:
                source = _member(module, "rego")
                if _text(module, "name") == key and source is not None:
                    yield source


def _member(node: Node | None, *keys: str) -> Node | None:
    for key in keys:
        if node is None or not isinstance(node.value, dict):
            return None
        node = node.value.get(key)
    return node


def _text(node: Node, *keys: str) -> str:
    found = _member(node, *keys)
    return "" if found is None else str(found.value)


def _uri(file: str) -> str:
    """Return a relative reference to a file below the working directory, else a file URI."""
    whole, here = Path(os.path.abspath(file)), Path.cwd()  # noqa: PTH100 - without what links mean
    if whole.is_relative_to(here):
        return whole.as_uri().removeprefix(f"{here.as_uri().rstrip('/')}/")
    return whole.as_uri()
