"""Projection paths: how to reduce a set of paths, and which parts of a document they keep.

Invariant: a projected value has, at every level that a path passes, the type, the scalars and,
below `EACH`, the members and the length of the original. So no test for existence, type or count
can distinguish them. A projection drops only members that no path names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

EACH: Final = None  # any member of an object, any element of an array
Key = str | None
Path = tuple[Key, ...]  # the value at its end is kept whole


@dataclass(slots=True)
class _Node:
    whole: bool = False
    members: dict[Key, _Node] = field(default_factory=dict)


def minimal(passed: Iterable[Path], whole: Iterable[Path]) -> frozenset[Path]:
    """Return the fewest paths that keep all of `whole`, and the presence and type of `passed`.

    A passed path with no read below it is kept whole, except the empty path: the document itself
    is always present, and an object.
    """
    root = _tree(whole)
    for path in passed:
        _grow(root, path)
    for member in root.members.values():
        _settle(member)
    _reduce(root)
    return frozenset(_ends(root, ()))


def project(value: Any, paths: Iterable[Path]) -> Any:  # noqa: ANN401 - any JSON
    """Return the parts of a JSON document at `paths`: the reference for every projector.

    An object keeps the members that are named; an array on the way stays an array, of all its
    elements where a path goes on with EACH, empty otherwise; a scalar on the way stays itself.
    Nothing is added, and nothing that a path passes is dropped for having nothing below it.
    """
    return _kept(value, [_tree(paths)])


def covers(wide: Path, path: Path) -> bool:
    """Return whether `path` lies at or below `wide`."""
    return len(wide) <= len(path) and all(
        a is EACH or a == b for a, b in zip(wide, path, strict=False)
    )


def _tree(paths: Iterable[Path]) -> _Node:
    root = _Node()
    for path in paths:
        _grow(root, path).whole = True
    return root


def _grow(node: _Node, path: Path) -> _Node:
    for key in path:
        node = node.members.setdefault(key, _Node())
    return node


def _settle(node: _Node) -> None:
    for member in node.members.values():
        _settle(member)
    node.whole = node.whole or not node.members


def _reduce(node: _Node) -> None:
    """Drop paths that another path covers."""
    for member in node.members.values():
        _reduce(member)
    each = node.members.get(EACH)
    if each is not None and each.whole:
        node.whole = True
    if node.whole:
        node.members.clear()
    elif each is not None:
        for key in [k for k, m in node.members.items() if k is not EACH and _within(m, each)]:
            del node.members[key]


def _within(node: _Node, wide: _Node) -> bool:
    if wide.whole:
        return True
    return not node.whole and all(
        any(_within(member, wide.members[k]) for k in (key, EACH) if k in wide.members)
        for key, member in node.members.items()
    )


def _ends(node: _Node, path: Path) -> Iterable[Path]:
    if node.whole:
        yield path
    for key, member in node.members.items():
        yield from _ends(member, (*path, key))


def _kept(value: Any, nodes: list[_Node]) -> Any:  # noqa: ANN401 - any JSON
    if any(node.whole for node in nodes):
        return value
    if isinstance(value, dict):
        below = {key: _below(nodes, key, EACH) for key in value}
        return {key: _kept(value[key], found) for key, found in below.items() if found}
    if isinstance(value, list):
        each = _below(nodes, EACH)
        return [_kept(element, each) for element in value] if each else []
    return value


def _below(nodes: list[_Node], *keys: Key) -> list[_Node]:
    return [node.members[key] for node in nodes for key in keys if key in node.members]
