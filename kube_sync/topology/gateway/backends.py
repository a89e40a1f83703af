"""Rules and the services that they send to, as their backendRefs say.

Keeps true: a reference with a port leads to that port and not to the service; one into another
namespace leads there if a ReferenceGrant says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_sync.topology.conditions import RESOLVED
from kube_sync.topology.gateway.kinds import GATEWAY_CLASS, SERVICE
from kube_sync.topology.gateway.validity import Validity
from kube_sync.topology.grants import granted
from kube_sync.topology.identity import GroupKind, Locator, locator
from kube_sync.topology.links import View
from kube_sync.topology.nodes import Body, Node
from kube_sync.topology.shapes import items, number, text


def backends_of_rule(rule: Node, view: View, validity: Validity) -> Iterator[Locator]:
    """Yield the services and ports that a rule sends to. Raises Malformed."""
    route = view.get(rule.owner) if rule.owner else None
    by = route.kind if route else rule.kind
    for service, ref in _permitted(rule, rule.body, by, view, validity):
        port = number(ref, "port")
        if port is None:
            yield from _found(service, view)
        else:
            yield from _ports(service, port, view)


def backends_of_route(route: Node, view: View, validity: Validity) -> Iterator[Locator]:
    """Yield the services that any rule of a route sends to. Raises Malformed."""
    for rule in items(route.body, "spec", "rules"):
        for service, _ in _permitted(route, rule, route.kind, view, validity):
            yield from _found(service, view)


def class_of(gateway: Node, view: View) -> Iterator[Locator]:
    """Yield the class of a gateway. Raises Malformed."""
    name = text(gateway.body, "spec", "gatewayClassName")
    where = locator(GATEWAY_CLASS, "", name)
    if view.get(where) is None:
        message = f"spec.gatewayClassName: {where} is not there"
        view.complain("Accepted", "Pending", message, status="Unknown")
    yield where


def _permitted(
    node: Node, rule: Body, by: GroupKind, view: View, validity: Validity
) -> Iterator[tuple[Locator, Body]]:
    for index, ref in enumerate(items(rule, "backendRefs")):
        kind = GroupKind(text(ref, "group"), text(ref, "kind", default=SERVICE.kind))
        if kind != SERVICE:
            continue
        namespace, name = text(ref, "namespace") or node.namespace, text(ref, "name")
        if (
            validity.reference_grants
            and namespace != node.namespace
            and not granted(view, (by, node.namespace), (SERVICE, namespace, name))
        ):
            message = f"backendRefs[{index}]: namespace {namespace} grants no reference to {name}"
            view.complain(RESOLVED, "RefNotPermitted", message)
            continue
        yield locator(SERVICE, namespace, name), ref


def _found(service: Locator, view: View) -> Iterator[Locator]:
    if view.get(service) is None:
        view.complain(RESOLVED, "BackendNotFound", f"{service} is not there")
    yield service


def _ports(service: Locator, port: int, view: View) -> Iterator[Locator]:
    if view.get(service) is None:
        view.complain(RESOLVED, "BackendNotFound", f"{service} is not there")
        return
    found = [n.locator for n in view.sections(service) if number(n.body, "port") == port]
    if not found:
        view.complain(RESOLVED, "BackendNotFound", f"{service} has no port {port}")
    yield from found
