"""Parses YAML as JSON values, each with its row and its key.

Invariant: a key is text and unique in its mapping; YAML that JSON cannot represent is refused. A
date is text, as in kubectl. Anchors and merge keys (`<<`) work: an alias is the
value that it names and no copy, so aliases of aliases cost nothing. Recursion is limited to
200 levels, whatever the text: PyYAML's own composer in C crashes the process then. An error
quotes no text of a value, which may be a password.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from kube_sync.errors import Terminal

_DEEPEST: Final = 200  # levels; CustomResourceDefinitions have about 40
_LARGEST: Final = 2**63  # limit of a number in JSON, for OPA and for us
_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = ("null", "bool", "int", "float")

# The implementation in C, if PyYAML was built with it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Event = Any  # that of any event


class _Texts(_Loader):  # type: ignore[misc]
    """YAML in which a date is text, and so is `=`."""


class _Words(_Loader):  # type: ignore[misc]
    """The same, with no booleans but true and false: `mode: off` is a word, not False."""


# Assigned, not declared: the stubs call it an instance variable.
for _loader, _dropped in ((_Texts, "timestamp|value"), (_Words, "timestamp|value|bool")):
    _loader.yaml_implicit_resolvers = {
        first: [one for one in known if not re.fullmatch(f"{_TAG}(?:{_dropped})", one[0])]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
_Words.add_implicit_resolver(f"{_TAG}bool", re.compile("^(?:true|false)$"), list("tf"))


@dataclass(frozen=True, slots=True)
class Node:
    """One value; in a mapping its row is that of its key, counted from 1.

    An aliased value has the row and the key of its anchor.
    """

    value: bool | int | float | str | list[Node] | dict[str, Node] | None
    row: int
    key: str  # as in cases[2].expect.clusters


@dataclass(frozen=True, slots=True)
class Rules:
    """The differences between kinds of files."""

    keys_become_text: bool = False  # as kubectl makes them (`yes: 1` is `"true": 1`), not refused
    words: bool = False  # only true and false are booleans
    any_number: bool = False  # also .inf and .nan, and numbers beyond 64 bits
    aliases: bool = True  # aliases are permitted
    most: float = math.inf  # values in one file, aliases followed


class NotYaml(Terminal):
    """Text that is no YAML, or YAML without a JSON equivalent.

    `row` and `document` count from 1, 0 is an unknown row.
    """

    def __init__(self, message: str, row: int = 0, key: str = "", column: int = 0) -> None:
        at = f"line {row}, column {column}" if column else f"line {row}"
        said = ": ".join(filter(None, (key, message)))
        super().__init__(f"{said} ({at})" if row else said)
        self.message, self.row, self.key, self.document = message, row, key, 1


def documents(text: str, rules: Rules) -> list[Node]:
    """Parse all documents of a text, also empty ones. Raises NotYaml."""
    found = list[Node]()
    try:
        for node in _Builder(text, rules).documents():
            found.append(node)
    except NotYaml as error:
        error.document = len(found) + 1
        raise
    except (yaml.YAMLError, ValueError) as error:  # no number: 0b_; no text: "\ud800"
        wrong = _explained(error)
        wrong.document = len(found) + 1
        raise wrong from error
    return found


def single(text: str, rules: Rules, what: str) -> Node | None:
    """Parse the one document of a text, None if it is empty. Raises NotYaml.

    `what` names the kind of text in the error about a second document.
    """
    found = [node for node in documents(text, rules) if node.value is not None]
    if len(found) > 1:
        msg = f"a second document: a file is one {what}"
        raise NotYaml(msg, found[1].row)
    return found[0] if found else None


def plain(node: Node) -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON value of a node; aliases share it as well."""
    return _plain(node, {})


def _plain(node: Node, done: dict[int, Any]) -> Any:  # noqa: ANN401 - any JSON
    if id(node) not in done:
        match node.value:
            case dict() as members:
                done[id(node)] = {key: _plain(one, done) for key, one in members.items()}
            case list() as items:
                done[id(node)] = [_plain(one, done) for one in items]
            case value:
                return value
    return done[id(node)]


