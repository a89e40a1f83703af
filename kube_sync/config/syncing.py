"""The configuration of policy sync, from a hub to its spokes.

The text below a field says what it does: it is what `kube-sync config --explain` prints.
"""

from __future__ import annotations

from typing import Literal

from kube_sync.config.kinds import (
    Count,
    Label,
    Namespace,
    NamespacePrefix,
    NotNegative,
    Section,
    ServiceAccount,
    Share,
)


class SyncBrakes(Section, frozen=True):
    """What policy sync takes away from spokes without asking.

    A share of 1 is no limit, nor is a time of 0 s.
    """

    window_seconds: NotNegative = 3600.0
    """Seconds within which removals count as one."""
    stale_seconds: NotNegative = 60.0
    """Seconds for which what the hub has may not be current; after that nothing is removed."""
    shrink_share: Share = 0.3
    """Share of the clusters of one Gateway, or of one GatewayClass, that may go without an
    approval."""
    mass_share: Share = 0.2
    """Share of all copies that may go without an approval."""
    mass_floor: Count = 10
    """So many copies may go without an approval in any fleet, whatever `mass_share` says."""


class Spokes(Section, frozen=True):
    """The Secrets with the kubeconfigs of spokes, each under the name of its cluster."""

    namespace: Namespace = "kube-sync-spokes"
    """Namespace of these Secrets on the hub, read for the placer `direct` alone."""
    label: Label = "kube-sync.io/spoke=true"
    """Label that they carry."""


PlacerName = Literal["ocm", "direct"]


class PolicySync(Section, frozen=True):
    """How policies come from this hub to its spokes."""

    placers: tuple[PlacerName, ...] = ("ocm",)
    """Who brings copies to spokes, asked in this order: Open Cluster Management, or kube-sync
    itself by kubeconfigs (`direct`)."""
    namespace_prefix: NamespacePrefix = "kuadrant-"
    """What comes before the hub's namespace in that of a copy on a spoke; may be empty for the
    placer `direct` alone."""
    grace_seconds: NotNegative = 600.0
    """Seconds that a cluster keeps its copy after it left the placement."""
    parameters_namespace: Namespace | None = None
    """Namespace of the ConfigMaps with the parameters of GatewayClasses; null: any."""
    executor: ServiceAccount | None = "kube-sync/kube-sync-policy-sync-spoke"
    """ServiceAccount on spokes whose rights bound what Open Cluster Management's work agent applies
    for us (`spec.executor` of ManifestWorks); null: the agent's own rights."""
    spokes: Spokes = Spokes()
    brakes: SyncBrakes = SyncBrakes()

    def __post_init__(self) -> None:
        """Refuse what has a work agent take a hub's own policy for its copy.

        A hub may be its own spoke. `direct` looks first at what has the name of a copy; an agent
        takes a part in whatever has it, and removes it with its work.
        """
        if not self.namespace_prefix and "ocm" in self.placers:
            msg = "namespace_prefix may be empty for the placer direct alone"
            raise ValueError(msg)
