"""A topology as a picture's source for Graphviz (the DOT language).

Keeps true: the same nodes and edges give the same bytes; a text of an object cannot become more
than a text of the picture.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_sync.topology.identity import Locator
from kube_sync.topology.nodes import Node, Role
from kube_sync.topology.topology import Topology

_LOOKS = {
    Role.TARGETABLE: 'shape="box",style="filled",fillcolor="#e5e5e5"',
    Role.POLICY: 'shape="note",style="dashed"',
    Role.OBJECT: 'shape="ellipse"',
}


def dot(topology: Topology, limit: int | None = None) -> str:
    """Return the digraph, or one that says its size where it has more than `limit` bytes."""
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
        yield f'  n{number} [label="{label}",{_LOOKS[node.role]}];'
    for parent, child in topology.all.edges():
        yield f"  {names[parent]} -> {names[child]} [{_edge(topology[parent], topology[child])}];"
    yield "}"


def _edge(parent: Node, child: Node) -> str:
    if parent.role is Role.POLICY:
        return 'comment="Policy -> Target",style="dashed"'
    return f'comment="{_quoted(parent.kind.kind)} -> {_quoted(child.kind.kind)}"'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
