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
from kube_sync.config.remediation import SinkName
from kube_sync.objects import GroupVersionResource


class Resource(Section, frozen=True, rename={"as_": "as"}):
    """One collection to replicate: its name in OPA, and which part of it is replicated.

    A resource with `namespaces` or `ignore_namespaces` uses neither list of `replicate`; one with
    `fields` overrides `replicate.fields`.
    """

    group: str
    """API group of the collection; empty for the core group."""
    version: str
    """API version to read the collection in, as in `v1`."""
    resource: str
    """Plural name of the collection, as in `replicasets`."""
    as_: DataName | None = None
    """Name of the collection below `data.<root>` in OPA; null: its plural name."""
    label_selector: str | None = None
    """Replicates only objects that match this label selector (as kubectl's `--selector`); null:
    all."""
    field_selector: str | None = None
    """Replicates only objects that match this field selector (as kubectl's `--field-selector`);
    null: all."""
    namespaces: tuple[Namespace, ...] | None = None
    """Namespaces to replicate from, with a LIST and a watch in each; `[]`: all; null:
    `replicate.namespaces`, unless `ignore_namespaces` is set here."""
    ignore_namespaces: tuple[Namespace, ...] | None = None
    """Namespaces to leave out; null: `replicate.ignore_namespaces`, unless `namespaces` is set
    here."""
    # A path is dotted or, since keys may have dots, a list of keys. None: as `replicate` says.
    fields: Literal["all", "auto"] | tuple[str | tuple[str, ...], ...] | None = None
    """Fields to keep of each object: a list of paths (each dotted, or a list of keys), `all`, or
    what the placement decision can read (`auto`); null: `replicate.fields`."""
    secrets: bool = False
    """Replicates the values of Secrets (`data`, `stringData`) into OPA, as far as `fields` selects
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
DEFAULT_TARGET = "replicasets"  # the collection that is decided on, by its name in OPA
_CLUSTERS = Resource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "clusters")
_REPLICASETS = Resource("apps", "v1", DEFAULT_TARGET)


class Replicate(Section, frozen=True):
    """What is replicated into OPA, and where."""

    root: DataName = "kubernetes"
    """Name below OPA's `data` that contains all collections; the systems in `builtin` require the
    default."""
    fields: Literal["all", "auto"] = "all"
    """Fields to keep of each object: `all`, or what the placement decision can read (`auto`). A
    resource can override it."""
    verify: Share = 0.0
    """Share of the decisions on objects replicated with `auto` that are also made on the whole
    objects, as a check; 0: no check."""
    namespaces: tuple[Namespace, ...] = ()
    """Namespaces to replicate from; `[]`: all. A resource can override it."""
    ignore_namespaces: tuple[Namespace, ...] = ()
    """Namespaces to leave out. A resource can override it."""
    resources: tuple[Resource, ...] = (_CLUSTERS, _REPLICASETS)
    """Collections to replicate; each needs a different name in OPA."""
    topology: bool = False
    """Replicates the topology of the Gateway API with its effective policies, as
    `data.<root>.topology`."""

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
    """ConfigMaps that a label makes policies or JSON data, as in kube-mgmt."""

    namespaces: tuple[AnyNamespace, ...] = ()
    """Namespaces of these ConfigMaps; `["*"]`: all, `[]`: none."""
    policy: Label = "openpolicyagent.org/policy=rego"
    """Label of ConfigMaps in which every key is a Rego module."""
    data: Label = "openpolicyagent.org/data=opa"
    """Label of ConfigMaps in which each value is JSON, loaded at
    `data.<namespace>.<name>.<key>`."""


class Allow(Section, frozen=True):
    """Exceptions from what policies may not do by default."""

    packages: tuple[str, ...] = ()
    """Reserved packages that policies may be in, including the packages below them, dotted as in
    `system.log`."""
    builtins: tuple[str, ...] = ()
    """Rego built-in functions that policies may call although they are refused by default, because
    they access the network, files, OPA's environment or its log, as in `http.send`."""


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
    """Where policies come from, and what they may do."""

    namespaces: tuple[str, ...] = ("kube-federation-scheduling-policy",)
    """Namespaces whose ConfigMaps with Rego and whose PlacementPolicies are policies; the webhook
    registration for placement excludes them."""
    static: bool = False
    """True if OPA also has policies from elsewhere; a policy then counts as existing at all
    times."""
    rego_version: Literal[0, 1] = 1
    """Rego version of policies that state none: by the label `kube-sync.io/rego-version`, by
    `spec.regoVersion`, or by a comment line of that name."""
    warnings: Mapping[WarningCode, Literal["off"]] = {}
    """Warnings that policies do not get, by code, for example `helper_in_decision: off`."""
    labelled: Labelled = Labelled()
    allow: Allow = Allow()


