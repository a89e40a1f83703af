"""The configuration of the topology: what `kube-sync topology --live` reports, and of what it is.

The text below a field says what it does: it is what `kube-sync config --explain` prints.
"""

from __future__ import annotations

from kube_sync.settings.kinds import KindName, Section


class PolicyTopology(Section, frozen=True):
    """What is reported of policies, and what the topology is made of beside the Gateway API."""

    statuses: tuple[KindName, ...] = ()
    """Kinds of policies whose `status.conditions` are ours to write (`Accepted`, `Enforced`, …), as
    `AuthPolicy.kuadrant.io`. Name only kinds whose own operator does not run in the cluster.
    `status.ancestors` is written without being named here."""
    paths: bool = True
    """Tells on each target, for each kind of policies, which effective policy applies on each path
    to it, and on which none does (`kube-sync.io/<Kind>Paths`)."""
