"""The configuration as frozen values: every section, every field, its type and its default.

Keeps true: a Settings never changes; two that are equal mean the same. What types cannot say is
checked in `checks`; where the values come from is nothing to this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from kube_sync.objects import GroupVersionResource

DataName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]
# RFC 1123 label; above all not empty, which the API server would read as all namespaces.
Namespace = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
AnyNamespace = Annotated[str, msgspec.Meta(pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")]
Label = Annotated[str, msgspec.Meta(pattern=r"^[^=!,\s]+=[^=!,\s]+$")]
# With what is behind it a label again; "" is the same namespace on a spoke as on the hub.
NamespacePrefix = Annotated[str, msgspec.Meta(pattern=r"^([a-z0-9][-a-z0-9]*)?$", max_length=40)]
DataPath = Annotated[str, msgspec.Meta(pattern=r"^[^/\s]+(/[^/\s]+)*$")]


Seconds = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
# Bounded, since YAML knows .inf: nothing waits for ever by a slip.
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1_000_000_000)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the file: immutable, and a misspelt key is an error."""


class Kubernetes(Section, frozen=True):
    """Which API server: in-cluster when nothing is said and a service account is there."""

    kubeconfig: str | None = None
    context: str | None = None


class Opa(Section, frozen=True):
    """The OPA that this process feeds or asks."""

    url: str = "http://127.0.0.1:8181"
    token_file: str | None = None
    ca_file: str | None = None
    binary: str = "opa"  # compiles candidate policies beside the OPA that serves; path or name


class Resource(Section, frozen=True, rename={"as_": "as"}):
    """One collection to replicate, its name in OPA (by default its plural), and what part of it.

    A resource that says `namespaces` or `ignore_namespaces` takes neither from `replicate`, one
    that says `fields` takes its own.
    """

    group: str
    version: str
    resource: str
    as_: DataName | None = None
    label_selector: str | None = None
    field_selector: str | None = None
    namespaces: tuple[Namespace, ...] | None = None
    ignore_namespaces: tuple[Namespace, ...] | None = None
    # A path is dotted or, since keys may have dots, a list of keys. None: as `replicate` says.
    fields: Literal["all", "auto"] | tuple[str | tuple[str, ...], ...] | None = None

    @property
    def paths(self) -> tuple[tuple[str, ...], ...] | None:
        """The fields that are named, each as the keys on the way to it; None where none are."""
        return tuple(map(_keys, self.fields)) if isinstance(self.fields, tuple) else None

    @property
    def name(self) -> str:
        """The collection's name below `data.<root>`."""
        return self.as_ or self.resource

    @property
    def gvr(self) -> GroupVersionResource:
        """The collection in the Kubernetes API."""
        return GroupVersionResource(self.group, self.version, self.resource)


TOPOLOGY = "topology"  # the collection that is made of many resources, and is none itself
_CLUSTERS = Resource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "clusters")
_REPLICASETS = Resource("apps", "v1", "replicasets")


class Replicate(Section, frozen=True):
    """What goes into OPA, and where."""

    root: DataName = "kubernetes"
    fields: Literal["all", "auto"] = "all"  # auto: what the placement decision can read
    verify: Share = 0.0  # of the decisions on what is auto, checked over whole objects
    namespaces: tuple[Namespace, ...] = ()  # none: all
    ignore_namespaces: tuple[Namespace, ...] = ()
    resources: tuple[Resource, ...] = (_CLUSTERS, _REPLICASETS)
    topology: bool = False  # what policies of the Gateway API come to, as data.<root>.topology

    def is_auto(self, resource: Resource) -> bool:
        """Tell whether the policies say which fields of a resource to replicate."""
        return (self.fields if resource.fields is None else resource.fields) == "auto"

    def namespaces_of(self, resource: Resource) -> tuple[str, ...]:
        """Return the only namespaces to replicate a resource from, none for all of them."""
        own = resource.namespaces or () if _says_where(resource) else self.namespaces
        return tuple(dict.fromkeys(own))

    def ignored_of(self, resource: Resource) -> tuple[str, ...]:
        """Return the namespaces to leave out of a resource."""
        own = resource.ignore_namespaces or () if _says_where(resource) else self.ignore_namespaces
        return tuple(dict.fromkeys(own))


def _keys(path: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path.split(".")) if isinstance(path, str) else path


def _says_where(resource: Resource) -> bool:
    return (resource.namespaces, resource.ignore_namespaces) != (None, None)


class Labelled(Section, frozen=True):
    """ConfigMaps that a label makes policy or JSON data, as for kube-mgmt; off while nowhere."""

    namespaces: tuple[AnyNamespace, ...] = ()  # "*": all of them
    policy: Label = "openpolicyagent.org/policy=rego"
    data: Label = "openpolicyagent.org/data=opa"


