"""The configuration of the topology: what `kube-sync topology --live` reports, and of what it is.

The text below a field says what it does: it is what `kube-sync config --explain` prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Final

from kube_sync.config.kinds import FieldPath, KindName, Section
from kube_sync.errors import Misconfigured


class TopologyLink(Section, frozen=True, rename={"parent": "from", "child": "to"}):
    """Edges from objects of one kind to objects of another, by a field of one of them."""

    parent: KindName
    """Kind that is above."""
    child: KindName
    """Kind that is below."""
    kind: KindName | None = None
    """The one of them that has the field; null: that of `to`."""
    field: FieldPath | None = None
    """Path to a name, a reference (`name`, `namespace`, perhaps `group` and `kind`), or a list of
    either, as `spec.storeRefs`; null: each object of `from` is above each of `to`."""


class PolicyTopology(Section, frozen=True):
    """What is reported of policies, and what the topology is made of beside the Gateway API."""

    statuses: tuple[KindName, ...] = ()
    """Kinds of policies whose `status.conditions` are ours to write (`Accepted`, `Enforced`, …), as
    `AuthPolicy.kuadrant.io`. Name only kinds whose own operator does not run in the cluster.
    `status.ancestors` is written without being named here."""
    paths: bool = True
    """Tells on each target, for each kind of policies, which effective policy applies on each path
    to it, and on which none does (`kube-sync.io/<Kind>Paths`)."""
    roots: tuple[KindName, ...] = ()
    """Kinds whose objects are above all GatewayClasses, or above what `topology.links` says, so
    that paths begin at them, as `Kuadrant.kuadrant.io`."""
    links: tuple[TopologyLink, ...] = ()
    """Edges between kinds of your own, or between these and others."""


_GROUP: Final = "gateway.networking.k8s.io"
_TOP: Final = (f"GatewayClass.{_GROUP}", f"Gateway.{_GROUP}")
_ROUTES: Final = tuple(f"{name}Route.{_GROUP}" for name in ("HTTP", "GRPC", "TCP", "TLS", "UDP"))
_GATEWAY_API: Final = (
    _TOP,
    *((_TOP[1], route) for route in _ROUTES),
    *((route, "Service") for route in _ROUTES),
)
_KNOWN: Final = frozenset({"Namespace", *(kind for pair in _GATEWAY_API for kind in pair)})


def check_links(topology: PolicyTopology) -> None:
    """Check of roots and links what types cannot say. Raises Misconfigured.

    Whatever objects there are, they can be in no loop then, since their kinds are in none; and
    paths begin at a class, a gateway or a root that is named.
    """
    for index, root in enumerate(topology.roots):
        if root in _KNOWN:
            msg = f"topology.roots[{index}]: {root} has its place in the topology already"
            raise Misconfigured(msg)
    for index, link in enumerate(topology.links):
        for field, what in _wrong(link, topology):
            msg = f"topology.links[{index}].{field}: {what}"
            raise Misconfigured(msg)
    _check_circles(topology)


def _wrong(link: TopologyLink, topology: PolicyTopology) -> Iterator[tuple[str, str]]:
    """Yield a field and what is wrong with it."""
    if link.kind not in (None, link.parent, link.child):
        yield "kind", f"{link.kind} is neither {link.parent} nor {link.child}"
    if link.kind is not None and link.field is None:
        yield "field", "needed, since `kind` names who has it"
    if link.child in (*_TOP, *topology.roots) and link.parent not in topology.roots:
        yield "from", f"{link.parent} is above {link.child}: name it in topology.roots, too"


def _check_circles(topology: PolicyTopology) -> None:
    above: dict[str, set[str]] = {}
    links = ((link.parent, link.child) for link in topology.links)
    for parent, child in (*_GATEWAY_API, *links):
        above.setdefault(child, set()).add(parent)
    try:
        TopologicalSorter(above).prepare()
    except CycleError as error:
        circle = " > ".join(error.args[1])
        msg = f"topology.links: kinds are above each other in a circle: {circle}"
        raise Misconfigured(msg) from error
