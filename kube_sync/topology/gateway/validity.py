"""Which listeners accept a route, and which Gateways a ListenerSet, beyond the reference itself.

Invariant: these rules can only exclude listeners. By the Gateway API reference: Listener.hostname,
AllowedRoutes, RouteGroupKind, AllowedListeners; label selectors are those of Kubernetes
(metav1.LabelSelector).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kube_sync.topology.gateway.kinds import GROUP, ROUTES
from kube_sync.topology.links import View
from kube_sync.topology.nodes import NAMESPACE, Body, GroupKind, Node, locator
from kube_sync.topology.raw_json import Malformed, items, mapping, text, texts

_HTTP, _GRPC, _TCP, _TLS, _UDP = ROUTES
_OF_PROTOCOL = {
    "HTTP": frozenset({_HTTP, _GRPC}),
    "HTTPS": frozenset({_HTTP, _GRPC}),
    "TLS": frozenset({_TLS, _TCP}),
    "TCP": frozenset({_TCP}),
    "UDP": frozenset({_UDP}),
}
WITH_HOSTNAMES = frozenset({_HTTP, _GRPC, _TLS})
ANY_HOSTNAME = "*"
_NAME = "kubernetes.io/metadata.name"  # the label that every namespace has


@dataclass(frozen=True, slots=True)
class Validity:
    """Which rules of the Gateway API links respect."""

    ports: bool = True  # parentRef.port
    hostnames: bool = True
    allowed_routes: bool = True
    reference_grants: bool = True
    allowed_listeners: bool = True  # which ListenerSets a Gateway accepts
    listener_conflicts: bool = True  # between the listeners of a Gateway's ListenerSets


PLAIN = Validity(
    ports=False,
    hostnames=False,
    allowed_routes=False,
    reference_grants=False,
    allowed_listeners=False,
    listener_conflicts=False,
)


def allows(listener: Node, route: Node, view: View) -> bool:
    """Return whether a listener accepts that kind and namespace of a route. Raises Malformed."""
    kinds, mode = _allowed(listener)
    if kinds is not None and route.kind not in kinds:
        return False
    if mode == "Selector":
        return _is_namespace_selected(
            mapping(listener.body, "allowedRoutes", "namespaces"), route, view
        )
    return mode == "All" or (mode == "Same" and listener.namespace == route.namespace)


def accepts(gateway: Node, listener_set: Node, view: View) -> bool:
    """Return whether a Gateway accepts ListenerSets from a namespace. Raises Malformed."""
    namespaces = mapping(gateway.body, "spec", "allowedListeners", "namespaces")
    mode = text(namespaces, "from", default="None")
    if mode == "Selector":
        return _is_namespace_selected(namespaces, listener_set, view)
    return mode == "All" or (mode == "Same" and gateway.namespace == listener_set.namespace)


def _is_namespace_selected(namespaces: Body, node: Node, view: View) -> bool:
    """Return whether a selector matches the namespace of a node."""
    if namespaces.get("selector") is None:
        return False  # it is required; `{}` is one, and matches all
    found = view.get(locator(NAMESPACE, "", node.namespace))
    labels = mapping(found.body, "metadata", "labels") if found else {}
    return matches_selector(mapping(namespaces, "selector"), {**labels, _NAME: node.namespace})


def have_common_hostname(listener: Node, route: Node) -> bool:
    """Return whether a listener and a route have a hostname in common. Raises Malformed."""
    own = text(listener.body, "hostname").lower()
    if not own or route.kind not in WITH_HOSTNAMES:
        return True
    wanted = texts(route.body, "spec", "hostnames")
    return not wanted or any(_overlap(own, name.lower()) for name in wanted)


def shared_hostnames(own: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the intersection of hostnames in lower case, the narrower one of each pair.

    If one side has none it is that of the other; `*` if both have none.
    """
    if not own or not wanted:
        return tuple(dict.fromkeys(own or wanted)) or (ANY_HOSTNAME,)
    # Of two that overlap the longer one is narrower: a wildcard matches one or more labels.
    found = {
        max(one, other, key=_width): None for one in own for other in wanted if _overlap(one, other)
    }
    return tuple(found)


def _width(name: str) -> tuple[bool, int]:
    return not name.startswith("*."), len(name)


def _overlap(one: str, other: str) -> bool:
    if one == other:
        return True
    if one.startswith("*."):
        return other.endswith(one[1:]) or (other.startswith("*.") and one.endswith(other[1:]))
    return other.startswith("*.") and one.endswith(other[1:])


@lru_cache(maxsize=1024)  # called for every route
def _allowed(listener: Node) -> tuple[frozenset[GroupKind] | None, str]:
    """Return the allowed kinds of routes, None for all, and the mode for namespaces."""
    named = frozenset(
        GroupKind(text(kind, "group", default=GROUP), text(kind, "kind"))
        for kind in items(listener.body, "allowedRoutes", "kinds")
    )
    mode = text(listener.body, "allowedRoutes", "namespaces", "from", default="Same")
    possible = _OF_PROTOCOL.get(text(listener.body, "protocol"))
    if possible is None or not named:
        return named or possible, mode
    return named & possible, mode  # named kinds narrow those of the protocol


def matches_selector(selector: Body, labels: Mapping[str, str]) -> bool:
    """Return whether a selector matches labels; an empty one matches all. Raises Malformed."""
    wanted = mapping(selector, "matchLabels")
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _matches(expression, labels) for expression in items(selector, "matchExpressions")
    )


def _matches(expression: Body, labels: Mapping[str, str]) -> bool:
    key, operator = text(expression, "key"), text(expression, "operator")
    values = texts(expression, "values")
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    msg = f'matchExpressions.operator: "{operator}" is none'
    raise Malformed(msg)
