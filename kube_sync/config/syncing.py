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
    """Limits on what policy sync removes from spokes without an approval.

    A share of 1 or a time of 0 s means no limit.
    """

    window_seconds: NotNegative = 3600.0
    """Seconds within which removals count as one removal."""
    stale_seconds: NotNegative = 60.0
    """Seconds for which the data read from the hub may be stale; after that nothing is removed."""
    shrink_share: Share = 0.3
    """Share of the clusters of one Gateway, or of one GatewayClass, from which copies may be
    removed without an approval."""
    mass_share: Share = 0.2
    """Share of all copies that may be removed without an approval."""
    mass_floor: Count = 10
    """Number of copies that may be removed without an approval, whatever `mass_share` is."""


class Spokes(Section, frozen=True):
    """The Secrets on the hub with the kubeconfigs of spokes, each named as its cluster."""

    namespace: Namespace = "kube-sync-spokes"
    """Namespace of these Secrets; only the placer `direct` reads them."""
    label: Label = "kube-sync.io/spoke=true"
    """Label of these Secrets."""


PlacerName = Literal["ocm", "direct"]


class PolicySync(Section, frozen=True):
    """How policies are copied from this hub to its spokes."""

    placers: tuple[PlacerName, ...] = ("ocm",)
    """Placers, which write copies to spokes, in order of precedence: Open Cluster Management
    (`ocm`), or kube-sync itself with kubeconfigs (`direct`)."""
    namespace_prefix: NamespacePrefix = "kuadrant-"
    """Prefix of the namespaces of copies on spokes; the rest of the name is the namespace on the
    hub. It may be empty only if `direct` is the only placer."""
    grace_seconds: NotNegative = 600.0
    """Seconds for which a cluster keeps its copy after it left the placement."""
    parameters_namespace: Namespace | None = None
    """Namespace of the ConfigMaps with the parameters of GatewayClasses; null: any namespace."""
    executor: ServiceAccount | None = "kube-sync/kube-sync-policy-sync-spoke"
    """ServiceAccount on spokes whose permissions limit what the work agent of Open Cluster
    Management applies (`spec.executor` of ManifestWorks); null: the agent's own permissions."""
    spokes: Spokes = Spokes()
    brakes: SyncBrakes = SyncBrakes()

    def __post_init__(self) -> None:
        """Refuse what has a work agent take a hub's own policy for its copy.

        A hub may be its own spoke. `direct` looks first at what has the name of a copy; an agent
        takes a part in whatever has it, and removes it with its work.
        """
        if not self.namespace_prefix and "ocm" in self.placers:
            msg = "namespace_prefix may be empty only if direct is the only placer"
            raise ValueError(msg)
