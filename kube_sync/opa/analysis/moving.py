"""Moves a Rego module below a package prefix, as text: the modules of a lane of staged policies.

Invariant: each reference to a package of the set leads to the moved package, and every other
reference to where it led. Rows stay, so that OPA's errors name the author's rows. If the target of
a reference cannot be determined, nothing is moved and the row is reported. Pure; no input raises:
the syntax tree of OPA's parser, with locations, gives the positions of references, and a position
at which the text differs from the tree moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kube_sync.opa.analysis.syntax import Json

_DATA: Final = "data"
# What a module would report about itself differently after the move (`rego.metadata.chain()`).
_METADATA_CHAIN: Final = ("metadata", "chain")
_UNREADABLE: Final = (AttributeError, LookupError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Ground:
    """Which packages below `data` are moved.

    `packages` are all that are moved; `others` are the other documents: replicated data, packages
    that OPA has by itself.
    """

    packages: frozenset[tuple[str, ...]]
    others: frozenset[tuple[str, ...]] = frozenset()

    def moves(self, path: tuple[str, ...]) -> bool | None:
        """Return whether the documents at or below `path` move, None if only some of them may."""
        inside = any(_within(path, package) for package in self.packages)
        around = any(_within(package, path) for package in self.packages) and not inside
        other = any(_within(path, root) or _within(root, path) for root in self.others)
        if around or (inside and other):
            return None
        return inside


@dataclass(frozen=True, slots=True)
class Trouble:
    """The reason why a module cannot be moved; `row` is 0 if no row is at fault."""

    row: int
    message: str


@dataclass(frozen=True, slots=True)
class Moved:
    """The source of a module below the prefix, or the reasons against it: one of both is empty."""

    source: str
    troubles: tuple[Trouble, ...] = ()


def move(source: str, tree: Json, ground: Ground, prefix: Sequence[str]) -> Moved:
    """Return a module with its package, and its references to the ground's packages, moved.

    `tree` is the parser's output for `source`. The names of `prefix` must need no quotes.
    """
    try:
        edits = [*_edits(tree, ground, prefix)]
    except _UNREADABLE as error:
        return Moved("", (_unreadable(error),))
    troubles = {edit for edit in edits if isinstance(edit, Trouble)}
    lines = source.split("\n")  # as OPA counts rows
    places = {edit for edit in edits if isinstance(edit, _Edit)}
    for edit in sorted(places, key=lambda edit: (edit.row, edit.column), reverse=True):
        if not edit.fits(lines):
            troubles.add(Trouble(edit.row, f"{edit.after or edit.before!r} is not where it was"))
        else:
            edit.apply(lines)
    if troubles:
        return Moved("", _sorted(troubles))
    return Moved("\n".join(lines))


def leads_to(tree: Json, ground: Ground) -> tuple[Trouble, ...]:
    """Return the rows of a module, itself not moved, that refer, or may, to moved packages."""
    try:
        found = {
            Trouble(ref.row, f"{ref.shown} may lead to what is staged, from what is not")
            for ref in _references(tree)
            if ref.path is not None and ground.moves(ref.path) is not False
        }
    except _UNREADABLE as error:
        return (_unreadable(error),)
    return _sorted(found)


@dataclass(frozen=True, slots=True)
class _Edit:
    """Text to insert after or before the text at a place (both from 1, in characters)."""

    row: int
    column: int
    text: str
    after: str = ""
    before: str = ""

    def fits(self, lines: Sequence[str]) -> bool:
        """Return whether the text at the place is what the tree expects."""
        if not 0 < self.row <= len(lines) or self.column < 1:
            return False
        return lines[self.row - 1].startswith(self.after or self.before, self.column - 1)

    def apply(self, lines: list[str]) -> None:
        """Insert the text into its line; the rest of the line moves to the right."""
        line, at = lines[self.row - 1], self.column - 1 + len(self.after)
        lines[self.row - 1] = line[:at] + self.text + line[at:]


@dataclass(frozen=True, slots=True)
class _Reference:
    """A reference whose head is `data`, with the names that follow it, as far as they are constant.

    `path` is None for a reference to the module's own place.
    """

    row: int
    column: int
    path: tuple[str, ...] | None
    shown: str


def _edits(tree: Json, ground: Ground, prefix: Sequence[str]) -> Iterator[_Edit | Trouble]:
    dotted = ".".join(prefix)
    name = tree["package"]["path"][1]
    row, column = _place(name)
    yield _Edit(row, column, f"{dotted}.", before=name["value"])
    for ref in _references(tree):
        if ref.path is None:
            yield Trouble(ref.row, f"{ref.shown} tells where the package lies, and differs there")
            continue
        moves = ground.moves(ref.path)
        if moves is None:
            yield Trouble(ref.row, f"{ref.shown} leads to more than one package: name the one")
        elif moves:
            yield _Edit(ref.row, ref.column, f".{dotted}", after=_DATA)


def _references(tree: Json) -> Iterator[_Reference]:
    """Yield every reference to `data` in the source: imports, bodies, heads, `with`."""
    for part in (tree.get("imports"), tree.get("rules")):
        yield from _below(part)


def _below(node: Any) -> Iterator[_Reference]:  # noqa: ANN401 - any JSON
    if isinstance(node, list):
        for item in node:
            yield from _below(item)
        return
    if not isinstance(node, dict):
        return
    if node.get("type") == "ref":
        yield from _reference(node["value"])
        return
    if node.get("type") == "var":
        if node["value"] == _DATA:  # `data` alone: all of it
            yield _Reference(*_place(node), (), _DATA)
        return
    for member in node.values():
        yield from _below(member)


def _reference(parts: list[Json]) -> Iterator[_Reference]:
    head, *rest = parts
    names: list[str] = []
    for part in rest:
        if part["type"] != "string":
            break
        names.append(part["value"])
    if head["type"] == "var" and head["value"] == _DATA:
        shown = ".".join((_DATA, *names)) + "[…]" * (len(names) < len(rest))
        yield _Reference(*_place(head), tuple(names), shown)
    elif head["type"] == "var" and head["value"] == "rego" and tuple(names) == _METADATA_CHAIN:
        yield _Reference(*_place(head), None, ".".join(("rego", *names)))
    else:
        yield from _below(head)
    yield from _below(rest)


def _unreadable(error: Exception) -> Trouble:
    return Trouble(0, f"its syntax tree cannot be read ({error!r})")


def _sorted(troubles: Iterable[Trouble]) -> tuple[Trouble, ...]:
    return tuple(sorted(troubles, key=lambda found: (found.row, found.message)))


def _place(term: Json) -> tuple[int, int]:
    location = term["location"]
    return location["row"], location["col"]


def _within(path: tuple[str, ...], root: tuple[str, ...]) -> bool:
    return path[: len(root)] == root
