"""The kinds and links of a topology: the Gateway API, and those of the configuration.

Invariant: objects of configured kinds are targetable as any. Paths begin at configured roots as
they do at classes and gateways, so policies lose no path if there is such a root.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from kube_sync.config import PolicyTopology, TopologyLink
from kube_sync.topology.gateway import GATEWAY_CLASS, GatewayApi
from kube_sync.topology.links import Link, View
from kube_sync.topology.nodes import NAMESPACE, Body, GroupKind, Kind, Locator, Node, locator
from kube_sync.topology.raw_json import Malformed, mapping, text


@dataclass(frozen=True, slots=True)
class Shape:
    """The kinds and links of a topology, and the kinds of roots beside those of policies."""

    kinds: tuple[Kind, ...]
    links: tuple[Link, ...]
    roots: frozenset[GroupKind] = frozenset()


def topology_shape(api: GatewayApi, settings: PolicyTopology) -> Shape:
    """Return the Gateway API with the validated configuration added."""
    sections = (kind.sections.kind for kind in api.kinds if kind.sections is not None)
    known = {NAMESPACE, *(kind.id for kind in api.kinds), *sections}
    roots = [_kind(name) for name in settings.roots]
    links = [_link(link, _kind(link.parent), _kind(link.child)) for link in settings.links]
    linked = {link.parent for link in links}
    own = dict.fromkeys([*roots, *(end for link in links for end in (link.parent, link.child))])
    links += [_link_to_all(root, GATEWAY_CLASS) for root in roots if root not in linked]
    kinds = tuple(Kind(kind) for kind in own if kind not in known)
    return Shape((*api.kinds, *kinds), (*api.links, *links), frozenset(roots))


def _link(link: TopologyLink, parent: GroupKind, child: GroupKind) -> Link:
    if link.field is None:
        return _link_to_all(parent, child)
    if link.kind == link.parent:
        return Link(parent, child, children=partial(_named, kind=child, path=link.field))
    return Link(parent, child, parents=partial(_named, kind=parent, path=link.field))


def _link_to_all(parent: GroupKind, child: GroupKind) -> Link:
    def parents(_node: Node, view: View) -> Iterator[Locator]:
        return (node.locator for node in view.in_all_namespaces(parent))

    return Link(parent, child, parents=parents)


def _named(node: Node, view: View, *, kind: GroupKind, path: str) -> Iterator[Locator]:
    """Yield the objects of a kind that a field refers to. Raises Malformed."""
    for value in _values(node.body, path.split("."), path):
        namespace, name = _reference(value, kind, path)
        for where in (
            locator(kind, namespace or node.namespace, name),
            locator(kind, "", name),  # of a cluster-scoped kind
        ):
            if name and view.get(where) is not None:
                yield where
                break


def _reference(value: object, kind: GroupKind, path: str) -> tuple[str, str]:
    """Return namespace and name, no name for a reference to another kind. Raises Malformed."""
    if isinstance(value, str):
        return "", value
    if not isinstance(value, Mapping):
        msg = f"{path}: expected a name or a reference"
        raise Malformed(msg)
    named = GroupKind(
        text(value, "group", default=kind.group), text(value, "kind", default=kind.kind)
    )
    return text(value, "namespace"), text(value, "name") if named == kind else ""


def _values(body: Body, fields: list[str], path: str) -> Iterator[object]:
    """Yield the values at a path, item by item for each list on it."""
    found: list[object] = [body]
    for field in fields:
        inside = (mapping({path: one}, path).get(field) for one in found)
        found = [item for value in inside for item in _items(value)]
    yield from found


def _items(value: object) -> Iterable[object]:
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)


def _kind(name: str) -> GroupKind:
    kind, _, group = name.partition(".")
    return GroupKind(group, kind)
