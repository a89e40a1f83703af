"""The configuration as frozen values: every section, every field, its type and its default.

Invariant: a Settings never changes; two that are equal mean the same. What types cannot say is
checked in `checks`; where the values come from is nothing to this module. Each larger part has a
module of its own beside this one. The text below a field says what it does: it is what
`kube-sync config --explain` prints and `docs/configure.md` has.
"""

from __future__ import annotations

from typing import Final

from kube_sync.config.kinds import (
    AtLeastOne,
    DataName,
    DataPath,
    File,
    Label,
    Listen,
    Namespace,
    NamespacePrefix,
    ProcessMemory,
    Seconds,
    Section,
    Url,
)
from kube_sync.config.remediation import (
    Guard,
    Mode,
    PlacementDecisions,
    PlacementForm,
    Remediate,
    Sinks,
)
from kube_sync.config.replication import (
    CLUSTERS,
    TOPOLOGY,
    Allow,
    Decisions,
    Labelled,
    Ledger,
    Placement,
    Policies,
    Replicate,
    Resource,
    WarningCode,
)
from kube_sync.config.rules import Metadata, Scheduling, SystemName
from kube_sync.config.syncing import PolicySync, Spokes, SyncBrakes
from kube_sync.config.topology import PolicyTopology, TopologyLink
from kube_sync.config.webhook import Admission, EnforceSchedulingPolicy, Engine, Registration

__all__ = [
    "CLUSTERS",
    "LIVE",
    "TOPOLOGY",
    "Admission",
    "Allow",
    "Coordination",
    "DataName",
    "DataPath",
    "Decisions",
    "EnforceSchedulingPolicy",
    "Engine",
    "Guard",
    "Kubernetes",
    "Label",
    "Labelled",
    "Ledger",
    "Metadata",
    "Mode",
    "Namespace",
    "NamespacePrefix",
    "Observe",
    "Opa",
    "Placement",
    "PlacementDecisions",
    "PlacementForm",
    "Policies",
    "PolicySync",
    "PolicyTopology",
    "Registration",
    "Remediate",
    "Replicate",
    "Resource",
    "Scheduling",
    "Section",
    "Settings",
    "Sinks",
    "Spokes",
    "SyncBrakes",
    "SystemName",
    "TopologyLink",
    "WarningCode",
]

# What a process that reads its file again puts in force at once; all else asks for a restart.
LIVE: Final = frozenset(
    (
        "replicate.fields",
        "replicate.namespaces",
        "replicate.ignore_namespaces",
        "replicate.resources",
        "replicate.topology",
        "placement.resources",
    )
)


class Kubernetes(Section, frozen=True):
    """Which API server: in-cluster when nothing is said and a service account is there."""

    kubeconfig: File | None = None
    """Names the API server and who asks it; null: the pod's service account, else the file that
    `KUBECONFIG` names, else `~/.kube/config`."""
    context: str | None = None
    """Context of the kubeconfig; null: its current one."""


class Compile(Section, frozen=True):
    """What one process may take that compiles policies, or tries them, before they are in force."""

    memory_bytes: ProcessMemory = 512 * 2**20
    """Memory of the process; a policy that exceeds it gets `too expensive to compile`. It counts
    for the container's own limit too."""
    cpu_seconds: AtLeastOne = 30
    """CPU time of the process, in seconds."""
    timeout_seconds: Seconds = 20.0
    """Time in which the process has to answer."""


class Opa(Section, frozen=True):
    """The OPA that this process feeds or asks."""

    url: Url = "http://127.0.0.1:8181"
    """Where the API of OPA is, without `/v1`."""
    token_file: File | None = None
    """Holds the token that is sent to OPA; with one, an OPA that answers whoever has none makes
    the process unready. null: none."""
    ca_file: File | None = None
    """Authorities that OPA's certificate is checked by; null: those of the system."""
    binary: str = "opa"
    """Program of OPA, by path or name, which compiles candidate policies beside the OPA that
    serves, and decides for the commands that check or analyze policies."""
    compile: Compile = Compile()


class Coordination(Section, frozen=True):
    """Where this installation keeps its Leases and the ConfigMap of last good policies."""

    namespace: Namespace = "kube-sync"
    """This installation's own namespace, with its Leases and its ConfigMap of last good policies;
    the webhook's registrations leave it out."""


class Observe(Section, frozen=True):
    """Where /metrics, /livez and /readyz are; without it each command has a port of its own."""

    listen: Listen | None = None
    """Where these pages are; null: on all addresses, at 9401 for `replicate`, 9402 `remediate`,
    9403 `admit`, 9405 `topology`, 9406 `run`, 9407 `policy-sync`."""


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
    ledger: Ledger = Ledger()
    remediate: Remediate = Remediate()
    admission: Admission = Admission()
    coordination: Coordination = Coordination()
    observe: Observe = Observe()
    builtin: tuple[SystemName, ...] = ()
    """Policy systems to load into OPA and to answer for in the webhook."""
    scheduling: Scheduling = Scheduling()
    metadata: Metadata = Metadata()
    topology: PolicyTopology = PolicyTopology()
    policy_sync: PolicySync = PolicySync()
    enforce_scheduling_policy: EnforceSchedulingPolicy = EnforceSchedulingPolicy()

    def targets(self) -> tuple[Resource, ...]:
        """Return the resources that decisions are about."""
        return tuple(r for r in self.replicate.resources if r.name in self.placement.resources)

    def asks_opa(self) -> bool:
        """Tell whether the webhook asks the OPA that is replicated into, about the bare object."""
        engine, elsewhere = self.admission.engine, self.enforce_scheduling_policy.url
        return (
            elsewhere is None
            and engine.dialect in ("v1", "v0")
            and engine.path is None
            and engine.url in (None, self.opa.url)
        )
