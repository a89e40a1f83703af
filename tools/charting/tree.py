"""Objects of Kubernetes with places that a template decides, and the merge of two builds into one.

A tree is JSON (dict, list, scalars) whose values may also be one of the classes below. Expressions
are of Helm's template language, without braces. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Tree = Any
_NAMES = ("name", "mountPath")  # what tells items of a list apart


class Conflict(Exception):
    """Two conditions change the same place."""


@dataclass(frozen=True, slots=True)
class Only:
    """A value of a mapping, or an item of a list, that is there if the condition holds."""

    condition: str
    value: Tree


@dataclass(frozen=True, slots=True)
class Either:
    """One value if the condition holds, and the other one if not."""

    condition: str
    then: Tree
    otherwise: Tree


@dataclass(frozen=True, slots=True)
class Scalar:
    """The text of an expression, without quotes: a number or `true`."""

    expression: str


@dataclass(frozen=True, slots=True)
class Yaml:
    """The YAML of a value that an expression returns."""

    expression: str


@dataclass(frozen=True, slots=True)
class Insert:
    """What an expression prints in place of entries or items, all lines indented as these.

    In a mapping it is a key, with any value.
    """

    expression: str


@dataclass(frozen=True, slots=True)
class Block:
    """The lines that an expression prints, as one text."""

    expression: str


def layered(tree: Tree, before: Tree, after: Tree, condition: str) -> Tree:
    """Return the tree in which what differs between two builds depends on a condition.

    `tree` is the build `before`, in which other conditions may have been put. Raises Conflict.
    """
    if before == after:
        return tree
    if isinstance(tree, Only | Either):
        msg = f"{condition}: {before!r} also depends on {tree.condition}"
        raise Conflict(msg)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return _mapping(tree, before, after, condition)
    if isinstance(before, list) and isinstance(after, list):
        return _list(tree, before, after, condition)
    return Either(condition, after, tree)


def _mapping(
    tree: Mapping[str, Tree], before: Mapping[str, Any], after: Mapping[str, Any], condition: str
) -> Tree:
    found = dict(tree)
    for key in before.keys() - after.keys():
        found[key] = Only(f"not ({condition})", tree[key])
    for key in after:
        if key in before:
            found[key] = layered(tree[key], before[key], after[key], condition)
        elif key in found:
            msg = f"{condition}: {key} also depends on another condition"
            raise Conflict(msg)
        else:
            found[key] = Only(condition, after[key])
    return found


def _list(tree: list[Tree], before: list[Any], after: list[Any], condition: str) -> Tree:
    """Match items by their name; the others are those that are the same, or that were added."""
    wanted = [identity(item) for item in after]
    if gone := [item for item in before if identity(item) not in wanted]:
        msg = f"{condition}: takes away {gone!r}"
        raise Conflict(msg)
    places = {
        identity(item): place
        for place, item in enumerate(tree)
        if not isinstance(item, Only | Insert)
    }
    found, known = list(tree), {identity(item): item for item in before}
    for item in after:
        if (one := identity(item)) in known:
            found[places[one]] = layered(tree[places[one]], known[one], item, condition)
        else:
            found.append(Only(condition, item))
    return found


def identity(item: Any) -> str:
    """Return what an item of a list is known by."""
    if isinstance(item, Mapping):
        for name in _NAMES:
            if name in item:
                return f"{name} {item[name]} {item.get('mountPath', '')}"
    return repr(item)
