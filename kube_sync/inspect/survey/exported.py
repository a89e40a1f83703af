"""Reads objects from an exported file: a Kubernetes List, a JSON list, or one a line.

Invariant: an object's size is that of compact JSON, however the file is indented. Errors have
the name of the file and the number of the item. Kinds are matched to resources by
their usual plural, as there is no API server for discovery.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kube_sync.config import Resource
from kube_sync.errors import NO_JSON, Misconfigured, Terminal
from kube_sync.kube.meta import NamedObjectMeta
from kube_sync.objects import ObjectKey

Found = tuple[str, Any, int]  # the resource's name in OPA, an object of it, its size in bytes


class _List(msgspec.Struct):
    items: list[msgspec.Raw]
    apiVersion: str = ""  # noqa: N815 - as on the wire
    kind: str = ""


class _Heading(msgspec.Struct):
    metadata: NamedObjectMeta
    apiVersion: str = ""  # noqa: N815 - as on the wire
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Exported:
    """The objects of one file."""

    file: str
    objects: tuple[tuple[_Heading, bytes], ...]

    def of(self, resources: Iterable[Resource]) -> Iterator[Found]:
        """Yield each object once for each of its resources. Raises Terminal."""
        known = list(resources)
        for heading, body in self.objects:
            names = [resource.name for resource in known if _is_of(heading, resource)]
            value = decoded(body, f"{self.file}, {heading.metadata.name}") if names else None
            size = len(msgspec.json.encode(value))
            yield from ((name, value, size) for name in names)

    def bodies(self, resource: Resource) -> Iterator[bytes]:
        """Yield the objects of a resource as in the file."""
        return (body for heading, body in self.objects if _is_of(heading, resource))

    def keyed(self, resource: Resource) -> Iterator[tuple[ObjectKey, bytes]]:
        """Yield them with their keys."""
        for heading, body in self.objects:
            if _is_of(heading, resource):
                yield ObjectKey(heading.metadata.namespace, heading.metadata.name), body

    def namespaced(self, resource: Resource) -> bool | None:
        """Return whether its objects are namespaced; None if there are none."""
        found = {bool(h.metadata.namespace) for h, _ in self.objects if _is_of(h, resource)}
        return any(found) if found else None

    def unknown_kinds(self, resources: Iterable[Resource]) -> Counter[str]:
        """Return the number of objects of no resource, by kind."""
        known = list(resources)
        return Counter(
            f"{heading.apiVersion} {heading.kind}"
            for heading, _ in self.objects
            if not any(_is_of(heading, resource) for resource in known)
        )


def read_objects(file: str, option: str = "--objects") -> Exported:
    """Read a file, or standard input for "-". Raises Misconfigured, Terminal."""
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except FileNotFoundError as error:
        msg = f"{option}: {file}: there is no such file"
        raise Misconfigured(msg) from error
    except OSError as error:
        msg = f"{option}: {file}: {error.strerror}"
        raise Terminal(msg) from error
    name = "standard input" if file == "-" else file
    return Exported(name, tuple(_objects(content, name)))


def decoded(body: bytes, location: str) -> Any:  # noqa: ANN401 - any JSON
    """Parse an object. Raises Terminal with its `location`."""
    try:
        return msgspec.json.decode(body)
    except NO_JSON as error:
        msg = f"{location}: not JSON: {error}"
        raise Terminal(msg) from error


def _objects(content: bytes, file: str) -> Iterator[tuple[_Heading, bytes]]:
    try:
        found, prefix, unit = _items(content)
    except NO_JSON as error:
        msg = f"{file}: not a JSON list, a Kubernetes List, or one object a line: {error}"
        raise Terminal(msg) from error
    for number, raw in found:
        try:
            yield _object(raw, prefix)
        except NO_JSON as error:
            msg = f"{file}, {unit} {number}: not a Kubernetes object: {error}"
            raise Terminal(msg) from error


def _items(content: bytes) -> tuple[list[tuple[int, bytes]], dict[str, str], str]:
    """Return numbered objects, the List's type for all of them, and the unit of the numbers."""
    if content.lstrip().startswith(b"["):
        listed = msgspec.json.decode(content, type=list[msgspec.Raw])
        return [(n, bytes(raw)) for n, raw in enumerate(listed, 1)], {}, "item"
    try:
        whole = msgspec.json.decode(content, type=_List)
    except NO_JSON:
        lines = [(n, line) for n, line in enumerate(content.splitlines(), 1) if line.strip()]
        return (lines if _are_lines(lines) else [(1, content)]), {}, "line"
    # In the output of `kubectl get --raw` only the List has the kind of the items.
    kind = whole.kind.removesuffix("List")
    prefix = {"apiVersion": whole.apiVersion, "kind": kind} if kind else {}
    return [(n, bytes(raw)) for n, raw in enumerate(whole.items, 1)], prefix, "item"


def _are_lines(lines: list[tuple[int, bytes]]) -> bool:
    """Return whether the first line is JSON by itself: otherwise it is one indented object."""
    try:
        msgspec.json.decode(lines[0][1] if lines else b"", type=msgspec.Raw)
    except NO_JSON:
        return not lines
    return True


def _object(raw: bytes, prefix: dict[str, str]) -> tuple[_Heading, bytes]:
    heading = msgspec.json.decode(raw, type=_Heading)
    if heading.kind or not prefix:
        return heading, raw
    value = prefix | msgspec.json.decode(raw)
    return msgspec.convert(value, _Heading), msgspec.json.encode(value)


def is_of(api_version: str, kind: str, resource: Resource) -> bool:
    """Return whether an object of this version and kind is of a resource."""
    return api_version == resource.gvr.api_version and resource.resource in _plurals(kind.lower())


def _is_of(heading: _Heading, resource: Resource) -> bool:
    return is_of(heading.apiVersion, heading.kind, resource)


def _plurals(kind: str) -> tuple[str, ...]:
    return (kind, kind + "s", kind + "es", kind.removesuffix("y") + "ies")
