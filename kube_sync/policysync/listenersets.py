"""Resolves a ListenerSet that a policy names to the Gateway that the policy is synced with.

Invariant: a ListenerSet stands for its Gateway only if that Gateway accepts it (Gateway API,
AllowedListeners): the right to write ListenerSets alone brings no policy onto the clusters of a
Gateway. If ListenerSets or namespaces are unknown, the answer is never "no".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kube_sync.objects import ObjectKey
from kube_sync.topology import NAMESPACE, Kind, Locator, View
from kube_sync.topology.gateway import GATEWAY, LISTENER_SET
from kube_sync.topology.gateway.listenersets import parents_named
from kube_sync.topology.gateway.validity import accepts
from kube_sync.topology.nodes import Body, Node, node_of

_KINDS: Final = {kind: Kind(kind) for kind in (GATEWAY, LISTENER_SET)}
_NAMESPACE_KIND: Final = Kind(NAMESPACE, namespaced=False)


@dataclass(frozen=True, slots=True)
class ListenerSets:
    """The ListenerSets of the hub, and their namespaces."""

    objects: Mapping[ObjectKey, Body] = field(default_factory=dict)
    namespaces: Mapping[ObjectKey, Body] = field(default_factory=dict)
    unknown: str = ""  # which of both is unknown


def named_gateway(one: Body) -> ObjectKey | None:
    """Return the Gateway that a ListenerSet names, None for another kind. Raises Malformed."""
    for gateway in parents_named(node_of(_KINDS[LISTENER_SET], one)):
        namespace, _, name = gateway.partition(":")[2].partition("/")
        return ObjectKey(namespace, name)
    return None


def is_attached(one: Body, gateway: Body, known: ListenerSets) -> bool:
    """Return whether a Gateway accepts a ListenerSet that names it. Raises Malformed."""
    node = node_of(_KINDS[LISTENER_SET], one)
    namespaces = _namespace_nodes(known.namespaces.get(ObjectKey("", node.namespace)))
    return accepts(node_of(_KINDS[GATEWAY], gateway), node, View(namespaces, {}, {}))


def _namespace_nodes(namespace: Body | None) -> dict[Locator, Node]:
    if namespace is None:
        return {}
    node = node_of(_NAMESPACE_KIND, namespace)
    return {node.locator: node}
