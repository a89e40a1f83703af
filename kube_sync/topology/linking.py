"""Maintains the edges of a topology: recomputes those of a node when something it read has changed.

Invariant: the edges are those that all nodes would have if recomputed now. An edge comes from one
of its ends or both, and each is recomputed when a topic that it read is among what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kube_sync.topology.conditions import ACCEPTED, Condition
from kube_sync.topology.identity import GroupKind, Locator
from kube_sync.topology.links import Link, Topic, View
from kube_sync.topology.nodes import Node
from kube_sync.topology.raw_json import UNREADABLE, reason

Edge = tuple[Locator, Locator]  # parent, child
_NONE: frozenset[Edge] = frozenset()


@dataclass(slots=True)
class Rewired:
    """The edges that were added and removed."""

    come: set[Edge] = field(default_factory=set)
    gone: set[Edge] = field(default_factory=set)


class Linker:
    """The edges and conditions of every node, with the topics that it read."""

    def __init__(self, links: Iterable[Link], view: View) -> None:
        self.view = view
        self.said: dict[Locator, Sequence[Condition]] = {}
        self._links: dict[GroupKind, list[Link]] = {}
        for link in links:
            self._links.setdefault(link.child if link.parents else link.parent, []).append(link)
        self._edges: dict[Locator, frozenset[Edge]] = {}
        self._seen: dict[Locator, set[Topic]] = {}
        self._watchers: dict[Topic, dict[Locator, None]] = {}

    def watching(self, topics: Iterable[Topic]) -> Iterator[Locator]:
        """Yield the nodes that read any of these topics, some of them twice."""
        for topic in topics:
            yield from self._watchers.get(topic, ())

    def says(self, edge: Edge) -> bool:
        """Return whether either end of an edge has it."""
        return any(edge in self._edges.get(end, _NONE) for end in edge)

    def forget(self, node: Locator, rewired: Rewired) -> None:
        """Remove the edges of a deleted node."""
        self.said.pop(node, None)
        self._watch(node, set())
        rewired.gone |= self._edges.pop(node, _NONE)

    def ask(self, node: Node, others: Iterable[Edge], rewired: Rewired) -> None:
        """Recompute the edges of a node; `others` are edges of it that no link is for."""
        edges = frozenset(self._answer(node, others))
        before = self._edges.get(node.locator, _NONE)
        self._edges[node.locator] = edges
        rewired.come |= edges - before
        rewired.gone |= before - edges

    def _answer(self, node: Node, others: Iterable[Edge]) -> set[Edge]:
        edges = set(others)
        try:
            for link in self._links.get(node.kind, ()):
                edges.update(self._linked(link, node))
        except UNREADABLE as error:
            self.view.complain(ACCEPTED, "Invalid", reason(error))
        self._watch(node.locator, self.view.seen)
        self.said.pop(node.locator, None)
        if self.view.said:
            self.said[node.locator] = tuple(self.view.said)
        return edges

    def _linked(self, link: Link, node: Node) -> Iterator[Edge]:
        if link.parents is not None:
            for parent in link.parents(node, self.view):
                if self.view.get(parent):
                    yield parent, node.locator
        if link.children is not None:
            for child in link.children(node, self.view):
                if self.view.get(child):
                    yield node.locator, child

    def _watch(self, node: Locator, topics: set[Topic]) -> None:
        before = self._seen.pop(node, set())
        if topics:
            self._seen[node] = topics
        for topic in before - topics:
            watchers = self._watchers[topic]
            del watchers[node]
            if not watchers:
                del self._watchers[topic]
        for topic in topics - before:
            self._watchers.setdefault(topic, {})[node] = None
