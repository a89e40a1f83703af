"""Terms of parsed syntax trees: text, variables, constants. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Node = Mapping[str, Any]
Scalar = str | int | float | bool
Place = tuple[str, int]  # a module's id, and the row of a rule's head

_SCALARS: Final = frozenset({"string", "number", "boolean"})
CLOSURES: Final = frozenset({"arraycomprehension", "setcomprehension", "objectcomprehension"})
WILDCARD: Final = "$"  # OPA's prefix for `_`

_COMPARING: Final = frozenset(
    {"eq", "equal", "neq", "lt", "lte", "gt", "gte", "startswith", "endswith", "contains"}
)


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a module: its begin (row and column from 1, as OPA counts) and its text."""

    row: int
    column: int
    text: str


def title(head: Node) -> str:
    """Format a rule's name as in the source: `annotations["a/b"]`."""
    found = ""
    for part in head.get("ref") or [{"type": "var", "value": head.get("name", "")}]:
        value = part.get("value")
        if not found:
            found = str(value)
        elif part.get("type") == "string":
            found += f".{value}" if str(value).isidentifier() else f'["{value}"]'
        elif part.get("type") == "var":
            found += f"[{value}]"
    return found


def name_of(head: Node) -> str:
    """Return the first part of a rule's name."""
    ref = head.get("ref") or [{"value": head.get("name", "")}]
    return str(ref[0].get("value"))


def operands(terms: object) -> list[Any]:
    """Return the operands of an expression."""
    match terms:
        case [_, *others]:
            return others
        case {"symbols": list(symbols)}:
            return symbols
    return [terms]


def notable_terms(terms: Any) -> Iterator[Node]:  # noqa: ANN401 - any JSON
    """Yield the terms of an expression that are worth showing: references, calls, operands."""
    match terms:
        case {"symbols": [{"value": [_, *_, domain]}]}:
            yield from _below([domain])
        case [{"value": [{"value": str(operator)}]}, *others]:
            if operator in _COMPARING:
                yield from (one for one in others if one["type"] == "var")
            yield from _below(others)
        case _:
            yield from _below(operands(terms))


def _below(terms: Iterable[Any]) -> Iterator[Node]:
    for term in terms:
        match term:
            case {"type": "ref"}:
                yield term
            case {"type": "call", "value": [_, *others]}:
                yield term
                # A call's result says more than its arguments.
                yield from _below(others)


def variables(node: object) -> Iterator[str]:
    """Yield the variables of a term in order, without those of closures, operators and `_`."""
    return (name for name in every_variable(node) if not name.startswith(WILDCARD))


def every_variable(node: object) -> Iterator[str]:
    """Yield all variables, except in closures; wildcards begin with WILDCARD."""
    match node:
        case {"type": str(kind)} if kind in CLOSURES:
            return
        case {"type": "var", "value": str(name)}:
            yield name
        case {"type": "call", "value": [_, *others]}:
            yield from every_variable(others)
        case dict():
            for name, member in node.items():
                if name != "location":
                    yield from every_variable(member)
        case list():
            for member in node:
                yield from every_variable(member)


def has_closure(node: object) -> bool:
    """Return whether a term contains a comprehension."""
    match node:
        case {"type": str(kind)} if kind in CLOSURES:
            return True
        case dict():
            return any(has_closure(member) for member in node.values())
        case list():
            return any(map(has_closure, node))
    return False


def strings(node: object) -> Iterator[str]:
    """Yield the string constants."""
    match node:
        case {"type": "string", "value": str(value)}:
            yield value
        case dict():
            for name, member in node.items():
                if name != "location":
                    yield from strings(member)
        case list():
            for member in node:
                yield from strings(member)


def located(node: Node) -> Text | None:
    """Return the location and text of a node, None if it has none."""
    location = node.get("location")
    if not isinstance(location, Mapping) or not location.get("text"):
        return None
    text = base64.b64decode(location["text"]).decode("utf-8", "replace")
    return Text(int(location["row"]), int(location["col"]), text)


def constants(trees: Mapping[str, Any]) -> dict[Place, tuple[Scalar, ...]]:
    """Return the constants of each rule in trees with locations, by id, at any depth."""
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
