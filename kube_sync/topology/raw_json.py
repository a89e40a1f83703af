"""Typed access to fields of raw JSON that nobody has validated, such as objects from files.

Invariant: a value of the wrong type raises one Malformed that names the field; a missing value and
null are equivalent. `true` is not the same as 1, nor is 1.0 (RFC 8259, section 3), though Python
treats them as equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_NOTHING: Mapping[str, Any] = {}
_NAMES = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number"}


class Malformed(ValueError):
    """A field has an invalid value; the message begins with the field's path."""


# What reading JSON raises without the functions below.
UNREADABLE = (Malformed, LookupError, TypeError, AttributeError)


def reason(error: Exception) -> str:
    """Return a message for an error of UNREADABLE."""
    return str(error) if isinstance(error, Malformed) else f"cannot be read: {error!r}"


def is_deeper(value: object, most: int) -> bool:
    """Return whether JSON is nested more than `most` levels deep; without recursion."""
    level: list[Any] = [value]
    for _ in range(most + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return False
        insides = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for inside in insides for one in inside]
    return True


def mapping(body: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return the mapping at a path, empty if there is none. Raises Malformed."""
    for depth, name in enumerate(path, 1):
        value = body.get(name)
        if value is None:
            return _NOTHING
        if type(value) is not dict and not isinstance(value, Mapping):  # the first is the faster
            raise _unexpected(path[:depth], "a mapping", value)
        body = value
    return body


def text(body: Mapping[str, Any], *path: str, default: str = "") -> str:
    """Return the text at a path. Raises Malformed."""
    value = (mapping(body, *path[:-1]) if path[1:] else body).get(path[-1])
    if value is None:
        return default
    if not isinstance(value, str):
        raise _unexpected(path, "text", value)
    return value


def text_if_any(body: Mapping[str, Any] | None, *path: str) -> str:
    """Return the text at a path, "" if there is none or it is unreadable."""
    try:
        return "" if body is None else text(body, *path)
    except UNREADABLE:
        return ""


def number(body: Mapping[str, Any], *path: str) -> int | None:
    """Return the whole number at a path, None if there is none. Raises Malformed."""
    value = mapping(body, *path[:-1]).get(path[-1])
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise _unexpected(path, "a number", value)


def texts(body: Mapping[str, Any], *path: str) -> tuple[str, ...]:
    """Return the list of texts at a path. Raises Malformed."""
    found = _list(body, path)
    for index, value in enumerate(found):
        if not isinstance(value, str):
            raise _unexpected((*path[:-1], f"{path[-1]}[{index}]"), "text", value)
    return tuple(found)


def items(body: Mapping[str, Any], *path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings of the list at a path. Raises Malformed."""
    for index, value in enumerate(_list(body, path)):
        if not isinstance(value, Mapping):
            raise _unexpected((*path[:-1], f"{path[-1]}[{index}]"), "a mapping", value)
        yield value


def _list(body: Mapping[str, Any], path: tuple[str, ...]) -> list[Any]:
    value = mapping(body, *path[:-1]).get(path[-1])
    if value is None:
        return []
    if not isinstance(value, list):
        raise _unexpected(path, "a list", value)
    return value


def _unexpected(path: tuple[str, ...], wanted: str, value: object) -> Malformed:
    found = next((name for kind, name in _NAMES.items() if isinstance(value, kind)), "something")
    return Malformed(f"{'.'.join(path)}: expected {wanted}, found {found}")


def is_same(one: object, other: object) -> bool:
    """Return whether two JSON values are equal; mappings have no order.

    The cost is that of what differs: identical objects are not compared.
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return one == other
