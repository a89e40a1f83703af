"""Paths into OPA's data document, in the two spellings that its API takes.

Names are whatever Kubernetes and administrators call things, so `/`, `~` and `%` must survive:
a JSON Pointer in a PATCH escapes `~` and `/` (RFC 6901, section 3), and OPA also decodes `%XX`
in it, so a lone `%` is sent as `%25`; a URL escapes everything that is not unreserved.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

DataPath = tuple[str, ...]


def pointer(path: DataPath) -> str:
    """Return `path` as OPA's PATCH spells it."""
    return "".join("/" + _escaped(part) for part in path)


def add_operation(path: DataPath, value: bytes) -> bytes:
    """Return the operation of a PATCH that puts JSON at `path` (RFC 6902, section 4.1)."""
    where = msgspec.json.encode(pointer(path))
    return b'{"op":"add","path":' + where + b',"value":' + value + b"}"


def remove_operation(path: DataPath) -> bytes:
    """Return the operation of a PATCH that removes what is at `path`."""
    return b'{"op":"remove","path":' + msgspec.json.encode(pointer(path)) + b"}"


def url(path: DataPath) -> str:
    """Return `path` as the rest of a `/v1/data` URL."""
    return "".join("/" + quote(part, safe="") for part in path)


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace("~", "~0").replace("/", "~1")
