"""The kinds and links of the Gateway API, with or without sections.

Invariant: with sections, a path is class, gateway, listener, route, rule, and the service or its
port; without, class, gateway, route, service. A ListenerSet is between its gateway and its
listeners. Every protocol has the same links.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kube_sync.topology.gateway.kinds import (
    GATEWAY,
    GATEWAY_CLASS,
    LISTENER,
    LISTENER_SET,
    LISTENERS,
    PORTS,
    ROUTE_RULES,
    ROUTES,
    RULES,
    SERVICE,
)
from kube_sync.topology.gateway.listenersets import gateway_of, listener_set_of, parents_named
from kube_sync.topology.gateway.references import (
    backends_of_route,
    backends_of_rule,
    class_of,
    gateways_of,
    listeners_of,
)
from kube_sync.topology.gateway.validity import Validity
from kube_sync.topology.links import REFERENCE_GRANT, Link
from kube_sync.topology.nodes import Kind


@dataclass(frozen=True, slots=True)
class GatewayApi:
    """The arguments of a topology: `Topology.of(objects, api.kinds, api.links)`."""

    kinds: tuple[Kind, ...]
    links: tuple[Link, ...]


def gateway_api(validity: Validity | None = None, *, sections: bool = True) -> GatewayApi:
    """Return the Gateway API; listeners, rules and ports are nodes only with `sections`."""
    chosen = validity or Validity()
    links = [
        Link(GATEWAY_CLASS, GATEWAY, parents=class_of),
        Link(GATEWAY, LISTENER_SET, parents=partial(gateway_of, validity=chosen)),
        *(_sectioned(chosen) if sections else _whole(chosen)),
    ]
    listeners = LISTENERS if sections else None
    kinds = (
        Kind(GATEWAY_CLASS, namespaced=False),
        Kind(GATEWAY, sections=listeners),
        Kind(LISTENER_SET, sections=listeners, index=parents_named),
        *(Kind(route, sections=ROUTE_RULES[route] if sections else None) for route in ROUTES),
        Kind(SERVICE, sections=PORTS if sections else None),
        REFERENCE_GRANT,
    )
    return GatewayApi(kinds, tuple(links))


def _sectioned(validity: Validity) -> list[Link]:
    listeners = partial(listeners_of, validity=validity)
    backends = partial(backends_of_rule, validity=validity)
    return [
        Link(LISTENER_SET, LISTENER, parents=partial(listener_set_of, validity=validity)),
        *(Link(LISTENER, route, parents=listeners) for route in ROUTES),
        *(Link(rule, SERVICE, children=backends) for rule in RULES),
    ]


def _whole(validity: Validity) -> list[Link]:
    gateways = partial(gateways_of, validity=validity)
    backends = partial(backends_of_route, validity=validity)
    return [
        *(Link(GATEWAY, route, parents=gateways) for route in ROUTES),
        *(Link(route, SERVICE, children=backends) for route in ROUTES),
    ]
