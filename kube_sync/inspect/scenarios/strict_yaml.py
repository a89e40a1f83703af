"""Strict reading of YAML values: a value of a wrong shape is a problem, with its location.

Invariant: all problems of a file are found, not only the first, so the readers continue with
a harmless value after one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from kube_sync.errors import Terminal
from kube_sync.yamlnodes import Node

_KINDS: Final = {
    bool: "a boolean",
    dict: "a mapping",
    float: "a number",
    int: "a number",
    list: "a list",
    str: "a text",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; `row` counts from 1, 0 if there is none."""

    file: str
    row: int
    key: str  # as in cases[2].expect.clusters; empty for the file itself
    message: str

    def __str__(self) -> str:
        """`file:row: key: message`."""
        where = f"{self.file}:{self.row}" if self.row else self.file
        return ": ".join(part for part in (where, self.key, self.message) if part)


class Invalid(Terminal):
    """A scenario file that cannot be run, with all its problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class StrictReader:
    """Reads the values of one file, and collects the problems."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def add_problem(self, node: Node, message: str) -> None:
        """Record a problem."""
        self.problems.append(Problem(self.file, node.row, node.key, message))

    def members(
        self, node: Node, known: Collection[str], required: Collection[str] = ()
    ) -> dict[str, Node]:
        """Return the members of a mapping that may have only these keys."""
        found = self.entries(node)
        for key, member in found.items():
            if key not in known:
                close = get_close_matches(key, known, 1)
                hint = f": {close[0]}?" if close else f"; there are {', '.join(known)}"
                self.add_problem(member, f"unknown key{hint}")
        for key in required:
            if key not in found:
                self.add_problem(node, f"`{key}` is missing")
        return {key: member for key, member in found.items() if key in known}

    def entries(self, node: Node) -> dict[str, Node]:
        """Return the members of a mapping with any keys."""
        if isinstance(node.value, dict):
            return node.value
        self.add_unexpected(node, "a mapping")
        return {}

    def items(self, node: Node) -> list[Node]:
        """Return the items of a list."""
        if isinstance(node.value, list):
            return node.value
        self.add_unexpected(node, "a list")
        return []

    def text(self, node: Node, otherwise: str = "") -> str:
        """Return a text that is not empty."""
        if isinstance(node.value, str) and node.value.strip():
            return node.value
        what = "a text"
        if isinstance(node.value, bool | int | float):
            what = "a text: put it into quotes"
        self.add_unexpected(node, what)
        return otherwise

    def texts(self, node: Node) -> tuple[str, ...]:
        """Return a list of texts, each once."""
        found = [(item, self.text(item)) for item in self.items(node)]
        seen = set[str]()
        for item, text in found:
            if text and text in seen:
                self.add_problem(item, f"{text} is here twice")
            seen.add(text)
        return tuple(text for _, text in found if text)

    def one_or_more(self, node: Node) -> tuple[str, ...]:
        """Return a text, or a list of them that is not empty."""
        if isinstance(node.value, str):
            return tuple(filter(None, [self.text(node)]))
        found = self.texts(node)
        if node.value == []:
            self.add_problem(node, "it names nothing")
        return found

    def flag(self, node: Node) -> bool:
        """Return a boolean."""
        if not isinstance(node.value, bool):
            self.add_unexpected(node, "true or false")
        return node.value is True

    def add_unexpected(self, node: Node, what: str) -> None:
        """Record that another kind of value was expected."""
        self.add_problem(node, f"expected {what}, found {kind(node)}")


def kind(node: Node) -> str:
    """Return the kind of a value, for people."""
    if node.value is None:
        return "nothing"
    if node.value == "":
        return "an empty text"
    return _KINDS[type(node.value)]


def leaves(node: Node) -> Iterator[Node]:
    """Yield a value and all values within it."""
    yield node
    match node.value:
        case dict() as members:
            for member in members.values():
                yield from leaves(member)
        case list() as items:
            for item in items:
                yield from leaves(item)
