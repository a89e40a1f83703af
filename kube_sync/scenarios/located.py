"""YAML whose every value knows its row and its key, so that what is wrong with one can say where.

Keeps true: what is read is JSON: keys are text, and each stands once in its mapping; numbers that
JSON has not, values of YAML alone and documents after the first are refused. What looks like a date
is text, as it is to kubectl. Anchors and merge keys (`<<`) work, within a bound on what they make.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from kube_sync.errors import Terminal

MOST: Final = 100_000  # values in one file, aliases followed
_LARGEST: Final = 2**63  # what a number in JSON may be to OPA and to us
_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = frozenset(f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "str"))

# The same in C, where PyYAML was built with it.
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; `row` counts from 1, 0 where there is none."""

    file: str
    row: int
    key: str  # as in cases[2].expect.clusters; empty for the file itself
    message: str

    def __str__(self) -> str:
        """`file:row: key: message`."""
        where = f"{self.file}:{self.row}" if self.row else self.file
        return ": ".join(part for part in (where, self.key, self.message) if part)


class Invalid(Terminal):
    """A scenario file that cannot be run, with all that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a file; in a mapping its row is that of its key, counted from 1."""

    value: bool | int | float | str | list[Node] | dict[str, Node] | None
    row: int
    key: str  # as in cases[2].expect.clusters


def plain(node: Node) -> Any:  # noqa: ANN401 - any JSON
    """Return what a node says, as JSON."""
    match node.value:
        case dict() as members:
            return {key: plain(member) for key, member in members.items()}
        case list() as members:
            return [plain(member) for member in members]
        case value:
            return value


def parsed(text: str, file: str, most: int = MOST) -> Node:
    """Return the one document of a file, of so many values at most. Raises Invalid."""
    try:
        documents = list(yaml.compose_all(text, Loader=_Loader))
        documents = [found for found in documents if not _is_nothing(found)]
        if not documents:
            raise Invalid([Problem(file, 0, "", "there is nothing in it")])
        if len(documents) > 1:
            row = documents[1].start_mark.line + 1
            raise Invalid([Problem(file, row, "", "a second document: a file is one scenario")])
        return _Converter(file, most).converted(documents[0], documents[0].start_mark.line + 1, "")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(f"{error.context or ''} {error.problem or ''}".split())
        row = 0 if mark is None else mark.line + 1
        raise Invalid([Problem(file, row, "", f"not YAML: {said}")]) from error
    except (yaml.YAMLError, ValueError) as error:
        said = " ".join(str(error).split())
        raise Invalid([Problem(file, 0, "", f"not YAML: {said}")]) from error
    except RecursionError as error:
        raise Invalid([Problem(file, 0, "", "nested too deeply")]) from error


class _Converter:
    """Turns the nodes of one file into values."""

    def __init__(self, file: str, most: int) -> None:
        self._file = file
        self._most = most
        self._scalars = yaml.constructor.SafeConstructor()
        self._open = set[int]()
        self._number = 0

    def converted(self, node: yaml.Node, row: int, key: str) -> Node:
        """Return a node, and all within it. Raises Invalid."""
        self._number += 1
        if id(node) in self._open:
            raise self._wrong(row, key, "an alias of something that it lies in")
        if self._number > self._most:
            raise self._wrong(row, key, f"more than {self._most} values, aliases followed")
        self._open.add(id(node))
        try:
            match node:
                case yaml.MappingNode():
                    return Node(dict(self._members(node, key)), row, key)
                case yaml.SequenceNode():
                    items = enumerate(node.value)
                    found = [self.converted(n, _row(n), f"{key}[{number}]") for number, n in items]
                    return Node(found, row, key)
                case _:
                    return Node(self._scalar(node, row, key), row, key)
        finally:
            self._open.discard(id(node))

    def _members(self, mapping: yaml.MappingNode, key: str) -> Iterator[tuple[str, Node]]:
        own, merged = dict[str, Node](), list[dict[str, Node]]()
        for name, value in mapping.value:
            if name.tag == f"{_TAG}merge":
                merged += self._merged(value, key)
                continue
            if not isinstance(name, yaml.ScalarNode) or name.tag != f"{_TAG}str":
                said = f"the key {name.value}" if isinstance(name.value, str) else "a key"
                raise self._wrong(_row(name), key, f"{said} is no text: put it into quotes")
            below = _below(key, name.value)
            if name.value in own:
                raise self._wrong(_row(name), below, "this key is here twice")
            own[name.value] = self.converted(value, _row(name), below)
        for members in merged:
            own = {**members, **own}
        yield from own.items()

    def _merged(self, value: yaml.Node, key: str) -> list[dict[str, Node]]:
        found = [value] if isinstance(value, yaml.MappingNode) else value.value
        if not all(isinstance(one, yaml.MappingNode) for one in found):
            raise self._wrong(_row(value), key, "<< merges mappings and nothing else")
        members = (self.converted(one, _row(one), key).value for one in found)
        return [one for one in members if isinstance(one, dict)]

    def _scalar(self, node: yaml.Node, row: int, key: str) -> Any:  # noqa: ANN401 - any scalar
        if node.tag == f"{_TAG}timestamp":
            return node.value
        if node.tag not in _SCALARS:
            raise self._wrong(row, key, f"{node.tag.removeprefix(_TAG)} is not of JSON")
        value = self._scalars.construct_object(node)
        if isinstance(value, float) and not math.isfinite(value):
            raise self._wrong(row, key, f"{node.value} is not of JSON")
        if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
            raise self._wrong(row, key, f"{node.value} is no number that OPA reads")
        return value

    def _wrong(self, row: int, key: str, message: str) -> Invalid:
        return Invalid([Problem(self._file, row, key, message)])


def _is_nothing(node: yaml.Node | None) -> bool:
    return node is None or (node.tag == f"{_TAG}null" and isinstance(node, yaml.ScalarNode))


def _row(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _below(key: str, name: str) -> str:
    shown = name if name.replace("-", "").replace("_", "").isalnum() else f'"{name}"'
    return f"{key}.{shown}" if key else shown
