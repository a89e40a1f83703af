"""The configuration of the topology: what `kube-sync topology --live` reports, and of what it is.

The text below a field says what it does: it is what `kube-sync config --explain` prints.
"""

from __future__ import annotations

from kube_sync.settings.kinds import FieldPath, KindName, Section


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
