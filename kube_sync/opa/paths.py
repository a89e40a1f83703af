"""Paths of OPA's data document, in the two encodings that its API takes.

Names of Kubernetes objects and of configuration may contain `/`, `~` and `%`:
a JSON Pointer in a PATCH escapes `~` and `/` (RFC 6901, section 3), and OPA also decodes `%XX`
in it, so a lone `%` is sent as `%25`; a URL escapes everything that is not unreserved.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

import msgspec

from kube_sync.objects import ObjectKey

DataPath = tuple[str, ...]


def pointer(path: DataPath) -> str:
    """Return `path` as the JSON Pointer of a PATCH."""
    return "".join("/" + _escaped(part) for part in path)


def add_operation(path: DataPath, value: bytes) -> bytes:
    """Return the PATCH operation that puts JSON at `path` (RFC 6902, section 4.1)."""
    where = msgspec.json.encode(pointer(path))
    return b'{"op":"add","path":' + where + b',"value":' + value + b"}"


def remove_operation(path: DataPath) -> bytes:
    """Return the PATCH operation that removes the document at `path`."""
    return b'{"op":"remove","path":' + msgspec.json.encode(pointer(path)) + b"}"


def url(path: DataPath) -> str:
    """Return `path` as the rest of a `/v1/data` URL."""
    return "".join("/" + quote(part, safe="") for part in path)


def reference(path: Iterable[str]) -> str:
    """Return `path` below `data` as Rego refers to it."""
    return "data" + "".join(f"[{msgspec.json.encode(part).decode()}]" for part in path)


def object_path(root: str, name: str, key: ObjectKey) -> DataPath:
    """Return the path of an object of the collection below `root`."""
    return (root, name, key.namespace, key.name) if key.namespace else (root, name, key.name)


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace("~", "~0").replace("/", "~1")
