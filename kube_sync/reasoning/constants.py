"""The constants that rules compare with, by rule, from their syntax trees. Pure.

A constant anywhere in a rule counts: whether a value can meet it is found out by trying.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Scalar = str | int | float | bool
Place = tuple[str, int]  # a module's id, and the row of a rule's head

_SCALARS: Final = frozenset({"string", "number", "boolean"})


def constants(trees: Mapping[str, Any]) -> dict[Place, tuple[Scalar, ...]]:
    """Return the constants of each rule in trees as they were parsed, with locations, by id."""
    found: dict[Place, tuple[Scalar, ...]] = {}
    for policy_id, tree in sorted(trees.items()):
        for rule in _members(tree, "rules"):
            place = (policy_id, _row(rule))
            found[place] = tuple(dict.fromkeys((*found.get(place, ()), *_scalars(rule))))
    return found


def _members(tree: object, name: str) -> list[Any]:
    found = tree.get(name) if isinstance(tree, Mapping) else None
    return found if isinstance(found, list) else []


def _row(rule: Any) -> int:  # noqa: ANN401 - any JSON
    try:
        return int(rule["head"]["location"]["row"])
    except (LookupError, TypeError, ValueError):
        return 0


def _scalars(node: object) -> Iterator[Scalar]:
    """Yield the constants below a node; the steps of a reference are names, and no constants."""
    match node:
        case {"type": "ref", "value": [_, *steps]}:
            yield from _scalars([s for s in steps if not _is_scalar(s)])
        case {"type": str(kind), "value": (str() | int() | float()) as value}:
            if kind in _SCALARS:
                yield value
        case dict():
            for name, member in node.items():
                if name not in ("location", "annotations", "name", "ref"):
                    yield from _scalars(member)
        case list():
            for member in node:
                yield from _scalars(member)


def _is_scalar(node: object) -> bool:
    return isinstance(node, Mapping) and node.get("type") in _SCALARS
