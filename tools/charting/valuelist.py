"""The values of the chart: what each may be, its default, and what it is for.

A default that is not here is what the manifests have in that place (`Furnisher.defaults`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tools.charting.configuration import config_schema

MADE: Final = object()  # the default is that of the manifests
_Schema = dict[str, Any]

FLAG: Final[_Schema] = {"type": "boolean"}
TEXT: Final[_Schema] = {"type": "string"}
NAME: Final[_Schema] = {"type": "string", "minLength": 1}
TEXTS: Final[_Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
ANY: Final[_Schema] = {"type": "object"}
ITEMS: Final[_Schema] = {"type": "array", "items": {"type": "object"}}
PORTS: Final[_Schema] = {
    "type": "array",
    "items": {"type": "integer", "minimum": 1, "maximum": 65535},
    "minItems": 1,
}
_SIZE: Final[_Schema] = {"type": "string", "pattern": r"^[0-9.]+([KMGTPE]i?)?$"}
_WITH_DIGEST: Final = {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}


def _at_least(least: int) -> _Schema:
    return {"type": "integer", "minimum": least}


def _one_of(*values: str) -> _Schema:
    return {"type": "string", "enum": [*values]}


@dataclass(frozen=True, slots=True)
class Value:
    """One value: its path, what it may be, its default, and what it is for."""

    path: str
    schema: _Schema
    text: str
    default: Any = MADE


def _image(path: str, whose: str) -> tuple[Value, ...]:
    own: tuple[Value, ...] = (
        Value(f"{path}.repository", NAME, f"The image of {whose}."),
        Value(f"{path}.tag", TEXT, "Its tag."),
    )
    if path == "image":
        own = (
            Value(f"{path}.repository", NAME, f"The image of {whose}.", "kube-sync"),
            Value(f"{path}.tag", TEXT, "Its tag; empty: the chart's appVersion.", ""),
        )
    return (
        *own,
        Value(f"{path}.digest", _WITH_DIGEST, "Its digest (`sha256:…`), in place of the tag.", ""),
        Value(f"{path}.pullPolicy", TEXT, "Empty: what Kubernetes takes for the tag.", ""),
    )


def _pods(path: str = "") -> tuple[Value, ...]:
    """Return the values of pods: of all, or of one workload."""
    stem, whose = (f"{path}.", "of these pods, in place of those") if path else ("", "")
    more = "in addition to those of all pods" if path else "of all pods"
    for_all = f"{whose} of all pods" if path else "of all pods"
    return (
        Value(f"{stem}podAnnotations", TEXTS, f"Annotations {more}.", {}),
        Value(f"{stem}podLabels", TEXTS, f"Labels {more}.", {}),
        Value(f"{stem}nodeSelector", TEXTS, f"Labels of nodes {for_all}.", {}),
        Value(f"{stem}tolerations", ITEMS, f"Tolerations {for_all}.", []),
        Value(f"{stem}affinity", ANY, f"Affinity {for_all}.", {}),
        Value(f"{stem}priorityClassName", TEXT, f"PriorityClass {for_all}.", ""),
    )


def _workload(path: str, replicas: int | None, container: str) -> tuple[Value, ...]:
    """Return the values of a workload: `replicas` are the fewest, None if there are none."""
    number = Value(f"{path}.replicas", _at_least(replicas or 1), "Number of pods.")
    resources = Value(f"{path}.resources", ANY, f"Requests and limits of {container}.")
    return (*((number,) if replicas else ()), resources, *_pods(path))


VALUES: Final = (
    *_image("image", "kube-sync"),
    Value("imagePullSecrets", ITEMS, "Secrets with which the images are pulled.", []),
    Value("labels", TEXTS, "Labels of every object.", {}),
    *_pods(),
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
    *_image("opa.image", "OPA"),
    *_workload("opa", 1, "OPA"),
    Value("replicator.resources", ANY, "Requests and limits of the replicator, in OPA's pod."),
    Value("remediator.resources", ANY, "Requests and limits of the remediator, in OPA's pod."),
    *_workload("admission", 2, "the webhook"),
    Value(
        "certificates",
        _one_of("provision", "cert-manager", "none"),
        "Who makes the certificates: `provision`, a Job of kube-sync, every hour; `cert-manager`, "
        "which has to be there (the Job makes tokens only); `none`: every Secret is made by hand.",
        "provision",
    ),
    Value(
        "certManager.issuerRef",
        ANY,
        "Your own issuer, as `{kind: ClusterIssuer, name: …}`; empty: an authority of this "
        "installation.",
        {},
    ),
    *_workload("provision", None, "the Job that makes Secrets"),
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
    *_workload("topology", 1, "the topology"),
    Value("policySync.enabled", FLAG, "Policy sync from this hub to its spokes.", default=False),
    Value(
        "policySync.direct.enabled",
        FLAG,
        "The namespace of the spokes' kubeconfigs, for the placer `direct`.",
        default=False,
    ),
    *_workload("policySync", 1, "policy sync"),
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
        "The remediator serves Argo CD's plugin generator, with a token that the Job makes, and may "
        "list the Secrets of Argo CD.",
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
        "Role for Reports of OpenReports, which config.remediate.openreports.enabled switches on.",
        default=False,
    ),
    Value(
        "ledger.enabled",
        FLAG,
        "A ledger on a volume, which stays when the release is removed; needs `opa.replicas: 1`.",
        default=False,
    ),
    Value("ledger.size", _SIZE, "Size of the volume: twice `ledger.max_size`."),
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
