"""The configuration of what goes into OPA, and of the decisions that come of it.

The text below a field says what it does: it is what `kube-sync config --explain` prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kube_sync.config.kinds import (
    AnyNamespace,
    DataName,
    DataPath,
    File,
    Label,
    LedgerName,
    LedgerSize,
    Listen,
    Namespace,
    Seconds,
    Section,
    Share,
    Url,
)
from kube_sync.objects import GroupVersionResource


class Resource(Section, frozen=True, rename={"as_": "as"}):
    """One collection to replicate, its name in OPA (by default its plural), and what part of it.

    A resource that says `namespaces` or `ignore_namespaces` takes neither from `replicate`, one
    that says `fields` takes its own.
    """

    group: str
    """API group of the collection; empty for the core group."""
    version: str
    """Version of the API to read it in, as in `v1`."""
    resource: str
    """Plural name of the collection, as in `replicasets`."""
    as_: DataName | None = None
    """Name of the collection below `data.<root>`; null: its plural."""
    label_selector: str | None = None
    """Replicates only objects with these labels, as kubectl's `--selector`; null: all."""
    field_selector: str | None = None
    """Replicates only objects with these fields, as kubectl's `--field-selector`; null: all."""
    namespaces: tuple[Namespace, ...] | None = None
    """The only namespaces to replicate it from, with a LIST and a watch in each; `[]`: all; null:
    as `replicate` says, unless `ignore_namespaces` is here."""
    ignore_namespaces: tuple[Namespace, ...] | None = None
    """Namespaces that are left out of it; null: as `replicate` says, unless `namespaces` is
    here."""
    # A path is dotted or, since keys may have dots, a list of keys. None: as `replicate` says.
    fields: Literal["all", "auto"] | tuple[str | tuple[str, ...], ...] | None = None
    """What to keep of each object: paths (dotted, or lists of keys), all, or what the placement
    decision can read (`auto`); null: as `replicate.fields`."""
    secrets: bool = False
    """Allows the values of Secrets (`data`, `stringData`) into OPA, as far as `fields` asks for
    them; only for the core resource `secrets`."""

    @property
    def holds_secrets(self) -> bool:
        """Whether its objects are Secrets."""
        return (self.group, self.resource) == ("", "secrets")

    @property
    def withholds(self) -> bool:
        """Whether its objects have values that may not be replicated."""
        return self.holds_secrets and not self.secrets

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


CLUSTERS = "clusters"  # the collection that is the fleet, by its name in OPA
TOPOLOGY = "topology"  # the collection that is made of many resources, and is none itself
_CLUSTERS = Resource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "clusters")
_REPLICASETS = Resource("apps", "v1", "replicasets")


class Replicate(Section, frozen=True):
    """What goes into OPA, and where."""

    root: DataName = "kubernetes"
    """Name in OPA's `data` that all collections lie below; what is `builtin` needs the default."""
    fields: Literal["all", "auto"] = "all"
    """What to keep of each object: all, or what the placement decision can read (`auto`)."""
    verify: Share = 0.0
    """Share of the decisions on `auto` objects that are made over whole objects too, as a check."""
    namespaces: tuple[Namespace, ...] = ()
    """The only namespaces to replicate from, unless a resource says otherwise; `[]`: all."""
    ignore_namespaces: tuple[Namespace, ...] = ()
    """Namespaces that are left out, unless a resource says otherwise."""
    resources: tuple[Resource, ...] = (_CLUSTERS, _REPLICASETS)
    """The collections to replicate; each needs a name of its own in OPA."""
    topology: bool = False
    """Replicates what policies of the Gateway API come to, as `data.<root>.topology`."""

    def is_auto(self, resource: Resource) -> bool:
        """Return whether the policies say which fields of a resource to replicate."""
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

    namespaces: tuple[AnyNamespace, ...] = ()
    """Where these ConfigMaps are; `["*"]`: everywhere, `[]`: nowhere."""
    policy: Label = "openpolicyagent.org/policy=rego"
    """Label that makes every key of a ConfigMap a Rego module."""
    data: Label = "openpolicyagent.org/data=opa"
    """Label that makes each value of a ConfigMap JSON at `data.<namespace>.<name>.<key>`."""


