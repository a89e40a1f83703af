"""Renders a topology as SVG, and as Graphviz source (the DOT language).

Invariant: the same nodes and edges give the same bytes; text of an object is always escaped. SVG
has layers from left to right, every edge pointing right. It needs no program and no font metrics,
so a long name is cut, and complete in the tooltip: it is for topologies that a person can look at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from kube_sync.observability.printing import plain
from kube_sync.topology.graph import Graph
from kube_sync.topology.nodes import Locator, Node, Role
from kube_sync.topology.topology import Topology

_WIDTH, _HEIGHT = 220, 44  # of a node, in pixels
_ACROSS, _DOWN, _MARGIN = 70, 16, 20
_LETTERS = 30  # letters that fit into a node
_STYLES = {
    Role.TARGETABLE: 'fill="#e8eef7" stroke="#35507a" rx="4"',
    Role.POLICY: 'fill="#fff6dd" stroke="#8a6d1a" stroke-dasharray="5 3"',
    Role.OBJECT: 'fill="#f2f2f2" stroke="#666666" rx="22"',
}
_Places = Mapping[Locator, tuple[int, int]]  # the upper left corner

_DOT_STYLES = {
    Role.TARGETABLE: 'shape="box",style="filled",fillcolor="#e5e5e5"',
    Role.POLICY: 'shape="note",style="dashed"',
    Role.OBJECT: 'shape="ellipse"',
}


def dot(topology: Topology, limit: int | None = None) -> str:
    """Return the digraph, or one with only its size if it has more than `limit` bytes."""
    text = "".join(f"{line}\n" for line in _lines(topology))
    size = len(text.encode())
    if limit is None or size <= limit:
        return text
    label = f"this topology has {size} bytes, more than the {limit} that fit here"
    return f'digraph {{\n  error [label="{label}",shape="box"];\n}}\n'


def _lines(topology: Topology) -> Iterator[str]:
    yield "digraph {"
    yield "  rankdir=LR;"
    names: dict[Locator, str] = {}
    for number, node in enumerate(topology.nodes(), 1):
        names[node.locator] = f"n{number}"
        label = f"{_quoted(node.kind.kind)}\\n{_quoted(node.full_name)}"
        yield f'  n{number} [label="{label}",{_DOT_STYLES[node.role]}];'
    for parent, child in topology.all.edges():
        style = _dot_edge(topology[parent], topology[child])
        yield f"  {names[parent]} -> {names[child]} [{style}];"
    yield "}"


def _dot_edge(parent: Node, child: Node) -> str:
    if parent.role is Role.POLICY:
        return 'comment="Policy -> Target",style="dashed"'
    return f'comment="{_quoted(parent.kind.kind)} -> {_quoted(child.kind.kind)}"'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def svg(topology: Topology) -> str:
    """Return the SVG of a topology without loops."""
    places = _places(topology.all)
    width = max((x for x, _ in places.values()), default=0) + _WIDTH + _MARGIN
    height = max((y for _, y in places.values()), default=0) + _HEIGHT + _MARGIN
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        *(_edge(topology, places, *edge) for edge in topology.all.edges()),
        *(_node(node, *places[node.locator]) for node in topology.nodes()),
        "</svg>",
    ]
    return "".join(f"{line}\n" for line in lines)


def layers(graph: Graph) -> list[list[Locator]]:
    """Return the nodes by layer: each after all its parents, and no further than needed.

    A root is in the layer before its first child.
    """
    depth: dict[Locator, int] = {}
    waiting = {node: len(graph.parents(node)) for node in graph}
    ready = [node for node, parents in waiting.items() if not parents]
    for node in ready:  # grows in the loop
        depth[node] = max((depth[parent] + 1 for parent in graph.parents(node)), default=0)
        for child in graph.children(node):
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    for node in graph.roots():
        depth[node] = max(min((depth[child] for child in graph.children(node)), default=1) - 1, 0)
    found: list[list[Locator]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in sorted(depth):
        found[depth[node]].append(node)
    return found


def _places(graph: Graph) -> _Places:
    """Place nodes in columns, each near the middle of its parents."""
    places: dict[Locator, tuple[int, int]] = {}
    for column, nodes in enumerate(layers(graph)):
        x = _MARGIN + column * (_WIDTH + _ACROSS)
        for row, node in enumerate(sorted(nodes, key=lambda n: (_middle(graph, n, places), n))):
            places[node] = (x, _MARGIN + row * (_HEIGHT + _DOWN))
    return places


def _middle(graph: Graph, node: Locator, places: _Places) -> float:
    heights: Sequence[int] = [places[parent][1] for parent in graph.parents(node)]
    return sum(heights) / len(heights) if heights else 0.0


def _edge(topology: Topology, places: _Places, parent: Locator, child: Locator) -> str:
    x, y = places[parent][0] + _WIDTH, places[parent][1] + _HEIGHT // 2
    to_x, to_y = places[child][0], places[child][1] + _HEIGHT // 2
    bend = (x + to_x) // 2
    dashed = ' stroke-dasharray="5 3"' if topology[parent].role is Role.POLICY else ""
    path = f"M{x} {y}C{bend} {y} {bend} {to_y} {to_x} {to_y}"
    return f'<path d="{path}" fill="none" stroke="#888888"{dashed}/>'


def _node(node: Node, x: int, y: int) -> str:
    texts = "".join(_text(node, x, y))
    box = f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" {_STYLES[node.role]}/>'
    return f"<g><title>{_xml_escaped(node.locator)}</title>{box}{texts}</g>"


def _text(node: Node, x: int, y: int) -> Iterator[str]:
    for text, down, style in (
        (node.kind.kind, 17, ' fill="#555555"'),
        (node.full_name, 34, ' font-weight="bold"'),
    ):
        short = text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"
        yield f'<text x="{x + 8}" y="{y + down}"{style}>{_xml_escaped(short)}</text>'


def _xml_escaped(text: str) -> str:
    """Return text escaped for XML, which allows no control characters, escaped or not."""
    return escape(plain(text))
