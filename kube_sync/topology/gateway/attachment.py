"""Routes and the listeners that they attach to, as their parentRefs say.

Keeps true: a reference that comes to nothing is a condition of the route, with the reason that
the Gateway API has for it, and hinders no other reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_sync.topology.conditions import ACCEPTED
from kube_sync.topology.gateway.kinds import GATEWAY, GROUP
from kube_sync.topology.gateway.validity import Validity, allows, hostnames_meet
from kube_sync.topology.identity import GroupKind, Locator, locator
from kube_sync.topology.links import View
from kube_sync.topology.nodes import Body, Node
from kube_sync.topology.shapes import items, number, text


def gateways_of(route: Node, view: View) -> Iterator[Locator]:
    """Yield the gateways that a route names. Raises Malformed."""
    for place, _, gateway in _references(route):
        if view.get(gateway) is None:
            _complain(view, place, "NoMatchingParent", f"{gateway} is not there")
        yield gateway


def listeners_of(route: Node, view: View, validity: Validity) -> Iterator[Locator]:
    """Yield the listeners that take a route. Raises Malformed."""
    for place, ref, gateway in _references(route):
        if view.get(gateway) is None:
            _complain(view, place, "NoMatchingParent", f"{gateway} is not there")
            continue
        found = _named(ref, view.sections(gateway), validity)
        if not found:
            _complain(view, place, "NoMatchingParent", f"{gateway} has no such listener")
            continue
        if validity.allowed_routes:
            found = [listener for listener in found if allows(listener, route, view)]
        if not found:
            _complain(view, place, "NotAllowedByListeners", f"{gateway} takes no such route")
            continue
        if validity.hostnames:
            found = [listener for listener in found if hostnames_meet(listener, route)]
        if not found:
            message = f"{gateway} has none of the hostnames"
            _complain(view, place, "NoMatchingListenerHostname", message)
        yield from (listener.locator for listener in found)


def _references(route: Node) -> Iterator[tuple[str, Body, Locator]]:
    """Yield the place, the reference and the gateway; other kinds of parents are not ours."""
    for index, ref in enumerate(items(route.body, "spec", "parentRefs")):
        kind = GroupKind(text(ref, "group", default=GROUP), text(ref, "kind", default=GATEWAY.kind))
        if kind == GATEWAY:
            namespace = text(ref, "namespace") or route.namespace
            where = locator(GATEWAY, namespace, text(ref, "name"))
            yield f"spec.parentRefs[{index}]", ref, where


def _named(ref: Body, listeners: Sequence[Node], validity: Validity) -> list[Node]:
    section, port = text(ref, "sectionName"), number(ref, "port")
    found = [n for n in listeners if not section or n.name.partition("#")[2] == section]
    if not validity.ports or port is None:
        return found
    return [listener for listener in found if number(listener.body, "port") == port]


def _complain(view: View, place: str, reason: str, message: str) -> None:
    view.complain(ACCEPTED, reason, f"{place}: {message}")