class Allow(Section, frozen=True):
    """What a policy may do although it is refused to all others by default."""

    packages: tuple[str, ...] = ()
    """Packages that policies may be in although they are reserved, with what is below them, dotted,
    as in `system.log`."""
    builtins: tuple[str, ...] = ()
    """Built-in functions of Rego that policies may call although they reach the network, files,
    OPA's environment or its log, as in `http.send`."""


# What policies are warned of (policies/linter.py); the last is OPA's own code.
WarningCode = Literal[
    "package_not_decided",
    "unknown_rule",
    "wrong_type",
    "helper_in_decision",
    "unused_helper",
    "unknown_annotation",
    "unknown_label",
    "unknown_field",
    "unknown_data",
    "unknown_resource",
    "missing_namespace",
    "unknown_value",
    "unknown_key",
    "unknown_cluster",
    "unusable_decision",
    "values_withheld",
    "not_analysed",
    "unexplained",
    "eval_builtin_error",
]


class Policies(Section, frozen=True):
    """Where policies live; `static` says that OPA has policies from elsewhere too."""

    namespaces: tuple[str, ...] = ("kube-federation-scheduling-policy",)
    """Namespaces whose ConfigMaps with Rego, and PlacementPolicies, are policies; the registration
    for placement leaves them out."""
    static: bool = False
    """Says that OPA has policies from elsewhere, so that there is always one to decide by."""
    rego_version: Literal[0, 1] = 1
    """Version of Rego of policies that state none themselves: no label
    `kube-sync.io/rego-version`, no `spec.regoVersion`, no comment line of that name."""
    warnings: Mapping[WarningCode, Literal["off"]] = {}
    """Warnings that policies are not to be given, by their codes, as `helper_in_decision: off`."""
    labelled: Labelled = Labelled()
    allow: Allow = Allow()


class Placement(Section, frozen=True):
    """The decision to ask for, and the replicated resources (by name in OPA) it is about."""

    path: DataPath = "io/k8s/federation/admission"
    """The placement decision, by its path below OPA's `data`."""
    resources: tuple[str, ...] = ("replicasets",)
    """Replicated collections, by their names in OPA, whose objects are decided on and patched."""
    key_file: File | None = None
    """Holds the keys, one a line, that the note of what was asked for is sealed with: the first
    seals, each of them proves. The same for replicator, remediator and webhook; null: notes are
    not sealed, anyone's is believed, and each of the three warns of that when it starts."""


class Decisions(Section, frozen=True):
    """The decision stream: where the replicator serves it, where the remediator finds it."""

    listen: Listen = "127.0.0.1:9400"
    """Where the replicator serves the stream; beyond loopback it needs a token and TLS."""
    board: bool = True
    """Serves a page to look at beside the stream, `/ui`, and what it asks for."""
    url: Url = "http://127.0.0.1:9400/v1/decisions"
    """Where those who follow the stream find it."""
    token_file: File | None = None
    """Holds the token that the stream asks for and that its readers send; null: none."""
    cert_file: File | None = None
    """Certificate (PEM) of the stream's server; null: plain HTTP. Goes with `key_file`."""
    key_file: File | None = None
    """Private key of that certificate."""
    ca_file: File | None = None
    """Authorities that readers of the stream trust; null: those of the system."""


class Ledger(Section, frozen=True):
    """The replicator's memory of each decision and each write, in a file that grows up to a bound.

    It is bounded by age and by size: the oldest goes, and the chain can be verified all the same.
    """

    path: File | None = None
    """File of the ledger (SQLite), on a disk that outlives the process; null: nothing is
    recorded."""
    name: LedgerName = ""
    """What tells this ledger from those of other replicators of the same Lease, on which its head
    is noted."""
    inputs: bool = True
    """Whether the object that is decided on, and the clusters and other small collections that
    policies read, are recorded too, so that `kube-sync replay` can decide again; never a
    Secret."""
    max_age: Seconds = 90 * 86_400.0
    """Seconds for which what happened is kept."""
    max_size: LedgerSize = 1 << 30
    """Bytes that the file may use."""