class Target(Section, frozen=True):
    """A replicated collection whose objects are decided on, and how decisions are carried out."""

    name: str
    """Name of the collection in OPA."""
    sinks: tuple[SinkName, ...] | None = None
    """How the decisions on its objects are carried out. Without `annotations` the objects are not
    changed, and the first sink is what moves are counted on. null: `annotations`, and the sinks in
    `remediate.sinks` that are `enabled`."""


class Placement(Section, frozen=True):
    """The placement decision, and the replicated resources that it is about."""

    path: DataPath = "io/k8s/federation/admission"
    """Path of the placement decision below OPA's `data`."""
    resources: tuple[str | Target, ...] = (DEFAULT_TARGET,)
    """Collections, by their names in OPA, to decide on; not set: `replicasets` if replicated."""
    key_file: File | None = None
    """File with the keys, one per line, that seal the annotation `kube-sync.io/requested`: the
    first key seals, any of them verifies. Replicator, remediator and webhook need the same keys;
    null: the annotation is not sealed, anyone's is accepted, and each of the three logs a warning
    at its start."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of these collections in OPA."""
        return tuple(one if isinstance(one, str) else one.name for one in self.resources)

    def sinks_of(self, name: str) -> tuple[SinkName, ...] | None:
        """Return the sinks that a collection names, None if it names none."""
        named = (one for one in self.resources if isinstance(one, Target) and one.name == name)
        return next((one.sinks for one in named), None)


class BasisPort(Section, frozen=True):
    """A port of the replicator that serves only the basis of decisions, to webhooks elsewhere."""

    listen: Listen | None = None
    """Address of the port; null: only the port of the stream serves the basis. Requires
    `decisions.token_file`, `cert_file` and `key_file`."""
    cert_file: File | None = None
    """Certificate (PEM) of the port. Requires `key_file`."""
    key_file: File | None = None
    """Private key (PEM) of that certificate."""


class Decisions(Section, frozen=True):
    """The decision stream, which the replicator serves and the remediator reads."""

    listen: Listen = "127.0.0.1:9400"
    """Address on which the replicator serves the stream. An address that is not loopback requires
    `token_file` and `cert_file`."""
    board: bool = True
    """Serves the web page `/ui` and its API on the port of the stream."""
    url: Url = "http://127.0.0.1:9400/v1/decisions"
    """URL at which clients read the stream."""
    token_file: File | None = None
    """File with the bearer token that the server requires and clients send; null: none."""
    cert_file: File | None = None
    """Certificate (PEM) of the server; null: plain HTTP. Requires `key_file`."""
    key_file: File | None = None
    """Private key (PEM) of that certificate."""
    ca_file: File | None = None
    """CA certificates with which clients verify the server; null: those of the system."""
    basis: BasisPort = BasisPort()


class Ledger(Section, frozen=True):
    """The file in which the replicator records each decision and each write.

    It is limited by age and by size: the oldest records are removed, and the hash chain of the rest
    can still be verified.
    """

    path: File | None = None
    """File of the ledger (SQLite), on a disk that outlives the process; null: nothing is
    recorded."""
    name: LedgerName = ""
    """Name that distinguishes this ledger from those of other replicators with the same Lease, on
    which the head of the ledger is noted."""
    inputs: bool = True
    """Also records the inputs of decisions (the object, and the clusters and other small
    collections that policies read), so that `kube-sync replay` can evaluate them again; never a
    Secret."""
    max_age: Seconds = 90 * 86_400.0
    """Seconds for which records are kept; the default is 90 days."""
    max_size: LedgerSize = 1 << 30
    """Maximum size of the file, in bytes."""
