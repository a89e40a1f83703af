"""Reads the data of a scenario beside the objects: JSON, or the ConfigMaps that hold it.

Invariant: of ConfigMaps the same becomes data as in a cluster (`policies.labelled`), but a value
that is no JSON is a problem, since there is no last good one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kube_sync.errors import SyncError
from kube_sync.inspect.scenarios.collections import Collections
from kube_sync.inspect.scenarios.initial_objects import relative_to_file
from kube_sync.inspect.scenarios.strict_yaml import StrictReader
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.configmaps import ConfigMap, read_configmap
from kube_sync.kube.manifests import Document, read_files
from kube_sync.objects import ObjectKey
from kube_sync.yamlnodes import Node, plain

_RESERVED: Final = ("kube_sync", "system")


def read_data(
    node: Node, reader: StrictReader, collections: Collections, root: str
) -> Mapping[str, object]:
    """Return data by its first name; `root` is that of the replicated objects."""
    inline: dict[str, Node] = node.value if isinstance(node.value, dict) else {}
    found = {key: plain(below) for key, below in inline.items()}
    if not isinstance(node.value, dict):
        found = _of_files(node, reader, collections.data_label)
    for key in found:
        if key in (root, *_RESERVED):
            where = inline.get(key, node)
            reader.add_problem(where, f"data.{key} is not a scenario's; objects go into `objects`")
    return found


def _of_files(node: Node, reader: StrictReader, label: str) -> dict[str, object]:
    if not isinstance(node.value, str | list):
        reader.add_unexpected(node, "a mapping, or files of ConfigMaps")
        return {}
    found: dict[str, dict[str, object]] = {}
    for named in reader.one_or_more(node):
        file = relative_to_file(reader.file, named)
        before = len(reader.problems)
        maps = list(_config_maps(node, reader, file, label))
        if not maps and len(reader.problems) == before:
            reader.add_problem(node, f"{file}: there is no ConfigMap with the label {label} in it")
        for one in maps:
            values = found.setdefault(one.key.namespace, {})
            if one.key.name in values:
                reader.add_problem(node, f"{file}: ConfigMap {one.key} is here twice")
            values[one.key.name] = _values(node, reader, file, one)
    return dict(found)


def _config_maps(node: Node, reader: StrictReader, file: str, label: str) -> Iterator[ConfigMap]:
    try:
        documents = read_files([file])
        found = [_read(document) for document in documents if document.kind == "ConfigMap"]
    except SyncError as error:
        reader.add_problem(node, str(error))
        return
    yield from (one for one in found if one.carries(label))


def _read(document: Document) -> ConfigMap:
    key = ObjectKey(document.namespace(None), document.name())
    return read_configmap(Item(key, "", ResourceVersion(""), msgspec.json.encode(document.object)))


def _values(node: Node, reader: StrictReader, file: str, found: ConfigMap) -> dict[str, Any]:
    values = dict[str, Any]()
    for name, text in found.data.items():
        try:
            values[name] = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            reader.add_problem(node, f"{file}: ConfigMap {found.key}: {name} is not JSON: {error}")
    return values
