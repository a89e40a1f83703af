"""The Gateway that a policy goes to the spokes with where it names a ListenerSet.

Keeps true: a ListenerSet stands for its Gateway only if that takes it (Gateway API,
AllowedListeners): whoever may write a ListenerSet gets no policy onto the clusters of a Gateway by
that alone. What is not known of ListenerSets and namespaces is never answered as "no".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kube_sync.objects import ObjectKey
from kube_sync.topology import NAMESPACE, Kind, Locator, View
from kube_sync.topology.gateway import GATEWAY, LISTENER_SET
from kube_sync.topology.gateway.listenersets import parents_named
from kube_sync.topology.gateway.validity import takes
from kube_sync.topology.nodes import Body, Node, node_of

_KINDS: Final = {kind: Kind(kind) for kind in (GATEWAY, LISTENER_SET)}
_SPACE: Final = Kind(NAMESPACE, namespaced=False)


@dataclass(frozen=True, slots=True)
class ListenerSets:
    """The ListenerSets of the hub, and the namespaces that they lie in."""

    there: Mapping[ObjectKey, Body] = field(default_factory=dict)
    namespaces: Mapping[ObjectKey, Body] = field(default_factory=dict)
    unknown: str = ""  # what of both is not known


def named_gateway(one: Body) -> ObjectKey | None:
    """Return the Gateway that a ListenerSet names, None for what is none. Raises Malformed."""
    for gateway in parents_named(node_of(_KINDS[LISTENER_SET], one)):
        namespace, _, name = gateway.partition(":")[2].partition("/")
        return ObjectKey(namespace, name)
    return None


def is_attached(one: Body, gateway: Body, known: ListenerSets) -> bool:
    """Tell whether a Gateway takes a ListenerSet that names it. Raises Malformed."""
    node = node_of(_KINDS[LISTENER_SET], one)
    spaces = _space(known.namespaces.get(ObjectKey("", node.namespace)))
    return takes(node_of(_KINDS[GATEWAY], gateway), node, View(spaces, {}, {}))


def _space(namespace: Body | None) -> dict[Locator, Node]:
    if namespace is None:
        return {}
    node = node_of(_SPACE, namespace)
    return {node.locator: node}
