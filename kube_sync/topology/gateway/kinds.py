"""The kinds of the Gateway API that policies attach to, and their sections.

Invariant: a rule without a name is named by its position, the first `rule-1` (so a rule inserted
before it changes what targets it); listeners and ports have names of their own. The listeners of a
ListenerSet are Listeners too; their locators are below it, not below its Gateway.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_sync.topology.nodes import Body, GroupKind, Sections
from kube_sync.topology.raw_json import Malformed, items, number, text

GROUP = "gateway.networking.k8s.io"
GATEWAY_CLASS = GroupKind(GROUP, "GatewayClass")
GATEWAY = GroupKind(GROUP, "Gateway")
LISTENER_SET = GroupKind(GROUP, "ListenerSet")
LISTENER = GroupKind(GROUP, "Listener")
SERVICE = GroupKind("", "Service")
SERVICE_PORT = GroupKind("", "ServicePort")
PROTOCOLS = ("HTTP", "GRPC", "TCP", "TLS", "UDP")
ROUTES = tuple(GroupKind(GROUP, f"{protocol}Route") for protocol in PROTOCOLS)
RULES = tuple(GroupKind(GROUP, f"{protocol}RouteRule") for protocol in PROTOCOLS)


def _listeners(body: Body) -> Iterator[tuple[str, Body]]:
    for index, listener in enumerate(items(body, "spec", "listeners")):
        name = text(listener, "name")
        if not name:
            msg = f"spec.listeners[{index}].name: a listener needs one"
            raise Malformed(msg)
        yield name, listener


def _rules(body: Body) -> Iterator[tuple[str, Body]]:
    for index, rule in enumerate(items(body, "spec", "rules"), 1):
        yield text(rule, "name") or f"rule-{index}", rule


def _ports(body: Body) -> Iterator[tuple[str, Body]]:
    for port in items(body, "spec", "ports"):
        yield text(port, "name") or str(number(port, "port") or ""), port


LISTENERS = Sections(LISTENER, _listeners)
ROUTE_RULES = {route: Sections(rule, _rules) for route, rule in zip(ROUTES, RULES, strict=True)}
PORTS = Sections(SERVICE_PORT, _ports)
