"""The configuration of the topology: its nodes, its edges, and what is reported about policies.

The text below a field says what it does: it is what `kube-sync config --explain` prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Final

from kube_sync.config.kinds import FieldPath, KindName, Section
from kube_sync.errors import Misconfigured


class TopologyLink(Section, frozen=True, rename={"parent": "from", "child": "to"}):
    """Edges from objects of one kind to objects of another kind, by a field of one of them."""

    parent: KindName
    """Kind of the parents."""
    child: KindName
    """Kind of the children."""
    kind: KindName | None = None
    """Which of the two kinds has the field; null: that of `to`."""
    field: FieldPath | None = None
    """Path of the field, as in `spec.storeRefs`, which is a name, a reference (`name`, optionally
    `namespace`, `group` and `kind`), or a list of either; null: each object of `from` is a parent
    of each object of `to`."""


class PolicyTopology(Section, frozen=True):
    """What the topology contains beside the Gateway API, and what is reported about policies."""

    statuses: tuple[KindName, ...] = ()
    """Policy kinds whose `status.conditions` kube-sync writes (`Accepted`, `Enforced`, …), as in
    `AuthPolicy.kuadrant.io`. Name only kinds whose own operator does not run in the cluster. Kinds
    with `status.ancestors` do not need to be named."""
    paths: bool = True
    """Reports on each target, for each policy kind, which effective policy applies on each path to
    it and on which paths none applies (condition `kube-sync.io/<Kind>Paths`)."""
    roots: tuple[KindName, ...] = ()
    """Kinds whose objects are parents of all GatewayClasses, or only of what `topology.links`
    specifies, so that paths begin at them, as in `Kuadrant.kuadrant.io`."""
    links: tuple[TopologyLink, ...] = ()
    """Edges between kinds that are not in the Gateway API, or between these and other kinds."""


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
    """Check roots and links beyond their types. Raises Misconfigured.

    Since the kinds form no cycle, no objects do; and paths begin at a class, a gateway or a
    root that is named.
    """
    for index, root in enumerate(topology.roots):
        if root in _KNOWN:
            msg = f"topology.roots[{index}]: {root} is part of the topology already"
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
        yield "field", "needed, since `kind` is set"
    if link.child in (*_TOP, *topology.roots) and link.parent not in topology.roots:
        yield "from", f"{link.parent} is a parent of {link.child}: add it to topology.roots"


def _check_circles(topology: PolicyTopology) -> None:
    above: dict[str, set[str]] = {}
    links = ((link.parent, link.child) for link in topology.links)
    for parent, child in (*_GATEWAY_API, *links):
        above.setdefault(child, set()).add(parent)
    try:
        TopologicalSorter(above).prepare()
    except CycleError as error:
        circle = " > ".join(error.args[1])
        msg = f"topology.links: the kinds form a cycle: {circle}"
        raise Misconfigured(msg) from error
