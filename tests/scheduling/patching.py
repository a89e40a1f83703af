"""JSON Patch (RFC 6902) as far as admission uses it, and JSON Pointers (RFC 6901)."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

ABSENT = object()


def patched(document: Any, operations: Iterable[Any]) -> Any:
    """Return the document with the operations applied, each of which has to fit."""
    made = deepcopy(document)
    for operation in operations:
        *above, last = _segments(operation["path"])
        parent = _below(made, above)
        if operation["op"] == "remove":
            del parent[last]
        elif isinstance(parent, list):
            assert last == "-", operation
            parent.append(operation["value"])
        else:
            assert isinstance(parent, dict), operation
            parent[last] = operation["value"]
    return made


def value_at(document: Any, pointer: str) -> Any:
    """Return what lies at a pointer, or ABSENT."""
    try:
        return _below(document, _segments(pointer))
    except (KeyError, IndexError):
        return ABSENT


def _below(document: Any, segments: Iterable[str]) -> Any:
    for segment in segments:
        document = document[int(segment) if isinstance(document, list) else segment]
    return document


def _segments(pointer: str) -> list[str]:
    parts = pointer.split("/")[1:]
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]
