"""Links between nodes, said from the side that knows: a child its parents, a parent its children.

Keeps true: whatever a link looks at to give its answer is written down, found or not, so that
exactly the nodes whose answer may differ are asked again when something changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kube_sync.topology.conditions import Condition
from kube_sync.topology.identity import GroupKind, Locator
from kube_sync.topology.nodes import Node

# A locator, or (kind, namespace) for all of these; None is any namespace.
Topic = Hashable

Collections = Mapping[GroupKind, Mapping[str, Mapping[Locator, Node]]]  # by kind and namespace


class View:
    """What one node sees of the others while its links are asked."""

    def __init__(
        self,
        nodes: Mapping[Locator, Node],
        sections: Mapping[Locator, Sequence[Node]],
        collections: Collections,
    ) -> None:
        self._nodes = nodes
        self._sections = sections
        self._collections = collections
        self._asking: Node | None = None
        self.seen: set[Topic] = set()
        self.said: list[Condition] = []

    def begin(self, node: Node) -> None:
        """Look with the eyes of another node, and forget what the last one saw."""
        self._asking, self.seen, self.said = node, set(), []

    def get(self, locator: Locator) -> Node | None:
        """Return a node, if it is there."""
        self.seen.add(locator)
        return self._nodes.get(locator)

    def sections(self, locator: Locator) -> Sequence[Node]:
        """Return the sections of an object, in its order."""
        self.seen.add(locator)
        return self._sections.get(locator, ())

    def all(self, kind: GroupKind, namespace: str = "") -> Iterable[Node]:
        """Return the nodes of a kind in a namespace, in no order."""
        self.seen.add((kind, namespace))
        return self._collections.get(kind, {}).get(namespace, {}).values()

    def every(self, kind: GroupKind) -> Iterable[Node]:
        """Return the nodes of a kind in all namespaces, in no order."""
        self.seen.add((kind, None))
        spaces = self._collections.get(kind, {}).values()
        return (node for nodes in spaces for node in nodes.values())

    def complain(self, kind: str, reason: str, message: str, status: str = "False") -> None:
        """Put a condition on the node that looks."""
        assert self._asking is not None  # noqa: S101 - begin() comes first
        self.said.append(Condition(self._asking.locator, kind, status, reason, message))


Linked = Callable[[Node, View], Iterable[Locator]]


@dataclass(frozen=True, slots=True)
class Link:
    """Edges from nodes of one kind to nodes of another; one of the two functions is given.

    `parents` answers for a child, `children` for a parent. What they name and is not there is
    left out until it comes.
    """

    parent: GroupKind
    child: GroupKind
    parents: Linked | None = None
    children: Linked | None = None
