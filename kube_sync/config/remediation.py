"""The configuration of the remediator: whether it writes, how fast, and where else.

The text below a field says what it does: it is what `kube-sync config --explain` prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kube_sync.config.kinds import (
    AtLeastOne,
    Count,
    File,
    Listen,
    Namespace,
    NotNegative,
    Section,
    Share,
)

PlacementForm = Literal["preferences", "names", "selector"]


class Guard(Section, frozen=True):
    """The brakes of the remediator: how fast, how often and how much it may move.

    A rate of 0 a minute is no limit, as is a share of 1 and a time of 0 s. A move is a change that
    takes a cluster away from a workload; only moves wait, and what goes back and forth.
    """

    # A wrong policy that is noticed after a minute has moved 80 workloads, not the fleet.
    moves_per_minute: NotNegative = 60.0
    """Moves a minute in all; as many besides of workloads that want no replicas."""
    moves_burst: AtLeastOne = 20
    """Moves in all that may go at once after a pause."""
    # Half of all, so that no one namespace or cluster takes the whole budget.
    namespace_moves_per_minute: NotNegative = 30.0
    """Moves a minute in each namespace."""
    namespace_moves_burst: AtLeastOne = 10
    """Moves in each namespace that may go at once after a pause."""
    cluster_moves_per_minute: NotNegative = 30.0
    """Moves a minute away from each cluster."""
    cluster_moves_burst: AtLeastOne = 10
    """Moves away from each cluster that may go at once after a pause."""
    dwell_seconds: NotNegative = 30.0
    """Seconds that a workload is not moved after any change of its placement."""
    cooldown_seconds: NotNegative = 120.0
    """Seconds that a workload is not moved after a move."""
    oscillation_seconds: NotNegative = 3600.0
    """Seconds that a workload which goes back and forth between two placements is left alone."""
    stale_seconds: NotNegative = 60.0
    """Seconds for which what is known of the fleet may not be current; after that no move goes."""
    shrink_share: Share = 0.3
    """Share of the clusters that may be gone at once; if more are, moves need an approval."""
    mass_share: Share = 0.2
    """Share of the workloads of a namespace that may move at once; if more would, those of it need
    an approval, as all do where more would move whichever one namespace is left out."""
    mass_floor: Count = 10
    """So many moves at once need no approval in any namespace, whatever `mass_share` says."""
    placements: Mapping[str, PlacementForm] = {}
    """Further annotations that place a workload, by the form of their values."""
    known_clusters: bool = True
    """Holds placements of which no cluster is replicated under that name (metadata.name); false
    where placements name clusters in another way."""


Mode = Literal["off", "dry-run", "manual", "enforce"]


class PlacementDecisions(Section, frozen=True):
    """Whether placements are published as PlacementDecisions, too (SIG Multicluster, KEP-5313)."""

    enabled: bool = False
    """Publishes placements as PlacementDecisions beside the annotations."""
    namespace: Namespace | None = None
    """Namespace of the ClusterProfiles that they refer to; null: it is found by watching them."""


class Sinks(Section, frozen=True):
    """What decisions are written to beside annotations and labels."""

    placement_decisions: PlacementDecisions = PlacementDecisions()


class Remediate(Section, frozen=True):
    """Whether decisions are written back: only `enforce` writes by itself."""

    mode: Mode = "enforce"
    """Writes decisions (`enforce`), only what a person lets through (`manual`), says what it would
    write (`dry-run`), or does nothing (`off`)."""
    namespaces: Mapping[Namespace, Mode] = {}
    """Other modes for single namespaces, as in `{shop: dry-run}`."""
    listen: Listen = "127.0.0.1:9404"
    """Where the status is, and where steps are let through; beyond loopback it needs a token."""
    token_file: File | None = None
    """Holds the token that whoever asks there has to send; null: none, and who asks has to call it
    by a name of this machine."""
    guard: Guard = Guard()
    sinks: Sinks = Sinks()