class Allow(Section, frozen=True):
    """What a policy ConfigMap may do although it is refused to all others by default."""

    packages: tuple[str, ...] = ()  # dotted, as in `system.log`
    builtins: tuple[str, ...] = ()  # as in `http.send`


class Policies(Section, frozen=True):
    """Where policy ConfigMaps live; `static` says that OPA has policies from elsewhere too."""

    namespaces: tuple[str, ...] = ("kube-federation-scheduling-policy",)
    static: bool = False
    labelled: Labelled = Labelled()
    allow: Allow = Allow()


class Placement(Section, frozen=True):
    """The decision to ask for, and the replicated resources (by name in OPA) it is about."""

    path: DataPath = "io/k8s/federation/admission"
    resources: tuple[str, ...] = ("replicasets",)


class Decisions(Section, frozen=True):
    """The decision stream: where the replicator serves it, where the remediator finds it."""

    listen: str = "127.0.0.1:9400"
    board: bool = True  # a page to look at, /ui, and what it asks for
    url: str = "http://127.0.0.1:9400/v1/decisions"
    token_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    ca_file: str | None = None


PlacementForm = Literal["preferences", "names", "selector"]


class Guard(Section, frozen=True):
    """The brakes of the remediator: how fast, how often and how much it may move.

    A rate of 0 a minute is no limit, as is a share of 1 and a time of 0 s.
    """

    # A wrong policy that is noticed after a minute has moved 80 workloads, not the fleet.
    moves_per_minute: NotNegative = 60.0
    moves_burst: AtLeastOne = 20
    # Half of all, so that no one namespace or cluster takes the whole budget.
    namespace_moves_per_minute: NotNegative = 30.0
    namespace_moves_burst: AtLeastOne = 10
    cluster_moves_per_minute: NotNegative = 30.0  # of the clusters that are left
    cluster_moves_burst: AtLeastOne = 10
    dwell_seconds: NotNegative = 30.0  # after any change of the placement
    cooldown_seconds: NotNegative = 120.0  # after a move
    oscillation_seconds: NotNegative = 3600.0
    stale_seconds: NotNegative = 60.0  # older than this, the fleet is not known
    shrink_share: Share = 0.3
    mass_share: Share = 0.2
    mass_floor: Annotated[int, msgspec.Meta(ge=0)] = 10  # so many are no mass in any fleet
    # Further annotations that place a workload, by the form of their values.
    placements: Mapping[str, PlacementForm] = {}


Mode = Literal["off", "dry-run", "manual", "enforce"]


class PlacementDecisions(Section, frozen=True):
    """Whether placements are published as PlacementDecisions, too (SIG Multicluster, KEP-5313)."""

    enabled: bool = False
    namespace: Namespace | None = None  # of the ClusterProfiles; None: where they are found


class Sinks(Section, frozen=True):
    """What decisions are written to beside annotations and labels."""

    placement_decisions: PlacementDecisions = PlacementDecisions()


class Remediate(Section, frozen=True):
    """Whether decisions are written back: only `enforce` writes by itself.

    `namespaces` has other modes for some; `listen` is where the status is.
    """

    mode: Mode = "enforce"
    namespaces: Mapping[Namespace, Mode] = {}
    listen: str = "127.0.0.1:9404"
    token_file: str | None = None
    guard: Guard = Guard()
    sinks: Sinks = Sinks()


class Engine(Section, frozen=True):
    """The policy engine that the webhook asks; what is left out is as for OPA in `opa`.

    `v1` is `{"input": RESOURCE}` in and `{"result": ANSWER}` out; `v0` RESOURCE in and ANSWER out;
    `review` as `v1` with the AdmissionReview's request as input; `annotations` as `v1`, with the
    bare annotations for an answer.
    """

    dialect: Literal["v1", "v0", "review", "annotations"] = "v1"
    url: str | None = None
    path: str | None = None  # of the URL; None: by dialect, from placement.path
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None  # a client certificate
    key_file: str | None = None
    timeout_seconds: Seconds = 2.0  # of one attempt
    attempts: Annotated[int, msgspec.Meta(ge=1, le=20)] = 5
    backoff_seconds: Seconds = 0.1  # before the second attempt; grows from there


class Registration(Section, frozen=True):
    """The MutatingWebhookConfiguration to keep right; nothing is kept while it has no name."""

    name: str | None = None
    ca_file: str | None = None  # what its caBundle should hold; None: somebody else's to keep