def _explained(error: Exception) -> NotYaml:
    """Return an error with the problem and its place in one line, but no text of the value."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return NotYaml(f"not YAML: {' '.join(str(error).split())}")
    what = ", ".join(part for part in (error.context, error.problem) if part)
    mark = error.problem_mark or error.context_mark
    row, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    return NotYaml(f"not YAML: {what}", row, column=column)


class _Builder:
    """Builds values from the parser events of one text."""

    def __init__(self, text: str, rules: Rules) -> None:
        self._events = (_Words if rules.words else _Texts)(text)
        self._scalars = yaml.constructor.SafeConstructor()
        self._rules = rules
        self._anchors: dict[str, tuple[Node, int] | None] = {}  # None: its anchor is not complete
        self._number = self._depth = 0

    def documents(self) -> Iterator[Node]:
        """Yield each document. Raises NotYaml, yaml.YAMLError, ValueError."""
        self._events.get_event()  # the begin of the stream
        while not isinstance(self._events.get_event(), yaml.StreamEndEvent):
            self._anchors.clear()
            event = self._events.get_event()
            yield self._value(event, _row(event), "")
            self._events.get_event()  # the end of the document

    def _value(self, event: _Event, row: int, key: str) -> Node:
        self._number += 1
        before, name = self._number, event.anchor
        if isinstance(event, yaml.AliasEvent):
            node = self._alias(name, row, key)
        elif isinstance(event, yaml.ScalarEvent):
            node = Node(self._scalar(event, row, key), row, key)
        else:
            node = self._collection(event, row, key)
        if self._number > self._rules.most:
            msg = f"more than {self._rules.most} values, aliases followed"
            raise NotYaml(msg, row, key)
        if name and not isinstance(event, yaml.AliasEvent):
            self._anchors[name] = node, self._number - before
        return node

    def _alias(self, name: str, row: int, key: str) -> Node:
        if not self._rules.aliases:
            msg = "an alias"
            raise NotYaml(msg, row, key)
        if (found := self._anchors.get(name)) is None:
            msg = (
                f"an alias of {'something that it lies in' if name in self._anchors else 'nothing'}"
            )
            raise NotYaml(msg, row, key)
        node, number = found
        self._number += number
        return node

    def _collection(self, event: _Event, row: int, key: str) -> Node:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", f"{_TAG}map" if is_mapping else f"{_TAG}seq"):
            raise _not_of_json(event.tag, row, key)
        if self._depth == _DEEPEST:
            msg = "not YAML: nested too deeply"
            raise NotYaml(msg, row)
        self._depth += 1
        if event.anchor:
            self._anchors[event.anchor] = None
        node = Node(self._members(key) if is_mapping else self._items(key), row, key)
        self._depth -= 1
        return node

    def _items(self, key: str) -> list[Node]:
        found = list[Node]()
        while not isinstance(event := self._events.get_event(), yaml.SequenceEndEvent):
            found.append(self._value(event, _row(event), f"{key}[{len(found)}]"))
        return found

    def _members(self, key: str) -> dict[str, Node]:
        own, merged = dict[str, Node](), list[dict[str, Node]]()
        while not isinstance(name := self._events.get_event(), yaml.MappingEndEvent):
            if self._is_merge(name):
                merged += _merged(self._value(self._events.get_event(), _row(name), key))
                continue
            text = self._key(name, key)
            below = _below(key, text)
            if text in own:
                msg = "this key is here twice"
                raise NotYaml(msg, _row(name), below)
            own[text] = self._value(self._events.get_event(), _row(name), below)
        for members in merged:
            own = {**members, **own}
        return own

    def _is_merge(self, name: _Event) -> bool:
        is_sign = isinstance(name, yaml.ScalarEvent) and name.value == "<<"
        return is_sign and self._tag(name) == "merge"

    def _key(self, name: _Event, key: str) -> str:
        row, is_scalar = _row(name), isinstance(name, yaml.ScalarEvent)
        value = self._scalar(name, row, key) if is_scalar else None
        if isinstance(value, str):
            return value
        if not is_scalar or not self._rules.keys_become_text:
            said = f"the key {name.value}" if is_scalar else "a key"
            msg = f"{said} is no text: put it into quotes"
            raise NotYaml(msg, row, key)
        return "null" if value is None else str(value).lower()

    def _scalar(self, event: _Event, row: int, key: str) -> bool | int | float | str | None:
        tag = self._tag(event)
        if tag == "str":
            event.value.encode()  # half of a surrogate pair has no UTF-8
            return str(event.value)
        if tag not in _SCALARS:
            raise _not_of_json(tag, row, key)
        construct = getattr(self._scalars, f"construct_yaml_{tag}")
        value: bool | int | float | None = construct(yaml.ScalarNode(tag, event.value))
        if self._rules.any_number:
            return value
        if isinstance(value, float) and not math.isfinite(value):
            raise _not_of_json(event.value, row, key)
        if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
            msg = f"{event.value} is no number that OPA reads"
            raise NotYaml(msg, row, key)
        return value

    def _tag(self, event: yaml.ScalarEvent) -> str:
        tag = event.tag
        if tag in (None, "!"):
            tag = self._events.resolve(yaml.ScalarNode, event.value, event.implicit)
        return str(tag).removeprefix(_TAG)


def _merged(node: Node) -> list[dict[str, Node]]:
    found = node.value if isinstance(node.value, list) else [node]
    members = [one.value for one in found if isinstance(one.value, dict)]
    if len(members) < len(found):
        msg = "<< merges mappings and nothing else"
        raise NotYaml(msg, node.row, node.key)
    return members


def _not_of_json(what: str, row: int, key: str) -> NotYaml:
    return NotYaml(f"{what.removeprefix(_TAG)} is not of JSON", row, key)


def _row(event: _Event) -> int:
    return int(event.start_mark.line) + 1


def _below(key: str, name: str) -> str:
    shown = name if name.replace("-", "").replace("_", "").isalnum() else f'"{name}"'
    return f"{key}.{shown}" if key else shown
