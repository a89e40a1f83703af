"""Maintains the edges of a topology: recomputes those of a node when something it read has changed.

Invariant: the edges are those that all nodes would have if recomputed now. An edge comes from one
of its ends or both, and each is recomputed when a topic that it read is among what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kube_sync.topology.conditions import ACCEPTED, Condition
from kube_sync.topology.links import Link, Topic, View
from kube_sync.topology.nodes import GroupKind, Locator, Node
from kube_sync.topology.raw_json import UNREADABLE, reason

Edge = tuple[Locator, Locator]  # parent, child
_NONE: frozenset[Edge] = frozenset()


@dataclass(slots=True)
class EdgeChanges:
    """The edges that were added and removed."""

    added: set[Edge] = field(default_factory=set)
    removed: set[Edge] = field(default_factory=set)


class EdgeIndex:
    """The edges and conditions of every node, with the topics that it read."""

    def __init__(self, links: Iterable[Link], view: View) -> None:
        self.view = view
        self.conditions: dict[Locator, Sequence[Condition]] = {}
        self._links: dict[GroupKind, list[Link]] = {}
        for link in links:
            self._links.setdefault(link.child if link.parents else link.parent, []).append(link)
        self._edges: dict[Locator, frozenset[Edge]] = {}
        self._topics: dict[Locator, set[Topic]] = {}
        self._readers: dict[Topic, dict[Locator, None]] = {}

    def readers(self, topics: Iterable[Topic]) -> Iterator[Locator]:
        """Yield the nodes that read any of these topics, some of them twice."""
        for topic in topics:
            yield from self._readers.get(topic, ())

    def has_edge(self, edge: Edge) -> bool:
        """Return whether either end of an edge has it."""
        return any(edge in self._edges.get(end, _NONE) for end in edge)

    def remove(self, node: Locator, changes: EdgeChanges) -> None:
        """Remove the edges of a deleted node."""
        self.conditions.pop(node, None)
        self._set_topics(node, set())
        changes.removed |= self._edges.pop(node, _NONE)

    def recompute(self, node: Node, others: Iterable[Edge], changes: EdgeChanges) -> None:
        """Recompute the edges of a node; `others` are edges of it that no link is for."""
        edges = frozenset(self._compute(node, others))
        before = self._edges.get(node.locator, _NONE)
        self._edges[node.locator] = edges
        changes.added |= edges - before
        changes.removed |= before - edges

    def _compute(self, node: Node, others: Iterable[Edge]) -> set[Edge]:
        edges = set(others)
        try:
            for link in self._links.get(node.kind, ()):
                edges.update(self._edges_of(link, node))
        except UNREADABLE as error:
            self.view.add_condition(ACCEPTED, "Invalid", reason(error))
        self._set_topics(node.locator, self.view.topics)
        self.conditions.pop(node.locator, None)
        if self.view.conditions:
            self.conditions[node.locator] = tuple(self.view.conditions)
        return edges

    def _edges_of(self, link: Link, node: Node) -> Iterator[Edge]:
        if link.parents is not None:
            for parent in link.parents(node, self.view):
                if self.view.get(parent):
                    yield parent, node.locator
        if link.children is not None:
            for child in link.children(node, self.view):
                if self.view.get(child):
                    yield node.locator, child

    def _set_topics(self, node: Locator, topics: set[Topic]) -> None:
        before = self._topics.pop(node, set())
        if topics:
            self._topics[node] = topics
        for topic in before - topics:
            readers = self._readers[topic]
            del readers[node]
            if not readers:
                del self._readers[topic]
        for topic in topics - before:
            self._readers.setdefault(topic, {})[node] = None