class Admission(Section, frozen=True):
    """The webhook's own server, whom it asks, and what it does besides."""

    listen: str = "0.0.0.0:8443"  # the API server calls from another machine
    cert_file: str | None = None
    key_file: str | None = None
    client_ca_file: str | None = None  # whoever calls needs a certificate of this authority
    client_names: tuple[str, ...] = ()  # common or DNS names of it; none: any
    max_body_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 8 << 20
    drain_seconds: Seconds = 10.0
    owned: Literal["restore", "deny"] = "restore"  # an annotation of the policy's was changed
    remediator: str = "system:serviceaccount:kube-sync:kube-sync-remediator"
    events: bool = True
    engine: Engine = Engine()
    registration: Registration = Registration()


SystemName = Literal["scheduling", "metadata"]


class Scheduling(Section, frozen=True):
    """How SchedulingPolicies are judged by, as `data.kube_sync.config.scheduling`.

    `merge_option` is how several that may be used come together: 1 deep merge, 2 the first one
    alone, 3 merge of fields, 4 what all of them allow.
    """

    merge_option: Literal[1, 2, 3, 4] = 1
    user_may_use: bool = False  # what the requesting user may use counts, too
    # The API server has put it in before anybody asks: then a default may take its place.
    default_scheduler_is_unspecified: bool = False
    strict_affinity: bool = False  # a required pattern in every term: Kubernetes takes any one term
    trust_daemonset_controller: bool = True  # with the tolerations that it adds to its pods
    injected_toleration_seconds: Annotated[int, msgspec.Meta(ge=0)] = 300  # as the API server adds
    global_default_priority_class: str = ""  # which the API server fills in, where there is one


class Metadata(Section, frozen=True):
    """How MetadataPolicies are judged by, as `data.kube_sync.config.metadata`."""

    qos: bool = True  # pods are annotated with their quality of service, in every namespace


class SyncBrakes(Section, frozen=True):
    """What policy sync takes away from spokes without asking.

    A share of 1 is no limit, nor is a time of 0 s.
    """

    window_seconds: NotNegative = 3600.0  # removals so near together count as one
    stale_seconds: NotNegative = 60.0  # older than this, what the hub has is not known
    shrink_share: Share = 0.3  # of the clusters of one Gateway, or of one GatewayClass
    mass_share: Share = 0.2  # of all copies
    mass_floor: Annotated[int, msgspec.Meta(ge=0)] = 10  # so many are no mass in any fleet


class Spokes(Section, frozen=True):
    """The Secrets with the kubeconfigs of spokes, each under the name of its cluster."""

    namespace: Namespace = "kube-sync-spokes"
    label: Label = "kube-sync.io/spoke=true"


PlacerName = Literal["ocm", "direct"]


class PolicySync(Section, frozen=True):
    """How policies come from this hub to its spokes.

    `placers` are asked in their order; `direct` alone reads the Secrets of `spokes`.
    """

    placers: tuple[PlacerName, ...] = ("ocm",)
    namespace_prefix: NamespacePrefix = "kuadrant-"  # before the hub's namespace, on a spoke
    grace_seconds: NotNegative = 600.0  # a cluster keeps what is placed there no more for so long
    parameters_namespace: Namespace | None = None  # of their ConfigMaps; None: any
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


class EnforceSchedulingPolicy(Section, frozen=True):
    """The design's own configuration of its admission controller, taken as it is.

    `url` is the whole of it, with the path; how to ask there is read off the path: one that begins
    with `/v0/` is asked as `v0`, one that ends in `/annotations` as `annotations`, others as `v1`.
    """

    url: str | None = None
    token: str | None = None


class Coordination(Section, frozen=True):
    """Where this installation keeps its Leases and the ConfigMap of last good policies."""

    namespace: Namespace = "kube-sync"


class Observe(Section, frozen=True):
    """Where /metrics, /livez and /readyz are; without it each command has a port of its own."""

    listen: str | None = None


class Settings(
    Section, frozen=True, rename={"enforce_scheduling_policy": "EnforceSchedulingPolicy"}
):
    """The whole configuration, checked."""

    kubernetes: Kubernetes = Kubernetes()
    opa: Opa = Opa()
    replicate: Replicate = Replicate()
    policies: Policies = Policies()
    placement: Placement = Placement()
    decisions: Decisions = Decisions()
    remediate: Remediate = Remediate()
    admission: Admission = Admission()
    coordination: Coordination = Coordination()
    observe: Observe = Observe()
    builtin: tuple[SystemName, ...] = ()  # policy systems to load and to answer for
    scheduling: Scheduling = Scheduling()
    metadata: Metadata = Metadata()
    policy_sync: PolicySync = PolicySync()
    enforce_scheduling_policy: EnforceSchedulingPolicy = EnforceSchedulingPolicy()

    def targets(self) -> tuple[Resource, ...]:
        """Return the resources that decisions are about."""
        return tuple(r for r in self.replicate.resources if r.name in self.placement.resources)
