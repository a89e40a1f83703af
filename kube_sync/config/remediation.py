"""The configuration of the remediator: whether it writes, how fast, and where else.

The text below a field says what it does: it is what `kube-sync config --explain` prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from kube_sync.config.kinds import (
    AnnotationPrefix,
    AtLeastOne,
    Concurrency,
    Count,
    FieldPath,
    File,
    LabelName,
    Listen,
    Namespace,
    NotNegative,
    Results,
    Seconds,
    Section,
    Share,
)
from kube_sync.objects import GroupVersionResource

PlacementForm = Literal["preferences", "names", "selector"]
KUEUE_WORKLOADS: Final = GroupVersionResource("kueue.x-k8s.io", "v1beta1", "workloads")


class Guard(Section, frozen=True):
    """Limits on the moves that the remediator makes.

    A move is a change that takes a cluster away from a workload. Other changes are not limited,
    except for a workload that alternates between two placements. A rate of 0, a share of 1 or a
    time of 0 s means no limit.
    """

    # A wrong policy that is noticed after a minute has moved 80 workloads, not the fleet.
    moves_per_minute: NotNegative = 60.0
    """Moves per minute in total. Workloads with 0 replicas have a separate budget of the same
    size."""
    moves_burst: AtLeastOne = 20
    """Moves in total that may happen at once after a pause."""
    # Half of all, so that no one namespace or cluster takes the whole budget.
    namespace_moves_per_minute: NotNegative = 30.0
    """Moves per minute in each namespace."""
    namespace_moves_burst: AtLeastOne = 10
    """Moves in each namespace that may happen at once after a pause."""
    cluster_moves_per_minute: NotNegative = 30.0
    """Moves per minute away from each cluster."""
    cluster_moves_burst: AtLeastOne = 10
    """Moves away from each cluster that may happen at once after a pause."""
    dwell_seconds: NotNegative = 30.0
    """Seconds for which a workload is not moved after any change of its placement."""
    cooldown_seconds: NotNegative = 120.0
    """Seconds for which a workload is not moved after a move."""
    oscillation_seconds: NotNegative = 3600.0
    """Seconds for which a workload that alternates between two placements is frozen, unless an
    approval releases it."""
    stale_seconds: NotNegative = 60.0
    """Seconds for which the data about the fleet may be stale; after that no move is made."""
    shrink_share: Share = 0.3
    """Share of the clusters that may be gone at once; if more are gone, moves are held until
    approved."""
    mass_share: Share = 0.2
    """Share of the workloads of a namespace that may move at once; if more would move, the moves of
    that namespace are held until approved. All moves are held if they exceed this share of all
    workloads, whichever single namespace is left out."""
    mass_floor: Count = 10
    """Number of moves at once that need no approval, whatever `mass_share` is."""
    placements: Mapping[str, PlacementForm] = {}
    """Additional annotations that place a workload, each with the form of its value."""
    known_clusters: bool = True
    """Holds placements of which no cluster is replicated under that name (`metadata.name`); false
    if placements identify clusters in another way."""


class Health(Section, frozen=True):
    """Where the remediator reads whether a workload is healthy in a cluster."""

    source: Literal["annotations", "status", "argocd", "kueue"] = "annotations"
    """What says so: annotations of the object, a field of it, the health of its Applications of
    Argo CD, by the cluster that `spec.destination` names or that has its server, or for Workloads
    of Kueue that one of the clusters has admitted it, for other objects the annotations."""
    annotation: AnnotationPrefix = "health.kube-sync.io"
    """With `annotations` and `kueue`: the prefix of one annotation per cluster, as in
    `health.kube-sync.io/eu-west: healthy`."""
    path: FieldPath = "status.clusters"
    """With `status`: the field that maps the names of clusters to their health, as in
    `{"eu-west": "Healthy"}`, or names the one cluster."""
    namespace: Namespace = "argocd"
    """With `argocd`: the namespace of the Applications."""
    label: LabelName | None = None
    """With `argocd`: the label of Applications whose value is the name of the workload, which is in
    the namespace of their destination or in their own; null: the workload is the ApplicationSet
    that owns them."""


class AddFirst(Section, frozen=True):
    """How a move is made with `moves: add-first`."""

    healthy_within_seconds: NotNegative = 300.0
    """Seconds within which a workload has to be healthy in the clusters that were added."""
    on_unhealthy: Literal["revert", "keep"] = "revert"
    """What happens after that: the clusters where it is not healthy are taken back (`revert`), or
    left in the placement (`keep`). The old clusters stay in either case."""
    health: Health = Health()


Mode = Literal["off", "dry-run", "manual", "enforce"]


# How decisions are carried out; the annotations, and the sections of `Sinks`.
SinkName = Literal["annotations", "placement_decisions", "ocm_placement_decisions", "multikueue"]


class PlacementDecisions(Section, frozen=True):
    """Publication of placements as PlacementDecisions (SIG Multicluster, KEP-5313)."""

    enabled: bool = False
    """Publishes placements as PlacementDecisions in addition to the annotations, for resources that
    name no `sinks` in `placement.resources`."""
    namespace: Namespace | None = None
    """Namespace of the ClusterProfiles that PlacementDecisions refer to; null: it is found by
    watching ClusterProfiles."""


class OcmPlacementDecisions(Section, frozen=True):
    """Publication of placements as PlacementDecisions of Open Cluster Management.

    Argo CD's clusterDecisionResource generator reads them too.
    """

    enabled: bool = False
    """Publishes placements as PlacementDecisions of Open Cluster Management in addition to the
    annotations, for resources that name no `sinks` in `placement.resources`."""
    namespace: Namespace | None = None
    """Namespace of all these PlacementDecisions, as in `argocd`, whose ApplicationSet controller
    reads no other; null: each is in the namespace of its resource."""


class MultiKueue(Section, frozen=True):
    """Nomination of worker clusters for Workloads of Kueue, as an external MultiKueue dispatcher.

    Kueue has to have another `multiKueue.dispatcherName` than those of its own dispatchers.
    """

    enabled: bool = False
    """Writes `status.nominatedClusterNames` of Workloads in addition to the annotations, if
    `placement.resources` names no `sinks` for them."""
    next_cluster_seconds: Seconds = 300.0
    """Seconds until the next cluster is nominated too, if none of the nominated ones has admitted a
    Workload; the annotation `kube-sync.io/next-cluster-seconds` of the decision overrides it."""


class Sinks(Section, frozen=True):
    """Outputs of decisions in addition to annotations and labels."""

    placement_decisions: PlacementDecisions = PlacementDecisions()
    ocm_placement_decisions: OcmPlacementDecisions = OcmPlacementDecisions()
    multikueue: MultiKueue = MultiKueue()

    def default_of(self, gvr: GroupVersionResource) -> tuple[SinkName, ...]:
        """Return the sinks of a resource that names none."""
        found: list[SinkName] = ["annotations"]
        if self.placement_decisions.enabled:
            found.append("placement_decisions")
        if self.ocm_placement_decisions.enabled:
            found.append("ocm_placement_decisions")
        if self.multikueue.enabled and gvr == KUEUE_WORKLOADS:
            found.append("multikueue")
        return tuple(found)


class ArgoCd(Section, frozen=True):
    """A generator for ApplicationSets of Argo CD: it answers with the clusters of a placement.

    An answer has the clusters that the guard let through; where they are not known, it is an error,
    at which Argo CD keeps all Applications.
    """

    listen: Listen | None = None
    """Address on which the remediator serves the plugin generator; null: it does not. An address
    that is not loopback requires `token_file` and `cert_file`."""
    namespace: Namespace = "argocd"
    """Namespace of Argo CD, with the Secrets of its clusters."""
    token_file: File | None = None
    """File with the bearer token that the ApplicationSet controller sends; null: none."""
    cert_file: File | None = None
    """Certificate (PEM) of the server; null: plain HTTP. Requires `key_file`."""
    key_file: File | None = None
    """Private key (PEM) of that certificate."""


class OpenReports(Section, frozen=True):
    """Reports of OpenReports (`openreports.io`) on objects that are refused, held or drifted."""

    enabled: bool = False
    """Keeps one Report in each namespace with such objects, where the kind is installed."""
    most_results: Results = 250
    """Results in one Report; the annotation `kube-sync.io/results-left-out` counts the others."""
    interval_seconds: Seconds = 10.0
    """Seconds between two comparisons of the Reports with what is held."""


class Remediate(Section, frozen=True):
    """Whether and how decisions are written to objects."""

    mode: Mode = "enforce"
    """What happens to decisions: the remediator writes them (`enforce`), writes those that a person
    applies (`manual`), only reports them (`dry-run`), or does nothing (`off`)."""
    namespaces: Mapping[Namespace, Mode] = {}
    """Modes that override `mode` in single namespaces, as in `{shop: dry-run}`."""
    moves: Literal["together", "add-first"] = "together"
    """How a workload moves: in one write (`together`), or in two (`add-first`): first the new
    clusters are added; the old ones are taken away once it is healthy in the new ones."""
    concurrency: Literal["auto"] | Concurrency = "auto"
    """How many PATCHes are sent at once: a fixed number, or as many as the API server takes without
    queueing them (`auto`): fewer when latencies grow, at 429, 503 and 504, and none while a
    Retry-After lasts."""
    listen: Listen = "127.0.0.1:9404"
    """Address of the remediator's status, which also accepts `kube-sync remediate apply`. An
    address that is not loopback requires `token_file`."""
    token_file: File | None = None
    """File with the bearer token that requests to `listen` must have; null: none, and only requests
    to `localhost` or a loopback address are accepted."""
    add_first: AddFirst = AddFirst()
    guard: Guard = Guard()
    sinks: Sinks = Sinks()
    argocd: ArgoCd = ArgoCd()
    openreports: OpenReports = OpenReports()
