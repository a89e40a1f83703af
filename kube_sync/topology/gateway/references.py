"""References of routes: the listeners that they attach to, and the backends of their rules.

Invariant: an unresolved reference is a condition of the route, with the reason of the Gateway API,
and does not affect other references. A parentRef to a Gateway matches its own listeners only; those
of its ListenerSets are reached through parentRefs to these. A backendRef with a port leads to that
port and not to the service; one into another namespace needs a ReferenceGrant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_sync.topology.conditions import ACCEPTED, RESOLVED
from kube_sync.topology.gateway.kinds import GATEWAY, GATEWAY_CLASS, GROUP, LISTENER_SET, SERVICE
from kube_sync.topology.gateway.listenersets import attachment_of
from kube_sync.topology.gateway.validity import Validity, allows, have_common_hostname
from kube_sync.topology.links import View, is_granted
from kube_sync.topology.nodes import Body, GroupKind, Locator, Node, locator
from kube_sync.topology.raw_json import items, number, text

_PARENTS = frozenset({GATEWAY, LISTENER_SET})


def gateways_of(route: Node, view: View, validity: Validity) -> Iterator[Locator]:
    """Yield the Gateways and ListenerSets that a route names. Raises Malformed."""
    for place, _, parent in _references(route):
        if problem := _parent_problem(parent, view, validity):
            _not_accepted(view, place, "NoMatchingParent", problem)
            continue
        yield parent


def listeners_of(route: Node, view: View, validity: Validity) -> Iterator[Locator]:
    """Yield the listeners that accept a route. Raises Malformed."""
    for place, ref, parent in _references(route):
        if problem := _parent_problem(parent, view, validity):
            _not_accepted(view, place, "NoMatchingParent", problem)
            continue
        found = _matching_listeners(ref, view.sections(parent), validity)
        if not found:
            _not_accepted(view, place, "NoMatchingParent", f"{parent} has no such listener")
            continue
        if validity.allowed_routes:
            found = [listener for listener in found if allows(listener, route, view)]
        if not found:
            _not_accepted(view, place, "NotAllowedByListeners", f"{parent} takes no such route")
            continue
        if validity.hostnames:
            found = [listener for listener in found if have_common_hostname(listener, route)]
        if not found:
            message = f"{parent} has none of the hostnames"
            _not_accepted(view, place, "NoMatchingListenerHostname", message)
            continue
        found = _accepted(parent, found, view, validity)
        if not found:
            message = f"{parent} has no such listener that does not conflict with another one"
            _not_accepted(view, place, "NoMatchingParent", message)
        yield from (listener.locator for listener in found)


def _parent_problem(parent: Locator, view: View, validity: Validity) -> str:
    """Return why no route attaches to a parent, "" if one may."""
    node = view.get(parent)
    if node is None:
        return f"{parent} is not there"
    if node.kind == LISTENER_SET and attachment_of(node, view, validity) is None:
        return f"{parent} is attached to no Gateway"
    return ""


def _accepted(parent: Locator, listeners: list[Node], view: View, validity: Validity) -> list[Node]:
    """Return the listeners without those of a ListenerSet that conflict with others."""
    node = view.get(parent)
    if node is None or node.kind != LISTENER_SET:
        return listeners
    found = attachment_of(node, view, validity)
    conflicts = found.conflicts if found else {}
    return [one for one in listeners if one.locator not in conflicts]


def _references(route: Node) -> Iterator[tuple[str, Body, Locator]]:
    """Yield the field path, the reference and the parent; other kinds are ignored."""
    for index, ref in enumerate(items(route.body, "spec", "parentRefs")):
        kind = GroupKind(text(ref, "group", default=GROUP), text(ref, "kind", default=GATEWAY.kind))
        if kind in _PARENTS:
            namespace = text(ref, "namespace") or route.namespace
            yield f"spec.parentRefs[{index}]", ref, locator(kind, namespace, text(ref, "name"))


def _matching_listeners(ref: Body, listeners: Sequence[Node], validity: Validity) -> list[Node]:
    section, port = text(ref, "sectionName"), number(ref, "port")
    found = [n for n in listeners if not section or n.name.partition("#")[2] == section]
    if not validity.ports or port is None:
        return found
    return [listener for listener in found if number(listener.body, "port") == port]


def _not_accepted(view: View, place: str, reason: str, message: str) -> None:
    view.add_condition(ACCEPTED, reason, f"{place}: {message}")


def backends_of_rule(rule: Node, view: View, validity: Validity) -> Iterator[Locator]:
    """Yield the backend services and ports of a rule. Raises Malformed."""
    route = view.get(rule.owner) if rule.owner else None
    by = route.kind if route else rule.kind
    for service, ref in _permitted_backends(rule, rule.body, by, view, validity):
        port = number(ref, "port")
        if port is None:
            yield from _service(service, view)
        else:
            yield from _ports(service, port, view)


def backends_of_route(route: Node, view: View, validity: Validity) -> Iterator[Locator]:
    """Yield the backend services of all rules of a route. Raises Malformed."""
    for rule in items(route.body, "spec", "rules"):
        for service, _ in _permitted_backends(route, rule, route.kind, view, validity):
            yield from _service(service, view)


def class_of(gateway: Node, view: View) -> Iterator[Locator]:
    """Yield the class of a gateway. Raises Malformed."""
    name = text(gateway.body, "spec", "gatewayClassName")
    where = locator(GATEWAY_CLASS, "", name)
    if view.get(where) is None:
        message = f"spec.gatewayClassName: {where} is not there"
        view.add_condition("Accepted", "Pending", message, status="Unknown")
    yield where


def _permitted_backends(
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
            and not is_granted(view, (by, node.namespace), (SERVICE, namespace, name))
        ):
            message = f"backendRefs[{index}]: namespace {namespace} grants no reference to {name}"
            view.add_condition(RESOLVED, "RefNotPermitted", message)
            continue
        yield locator(SERVICE, namespace, name), ref


def _service(service: Locator, view: View) -> Iterator[Locator]:
    if view.get(service) is None:
        view.add_condition(RESOLVED, "BackendNotFound", f"{service} is not there")
    yield service


def _ports(service: Locator, port: int, view: View) -> Iterator[Locator]:
    if view.get(service) is None:
        view.add_condition(RESOLVED, "BackendNotFound", f"{service} is not there")
        return
    found = [n.locator for n in view.sections(service) if number(n.body, "port") == port]
    if not found:
        view.add_condition(RESOLVED, "BackendNotFound", f"{service} has no port {port}")
    yield from found
