"""Paths into OPA's data document, in the two spellings that its API takes.

Names are whatever Kubernetes and administrators call things, so `/`, `~` and `%` must survive:
a JSON Pointer in a PATCH escapes `~` and `/` (RFC 6901, section 3), and OPA also decodes `%XX`
in it, so a lone `%` is sent as `%25`; a URL escapes everything that is not unreserved.
"""

from __future__ import annotations

from urllib.parse import quote

DataPath = tuple[str, ...]


def pointer(path: DataPath) -> str:
    """Return `path` as OPA's PATCH spells it."""
    return "".join("/" + _escaped(part) for part in path)


def url(path: DataPath) -> str:
    """Return `path` as the rest of a `/v1/data` URL."""
    return "".join("/" + quote(part, safe="") for part in path)


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace("~", "~0").replace("/", "~1")
