"""A directed graph of locators: roots, parents, children, paths, loops.

Invariant: an edge exists once however often it is added; every result is sorted, so nothing depends
on the order of input. A result costs its own size, not that of the graph, except for roots and
edges. Paths are cached until something above their end changes: those to a node are those to its
parents, each one step longer, so that common parts are walked once. With loops there is no such
order, and paths are searched root by root.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube_sync.topology.nodes import Locator

Path = tuple[Locator, ...]
_Neighbours = dict[Locator, dict[Locator, None]]


class Graph:
    """Nodes and edges, each once."""

    def __init__(self) -> None:
        self._children: _Neighbours = {}
        self._parents: _Neighbours = {}
        # Sorted neighbours, cached until one is added or removed.
        self._sorted: tuple[dict[Locator, Path], dict[Locator, Path]] = ({}, {})

    def __contains__(self, node: Locator) -> bool:
        return node in self._children

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Locator]:
        return iter(sorted(self._children))

    def add(self, node: Locator) -> None:
        """Add a node."""
        self._children.setdefault(node, {})
        self._parents.setdefault(node, {})

    def remove(self, node: Locator) -> None:
        """Remove a node with its edges."""
        for child in list(self._children.get(node, ())):
            self.disconnect(node, child)
        for parent in list(self._parents.get(node, ())):
            self.disconnect(parent, node)
        self._children.pop(node, None)
        self._parents.pop(node, None)
        for cached in self._sorted:
            cached.pop(node, None)

    def connect(self, parent: Locator, child: Locator) -> None:
        """Add an edge between two existing nodes."""
        self._children[parent][child] = None
        self._parents[child][parent] = None
        self._sorted[0].pop(parent, None)
        self._sorted[1].pop(child, None)

    def disconnect(self, parent: Locator, child: Locator) -> None:
        """Remove an edge, if it exists."""
        self._children.get(parent, {}).pop(child, None)
        self._parents.get(child, {}).pop(parent, None)
        self._sorted[0].pop(parent, None)
        self._sorted[1].pop(child, None)

    def children(self, node: Locator) -> Path:
        """Return the children of a node."""
        return _sorted_neighbours(self._children, self._sorted[0], node)

    def parents(self, node: Locator) -> Path:
        """Return the parents of a node."""
        return _sorted_neighbours(self._parents, self._sorted[1], node)

    def roots(self) -> Path:
        """Return the nodes without parents."""
        return tuple(sorted(node for node, parents in self._parents.items() if not parents))

    def leaves(self) -> Path:
        """Return the nodes without children."""
        return tuple(sorted(node for node, children in self._children.items() if not children))

    def edges(self) -> Iterator[tuple[Locator, Locator]]:
        """Yield every edge."""
        for parent in self:
            for child in self.children(parent):
                yield parent, child

    def below(self, starts: Iterable[Locator]) -> set[Locator]:
        """Return the nodes that are reachable from the starts, including these."""
        return _reachable(self._children, starts)

    def above(self, starts: Iterable[Locator]) -> set[Locator]:
        """Return the nodes from which a start is reachable, including the starts."""
        return _reachable(self._parents, starts)

    def paths(self, start: Locator, end: Locator) -> Iterator[Path]:
        """Yield every path without repeated nodes; from a node to itself, that node alone."""
        useful = self.above([end])  # only steps that can lead there
        if start not in useful:
            return
        if start == end:
            yield (start,)
            return
        path: dict[Locator, None] = {start: None}
        steps = [iter(self.children(start))]
        while steps:
            step = next(steps[-1], None)
            if step is None:
                steps.pop()
                path.popitem()
            elif step == end:
                yield (*path, end)
            elif step in useful and step not in path:
                path[step] = None
                steps.append(iter(self.children(step)))

    def loop(self, starts: Iterable[Locator]) -> Path | None:
        """Return a reachable loop, its first node again at the end, if there is one."""
        done: set[Locator] = set()
        for start in sorted(starts):
            if start not in done and start in self and (found := self._loop_from(start, done)):
                return found
        return None

    def _loop_from(self, start: Locator, done: set[Locator]) -> Path | None:
        path: dict[Locator, None] = {start: None}
        steps = [iter(self.children(start))]
        while steps:
            step = next(steps[-1], None)
            if step is None:
                steps.pop()
                done.add(path.popitem()[0])
            elif step in path:
                visited = list(path)
                return (*visited[visited.index(step) :], step)
            elif step not in done:
                path[step] = None
                steps.append(iter(self.children(step)))
        return None


def _sorted_neighbours(neighbours: _Neighbours, cache: dict[Locator, Path], node: Locator) -> Path:
    found = cache.get(node)
    if found is None:
        found = cache[node] = tuple(sorted(neighbours.get(node, ())))
    return found


def _reachable(neighbours: _Neighbours, starts: Iterable[Locator]) -> set[Locator]:
    found: set[Locator] = {start for start in starts if start in neighbours}
    waiting = list(found)
    while waiting:
        for node in neighbours[waiting.pop()]:
            if node not in found:
                found.add(node)
                waiting.append(node)
    return found


class PathIndex:
    """Paths by the node that they end at."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[Locator, tuple[Path, ...]] = {}
        self.has_loops = False  # whether the graph has loops

    def to(self, node: Locator) -> tuple[Path, ...]:
        """Return every path from a root to a node, in an order that depends on locators alone."""
        found = self._known.get(node)
        if found is None:
            found = self._searched(node) if self.has_loops else self._extended(node)
        return found

    def invalidate(self, nodes: Iterable[Locator]) -> None:
        """Invalidate nodes after a change above them; the caller names all below them too."""
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
