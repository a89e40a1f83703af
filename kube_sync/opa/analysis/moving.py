"""A module of Rego moved below a prefix, text for text: what a lane of staged policies is made of.

Keeps true: whatever leads to a package of the set leads to the moved one, and everything else to
where it led; rows stay, so that OPA's errors name those that the author wrote; where it cannot be
told what a reference leads to, nothing is moved and the row is named. Pure, without an exception
for any input: the syntax tree, as OPA's parser gives it with locations, says where references are,
and a place where the text does not say the same moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kube_sync.opa.analysis.syntax import Json

_DATA: Final = "data"
# What a module would say of itself that is not so in a set that was not moved.
_TELLING: Final = ("metadata", "chain")
_UNREADABLE: Final = (AttributeError, LookupError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Ground:
    """What lies where below `data`.

    `packages` are all that are moved; `others` is what lies elsewhere: replicated data, packages
    that OPA has by itself.
    """

    packages: frozenset[tuple[str, ...]]
    others: frozenset[tuple[str, ...]] = frozenset()

    def moves(self, path: tuple[str, ...]) -> bool | None:
        """Tell whether what lies at or below `path` is moved, None where only some of it may be."""
        inside = any(_within(path, package) for package in self.packages)
        around = any(_within(package, path) for package in self.packages) and not inside
        other = any(_within(path, root) or _within(root, path) for root in self.others)
        if around or (inside and other):
            return None
        return inside


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a module cannot be moved; `row` is 0 where no row is to blame."""

    row: int
    message: str


@dataclass(frozen=True, slots=True)
class Moved:
    """The source of a module below the prefix, or what is in the way: one of both is empty."""

    source: str
    troubles: tuple[Trouble, ...] = ()


def move(source: str, tree: Json, ground: Ground, prefix: Sequence[str]) -> Moved:
    """Return a module with its package and all that leads to one of the ground's below `prefix`.

    `tree` is what the parser made of `source`. `prefix` is names without a need of quotes.
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
    """Return which rows of a module that stays where it is lead, or may, to what is moved."""
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
    """Text that comes after or before what stands at a place (both from 1, in characters)."""

    row: int
    column: int
    text: str
    after: str = ""
    before: str = ""

    def fits(self, lines: Sequence[str]) -> bool:
        """Tell whether the text there says what the tree says."""
        if not 0 < self.row <= len(lines) or self.column < 1:
            return False
        return lines[self.row - 1].startswith(self.after or self.before, self.column - 1)

    def apply(self, lines: list[str]) -> None:
        """Put the text into its line; what stands behind it moves to the right."""
        line, at = lines[self.row - 1], self.column - 1 + len(self.after)
        lines[self.row - 1] = line[:at] + self.text + line[at:]


@dataclass(frozen=True, slots=True)
class _Reference:
    """A reference whose head is `data`: the names that follow it, as far as they are plain.

    `path` is None for one that tells where the module itself lies.
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
    """Yield every reference to `data` that the author wrote: imports, bodies, heads, `with`."""
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
        if node["value"] == _DATA:  # alone: all of it
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
    elif head["type"] == "var" and head["value"] == "rego" and tuple(names) == _TELLING:
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
