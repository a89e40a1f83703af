"""The values of the chart: what each may be, its default, and what it is for.

A default that is not here is what the manifests have in that place (`Furnisher.defaults`).
"""

from __future__ import annotations

from typing import Final

from tools.charting.configuration import config_schema
from tools.charting.schemas import (
    COLLECTOR,
    ENV,
    FLAG,
    ISSUER,
    NAME,
    PORTS,
    RESOURCES,
    SIZE,
    TEXT,
    TEXTS,
    USER,
    WEBHOOK_RULE,
    enum,
    listed,
    mapping,
    rights,
)
from tools.charting.value import Value, image, pods, workload

VALUES: Final = (
    *image("image", "kube-sync"),
    Value(
        "imagePullSecrets",
        listed(mapping("name", name=NAME)),
        "Secrets with which the images are pulled.",
        [],
    ),
    Value("labels", TEXTS, "Labels of every object.", {}),
    *pods(),
    Value(
        "runAsUser",
        USER,
        "User and group of all pods; null: those that the cluster gives them, as OpenShift does.",
        65532,
    ),
    Value(
        "env",
        ENV,
        "Environment variables of the containers of kube-sync, such as "
        "`OTEL_EXPORTER_OTLP_HEADERS`; keys of the configuration are in `config`.",
        [],
    ),
    Value(
        "config",
        config_schema(),
        "Keys of the configuration file (docs/configure.md), merged into those of the chart. Put "
        "`on` and `off` in quotes.",
        {},
    ),
    Value(
        "placement.enabled",
        FLAG,
        "Placement: OPA with replicator and remediator, and the webhook. A spoke needs none.",
        default=True,
    ),
    Value(
        "policiesNamespace.create",
        FLAG,
        "Make the namespace of the policies, `kube-federation-scheduling-policy`. It stays when "
        "the release is removed.",
        default=True,
    ),
    *image("opa.image", "OPA"),
    *workload("opa", 1, "OPA"),
    Value(
        "replicator.resources", RESOURCES, "Requests and limits of the replicator, in OPA's pod."
    ),
    Value(
        "replicator.extraRules",
        rights("list", "watch"),
        "More rules of its ClusterRole: what `config.replicate.resources` names.",
        [],
    ),
    Value(
        "remediator.resources", RESOURCES, "Requests and limits of the remediator, in OPA's pod."
    ),
    Value(
        "remediator.extraRules",
        rights("list", "watch", "patch"),
        "More rules of its ClusterRole: what `config.placement.resources` names.",
        [],
    ),
    *workload("admission", 2, "the webhook"),
    Value(
        "webhook.rules",
        listed(WEBHOOK_RULE),
        "What else the webhook is asked about for placement: ReplicaSets always are. Each group "
        "and resource by its name, without `*`, and with `scope: Namespaced`: from the first "
        "policy on nothing of these is stored while the webhook does not answer.",
        [],
    ),
    Value(
        "webhook.exemptNamespaces",
        listed(NAME),
        "Namespaces about whose objects the webhook is never asked for placement, beside "
        "kube-system, its own and those of the policies. The remediator places them all the same, "
        "unless `config.replicate.ignore_namespaces` has them. SchedulingPolicies and "
        "MetadataPolicies hold there too.",
        [],
    ),
    Value(
        "webhook.timeoutSeconds",
        {"type": "integer", "minimum": 1, "maximum": 30},
        "Seconds in which the webhook has to answer.",
    ),
    Value(
        "certificates",
        enum("provision", "cert-manager", "none"),
        "Who makes the certificates: `provision`, a Job of kube-sync, every hour; `cert-manager`, "
        "which has to be there (the Job makes tokens only); `none`: every Secret is made by hand.",
        "provision",
    ),
    Value(
        "certManager.issuerRef",
        ISSUER,
        "Your own issuer, as `{kind: ClusterIssuer, name: …}`; empty: an authority of this "
        "installation.",
        {},
    ),
    *workload("provision", None, "the Job that makes Secrets"),
    Value(
        "crds.enabled",
        FLAG,
        "Install the kinds PlacementPolicy, SchedulingPolicy and "
        "MetadataPolicy. They stay when the release is removed.",
        default=False,
    ),
    Value(
        "scheduling.enabled",
        FLAG,
        "SchedulingPolicies; needs `crds.enabled`. From then on only pods that a policy allows.",
        default=False,
    ),
    Value("metadata.enabled", FLAG, "MetadataPolicies; needs `crds.enabled`.", default=False),
    Value(
        "topology.enabled", FLAG, "The topology of the Gateway API, with statuses.", default=False
    ),
    Value("topology.data.enabled", FLAG, "Roles for `config.replicate.topology`.", default=False),
    *workload("topology", 1, "the topology"),
    Value("policySync.enabled", FLAG, "Policy sync from this hub to its spokes.", default=False),
    Value(
        "policySync.direct.enabled",
        FLAG,
        "The namespace of the spokes' kubeconfigs, for the placer `direct`.",
        default=False,
    ),
    *workload("policySync", 1, "policy sync"),
    Value("spoke.enabled", FLAG, "The account by which a hub writes to this spoke.", default=False),
    Value(
        "labelledPolicies.enabled",
        FLAG,
        "Roles for policies with a label, in all namespaces.",
        default=False,
    ),
    Value(
        "placementDecisions.enabled",
        FLAG,
        "Roles for PlacementDecisions of SIG Multicluster.",
        default=False,
    ),
    Value(
        "ocmPlacementDecisions.enabled",
        FLAG,
        "Roles for PlacementDecisions of Open Cluster Management.",
        default=False,
    ),
    Value(
        "ocmPlacementDecisions.argocd.enabled",
        FLAG,
        "The same for those that Argo CD reads, in its namespace.",
        default=False,
    ),
    Value(
        "argocd.generator.enabled",
        FLAG,
        "The remediator serves Argo CD's plugin generator, with a token that the Job makes, and "
        "may list the Secrets of Argo CD.",
        default=False,
    ),
    Value(
        "argocd.applicationSets.enabled",
        FLAG,
        "Roles for ApplicationSets among `config.placement.resources`.",
        default=False,
    ),
    Value(
        "argocd.health.enabled",
        FLAG,
        "Role to follow Applications, for `config.remediate.add_first.health`.",
        default=False,
    ),
    Value(
        "argocd.health.servers.enabled",
        FLAG,
        "Right to list the Secrets of Argo CD, for Applications whose destination is a server and "
        "not a name.",
        default=False,
    ),
    Value("multikueue.enabled", FLAG, "Roles for the clusters of MultiKueue.", default=False),
    Value(
        "openReports.enabled",
        FLAG,
        "Reports of what is refused, held and drifted; the kind comes from OpenReports.",
        default=False,
    ),
    Value(
        "ledger.enabled",
        FLAG,
        "A ledger on a volume, which stays when the release is removed; needs `opa.replicas: 1`.",
        default=False,
    ),
    Value("ledger.size", SIZE, "Size of the volume: twice `ledger.max_size`."),
    Value("ledger.storageClassName", TEXT, "Its StorageClass; empty: the cluster's default.", ""),
    Value(
        "networkPolicy.enabled",
        FLAG,
        "NetworkPolicies: nothing in or out but what is needed.",
        default=True,
    ),
    Value(
        "networkPolicy.apiServerPorts",
        PORTS,
        "Ports of the API servers of this cluster and its spokes.",
    ),
    Value(
        "networkPolicy.monitoringNamespace",
        NAME,
        "The namespace of Prometheus, which may read metrics.",
    ),
    Value(
        "traces.enabled",
        FLAG,
        "Traces of all parts and of OPA; which share of them, says `config.observe.tracing.ratio`.",
        default=False,
    ),
    Value(
        "traces.endpoint",
        COLLECTOR,
        "The collector, for OTLP over HTTP: scheme, host and port.",
        "http://otel-collector.monitoring.svc:4318",
    ),
    Value("prometheus.monitors.enabled", FLAG, "A PodMonitor and a ServiceMonitor.", default=False),
    Value("prometheus.rules.enabled", FLAG, "A PrometheusRule with all alerts.", default=False),
    Value("prometheus.labels", TEXTS, "Labels by which the Prometheus operator selects these.", {}),
    Value(
        "grafana.dashboards.enabled",
        FLAG,
        "Dashboards, in a ConfigMap that Grafana's sidecar finds.",
        default=False,
    ),
)
