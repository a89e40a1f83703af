"""The paths from the roots to a node, kept for as long as nothing above it changes.

Keeps true: the paths to a node are those to its parents, each one step longer, so that what many
paths have in common is walked once. Where loops are allowed there is no such order, and paths are
searched one root at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube_sync.topology.graph import Graph, Path
from kube_sync.topology.identity import Locator


class Ways:
    """Paths by the node that they end at."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[Locator, tuple[Path, ...]] = {}
        self.looping = False  # whether the graph has loops

    def to(self, node: Locator) -> tuple[Path, ...]:
        """Return every path from a root to a node, in an order that depends on locators alone."""
        found = self._known.get(node)
        if found is None:
            found = self._searched(node) if self.looping else self._extended(node)
        return found

    def forget(self, nodes: Iterable[Locator]) -> None:
        """Drop what is known of nodes, after a change above them; all below them are named too."""
        for node in nodes:
            self._known.pop(node, None)

    def _extended(self, node: Locator) -> tuple[Path, ...]:
        waiting = [node]  # not recursive: a custom graph may be deep
        while waiting:
            parents = self._graph.parents(waiting[-1])
            missing = [parent for parent in parents if parent not in self._known]
            waiting.extend(missing)
            if not missing:
                self._extend(waiting.pop(), parents)
        return self._known[node]

    def _extend(self, node: Locator, parents: Path) -> None:
        longer = [(*path, node) for parent in parents for path in self._known[parent]]
        self._known[node] = tuple(longer) if parents else ((node,),)

    def _searched(self, node: Locator) -> tuple[Path, ...]:
        roots = self._graph.roots()
        return tuple(path for root in roots for path in self._graph.paths(root, node))
