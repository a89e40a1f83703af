"""The configuration as frozen values: every section, every field, its type and its default.

Invariant: a Settings never changes; two that are equal mean the same. `checks` has
constraints beyond types. This module does not read files or the environment. Each larger part has a
module of its own beside this one. The text below a field says what it does: it is what
`kube-sync config --explain` prints and `docs/configure.md` has.
"""

from __future__ import annotations

from typing import Final

from kube_sync.config.kinds import (
    AtLeastOne,
    File,
    Listen,
    Namespace,
    ProcessMemory,
    Seconds,
    Section,
    Share,
    Url,
)
from kube_sync.config.remediation import Remediate, SinkName
from kube_sync.config.replication import Decisions, Ledger, Placement, Policies, Replicate, Resource
from kube_sync.config.rules import Metadata, Scheduling, SystemName
from kube_sync.config.syncing import PolicySync
from kube_sync.config.topology import PolicyTopology
from kube_sync.config.webhook import Admission, Classes, EnforceSchedulingPolicy

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
    """The connection to the Kubernetes API server."""

    kubeconfig: File | None = None
    """Kubeconfig with the API server and the credentials; null: the pod's service account, else the
    file that `KUBECONFIG` names, else `~/.kube/config`."""
    context: str | None = None
    """Context of the kubeconfig; null: its current context."""


class Compile(Section, frozen=True):
    """Limits of each process that compiles policies, or evaluates them on a sample, before use."""

    memory_bytes: ProcessMemory = 512 * 2**20
    """Maximum memory of the process; a policy that exceeds it is refused (`too_expensive` in its
    status). It also counts toward the memory limit of the container."""
    cpu_seconds: AtLeastOne = 30
    """Maximum CPU time of the process, in seconds."""
    timeout_seconds: Seconds = 20.0
    """Maximum run time of the process, in seconds."""


class Opa(Section, frozen=True):
    """The OPA that this process writes to or queries."""

    url: Url = "http://127.0.0.1:8181"
    """Base URL of OPA's REST API, without `/v1`."""
    token_file: File | None = None
    """File with the bearer token for OPA; null: no token is sent. With a token, the process is not
    ready while OPA also answers requests without one."""
    ca_file: File | None = None
    """CA certificates that verify OPA's certificate; null: those of the system."""
    binary: str = "opa"
    """OPA executable, as a path or a name in `PATH`. It compiles candidate policies before the
    serving OPA gets them, and evaluates policies for the commands that check or analyze them."""
    compile: Compile = Compile()


class Coordination(Section, frozen=True):
    """The namespace of this installation."""

    namespace: Namespace = "kube-sync"
    """Namespace of this installation, with its Leases and the ConfigMap of the last good policies;
    the registrations of the webhook exclude it."""


class Tracing(Section, frozen=True):
    """OpenTelemetry traces (docs/tracing.md).

    Where they are sent is read from the SDK's own variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`.
    """

    enabled: bool = False
    """Whether spans are recorded and exported by OTLP over HTTP. Requires the extra
    `kube-sync[otel]`, which the image has."""
    ratio: Share = 0.01
    """Share of the traces begun here that are recorded; a trace that a caller began is recorded if
    the caller records it."""


class Observe(Section, frozen=True):
    """The server of /metrics, /livez and /readyz, and traces."""

    listen: Listen | None = None
    """Address of this server; null: all addresses, with port 9401 for `replicate`, 9402
    `remediate`, 9403 `admit`, 9405 `topology`, 9406 `run`, 9407 `policy-sync`."""
    tracing: Tracing = Tracing()


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
    """Built-in policy systems whose rules are loaded into OPA and whose paths the webhook
    serves."""
    scheduling: Scheduling = Scheduling()
    metadata: Metadata = Metadata()
    topology: PolicyTopology = PolicyTopology()
    policy_sync: PolicySync = PolicySync()
    enforce_scheduling_policy: EnforceSchedulingPolicy = EnforceSchedulingPolicy()

    def targets(self) -> tuple[Resource, ...]:
        """Return the resources that decisions are about."""
        return tuple(r for r in self.replicate.resources if r.name in self.placement.names)

    def sinks_of(self, resource: Resource) -> tuple[SinkName, ...]:
        """Return the sinks of decisions on a resource; the first one leads."""
        found = self.placement.sinks_of(resource.name)
        found = self.remediate.sinks.default_of(resource.gvr) if found is None else found
        return tuple(sorted(dict.fromkeys(found), key=lambda name: name != "annotations"))

    def classes(self) -> Classes:
        """Return whether the webhook decides by class: `admission.classes`, or what null means.

        Without a token no replicator is known that it could follow.
        """
        if not self.asks_opa():
            return "off"
        return self.admission.classes or ("on" if self.decisions.token_file else "off")

    def asks_opa(self) -> bool:
        """Tell whether the webhook asks the OPA that is replicated into, about the bare object."""
        engine, elsewhere = self.admission.engine, self.enforce_scheduling_policy.url
        return (
            elsewhere is None
            and engine.dialect in ("v1", "v0")
            and engine.path is None
            and engine.url in (None, self.opa.url)
        )
