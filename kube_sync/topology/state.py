"""The objects of a topology by locator, with their sections, and by kind and namespace.

Invariant: a node exists exactly while its object does. An object with an invalid part is kept,
without the sections that follow, and with a condition that reports it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from kube_sync.topology.conditions import ACCEPTED, Condition
from kube_sync.topology.links import Topic, View
from kube_sync.topology.nodes import (
    Body,
    GroupKind,
    Kind,
    Locator,
    Node,
    kind_of,
    node_of,
    sections_of,
)
from kube_sync.topology.raw_json import UNREADABLE, Malformed, reason


@dataclass(slots=True)
class Difference:
    """The result of a batch of changes."""

    removed: set[Locator] = field(default_factory=set)
    added: dict[Locator, Node] = field(default_factory=dict)  # new ones and new versions
    topics: set[Topic] = field(default_factory=set)  # what a link may have read
    before: dict[Locator, Body | None] = field(default_factory=dict)  # objects, None: did not exist


class State:
    """The existing nodes."""

    def __init__(self, kinds: Mapping[GroupKind, Kind]) -> None:
        self.kinds = kinds
        self.nodes: dict[Locator, Node] = {}
        self.conditions: dict[Locator, Sequence[Condition]] = {}  # by object
        self._sections: dict[Locator, tuple[Node, ...]] = {}
        self._collections: dict[GroupKind, dict[str, dict[Locator, Node]]] = {}
        self._indexed: dict[tuple[GroupKind, Hashable], dict[Locator, Node]] = {}
        self.view = View(self.nodes, self._sections, self._collections, self._indexed)

    def of(self, kind: GroupKind) -> list[Locator]:
        """Return the nodes of a kind, sorted."""
        namespaces = self._collections.get(kind, {}).values()
        return sorted(locator for nodes in namespaces for locator in nodes)

    def in_namespace(self, namespace: str) -> list[Locator]:
        """Return the nodes in a namespace."""
        namespaces = (kinds.get(namespace, ()) for kinds in self._collections.values())
        return [locator for nodes in namespaces for locator in nodes]

    def put(self, body: Body, difference: Difference) -> None:
        """Add an object, unless its kind is unknown. Raises Terminal: it has no name."""
        kind = self.kinds.get(_kind_of(body))
        if kind is None:
            return
        node = node_of(kind, body)
        self.drop(node.locator, difference)
        sections, problems = _sections(kind, node)
        self._sections[node.locator] = sections
        if problems:
            self.conditions[node.locator] = problems
        for new in (node, *sections):
            self.nodes[new.locator] = difference.added[new.locator] = new
            namespaces = self._collections.setdefault(new.kind, {})
            namespaces.setdefault(new.namespace, {})[new.locator] = new
            difference.removed.discard(new.locator)
            difference.topics.update(_topics(new))
        for key in _keys(kind, node):
            self._indexed.setdefault((kind.id, key), {})[node.locator] = node
            difference.topics.add((kind.id, key))

    def drop(self, locator: Locator, difference: Difference) -> None:
        """Remove an object, if it exists."""
        if locator not in self._sections:
            difference.before.setdefault(locator, None)
            return
        node = self.nodes[locator]
        difference.before.setdefault(locator, node.body)
        self.conditions.pop(locator, None)
        self._unindex(node, difference)
        for old in (node, *self._sections.pop(locator)):
            del self.nodes[old.locator]
            self._uncollect(old)
            difference.added.pop(old.locator, None)
            difference.removed.add(old.locator)
            difference.topics.update(_topics(old))

    def restore(self, difference: Difference) -> None:
        """Restore the objects as they were before a difference."""
        for locator, body in list(difference.before.items()):
            if body is None:
                self.drop(locator, difference)
            else:
                self.put(body, difference)

    def _unindex(self, node: Node, difference: Difference) -> None:
        for key in _keys(self.kinds[node.kind], node):
            under = self._indexed[node.kind, key]
            under.pop(node.locator, None)
            if not under:
                del self._indexed[node.kind, key]
            difference.topics.add((node.kind, key))

    def _uncollect(self, node: Node) -> None:
        namespaces = self._collections[node.kind]
        del namespaces[node.namespace][node.locator]
        if not namespaces[node.namespace]:  # drop empty ones: namespaces come and go
            del namespaces[node.namespace]


def _topics(node: Node) -> tuple[Topic, ...]:
    return node.locator, (node.kind, node.namespace), (node.kind, None)


def _kind_of(body: Body) -> GroupKind:
    try:
        return kind_of(body)
    except Malformed:
        return GroupKind("", "")


def _keys(kind: Kind, node: Node) -> set[Hashable]:
    try:
        return set(kind.index(node)) if kind.index else set()
    except UNREADABLE:
        return set()


def _sections(kind: Kind, node: Node) -> tuple[tuple[Node, ...], list[Condition]]:
    found: dict[Locator, Node] = {}
    conditions: list[Condition] = []
    try:
        for section in sections_of(kind, node):
            if section.locator in found:
                name = section.name.partition("#")[2]
                conditions.append(
                    _invalid(node, f'two sections are named "{name}": the first counts')
                )
            found.setdefault(section.locator, section)
    except UNREADABLE as error:
        conditions.append(_invalid(node, reason(error)))
    return tuple(found.values()), conditions


def _invalid(node: Node, message: str) -> Condition:
    return Condition(node.locator, ACCEPTED, "False", "Invalid", message)
