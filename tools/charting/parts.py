"""What of `manifests/` the chart holds, in which template, and the values that it depends on.

A part is one template. Its layers are builds of kustomize with components, whose differences the
template makes on condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PLACEMENT: Final = ".Values.placement.enabled"
_PROVISIONED: Final = 'ne .Values.certificates "none"'
_CERT_MANAGER: Final = 'eq .Values.certificates "cert-manager"'
_ISSUES: Final = "not .Values.certManager.issuerRef"
_TRACES: Final = ".Values.traces.enabled"
# Where a component adds to the variables, they have to be there.
_CONFIG: Final = frozenset(
    {"ConfigMap kube-sync", "ConfigMap kube-sync-opa", "ConfigMap kube-sync-variables"}
)


@dataclass(frozen=True, slots=True)
class Build:
    """Folders below `manifests/`, and components below `manifests/components/`."""

    resources: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()  # more of the configuration's

    def exists_in(self, folders: frozenset[str]) -> bool:
        """Tell whether these manifests have all of it."""
        return {*self.resources, *(f"components/{name}" for name in self.components)} <= folders


@dataclass(frozen=True, slots=True)
class Part:
    """One template: what is built, and on which condition ('': always)."""

    name: str
    condition: str
    build: Build
    layers: Mapping[str, Build] = field(default_factory=dict)  # by their condition
    left_out: frozenset[str] = frozenset()  # objects, as `Kind name`
    own: Mapping[str, str] = field(default_factory=dict)  # conditions of single objects


PARTS: Final = (
    Part(
        "base",
        PLACEMENT,
        Build(("base",)),
        # Helm makes the namespace of the release, or finds it.
        left_out=frozenset({"Namespace kube-sync"}),
        own={"Namespace kube-federation-scheduling-policy": ".Values.policiesNamespace.create"},
    ),
    Part("config", "", Build(("config",))),
    Part(
        "opa",
        PLACEMENT,
        Build(("opa", "config")),
        {
            ".Values.ledger.enabled": Build(("opa", "config"), ("ledger",)),
            ".Values.argocd.generator.enabled": Build(("opa", "config"), ("argocd",)),
            _TRACES: Build(("opa", "config"), ("traces",)),
        },
        left_out=_CONFIG,
    ),
    Part("admission", PLACEMENT, Build(("admission",))),
    Part("webhook", PLACEMENT, Build(("webhook",))),
    Part(
        "provision",
        f"and {PLACEMENT} ({_PROVISIONED})",
        Build(("provision",)),
        {
            _CERT_MANAGER: Build((), ("cert-manager",)),
            ".Values.argocd.generator.enabled": Build(("provision",), ("argocd",)),
        },
        own={
            "Issuer kube-sync": _ISSUES,
            "Issuer kube-sync-self-signed": _ISSUES,
            "Certificate kube-sync-authority": _ISSUES,
        },
    ),
    Part(
        "networkpolicies",
        ".Values.networkPolicy.enabled",
        Build((), ("network-policy-default",)),
        {
            PLACEMENT: Build((), ("network-policy",)),
            _TRACES: Build(("config",), ("network-policy-default", "traces")),
        },
        left_out=_CONFIG,
    ),
    Part("crds", ".Values.crds.enabled", Build(("crds",))),
    Part(
        "scheduling",
        ".Values.scheduling.enabled",
        Build(("scheduling-rbac", "webhook-scheduling")),
    ),
    Part("metadata", ".Values.metadata.enabled", Build(("metadata-rbac", "webhook-metadata"))),
    Part("topology", ".Values.topology.enabled", Build(("topology-rbac", "topology"))),
    Part("topology-data", ".Values.topology.data.enabled", Build(("topology-data-rbac",))),
    Part("policy-sync", ".Values.policySync.enabled", Build(("policy-sync-rbac", "policy-sync"))),
    Part(
        "policy-sync-direct",
        ".Values.policySync.direct.enabled",
        Build(("policy-sync-direct-rbac",)),
    ),
    Part(
        "spoke",
        ".Values.spoke.enabled",
        Build(("policy-sync-spoke-rbac",)),
        left_out=frozenset({"Namespace kube-sync"}),
    ),
    Part("labelled", ".Values.labelledPolicies.enabled", Build(("labelled",))),
    Part(
        "placement-decisions",
        ".Values.placementDecisions.enabled",
        Build(("placement-decisions",)),
    ),
    Part(
        "ocm-placement-decisions",
        ".Values.ocmPlacementDecisions.enabled",
        Build(("ocm-placement-decisions",)),
    ),
    Part(
        "ocm-placement-decisions-argocd",
        ".Values.ocmPlacementDecisions.argocd.enabled",
        Build(("ocm-placement-decisions-argocd",)),
    ),
    Part(
        "argocd",
        ".Values.argocd.generator.enabled",
        Build(("argocd",)),
        left_out=frozenset(
            {"Role kube-sync-remediator-argocd", "RoleBinding kube-sync-remediator-argocd"}
        ),
        own={
            "Role kube-sync-provision-generator": _PROVISIONED,
            "RoleBinding kube-sync-provision-generator": _PROVISIONED,
        },
    ),
    Part(
        "argocd-clusters",
        "or .Values.argocd.generator.enabled .Values.argocd.health.servers.enabled",
        Build(("argocd-clusters",)),
    ),
    Part(
        "argocd-applicationsets",
        ".Values.argocd.applicationSets.enabled",
        Build(("argocd-applicationsets",)),
    ),
    Part("argocd-health", ".Values.argocd.health.enabled", Build(("argocd-health",))),
    Part("multikueue", ".Values.multikueue.enabled", Build(("multikueue",))),
    Part("openreports", ".Values.openReports.enabled", Build(("openreports",))),
    Part(
        "monitors",
        ".Values.prometheus.monitors.enabled",
        Build((), ("service-monitor",)),
        own={"ServiceMonitor kube-sync-opa": PLACEMENT},
    ),
    Part("rules", ".Values.prometheus.rules.enabled", Build((), ("prometheus-rules",))),
    Part("dashboards", ".Values.grafana.dashboards.enabled", Build((), ("grafana-dashboards",))),
)

# What else there is below `manifests/`, and why the chart has no part of it.
NOT_IN_THE_CHART: Final[Mapping[str, str]] = {
    "base/rbac": "within base",
    "dashboards": "within the component grafana-dashboards",
    "prometheus": "within the component prometheus-rules",
    "argocd-policy-health": "settings of Argo CD, not of kube-sync (docs/gitops.md)",
    "components/dry-run": "config.remediate.mode",
    "components/openreports": "openReports.enabled",
    "components/two-replicas": "opa.replicas",
    "components/policy-systems": "scheduling.enabled and metadata.enabled",
    "components/self-made-certificates": "certificates: provision",
    "overlays/minimal": "no values",
    "overlays/production": "ci/production-values.yaml",
    "overlays/hub": "ci/hub-values.yaml",
    "overlays/spoke": "ci/spoke-values.yaml",
    "examples/colorpolicy": "an example",
    "scheduling": "the replicator installs it by itself",
    "scheduling-options": "policies of one's own",
    "scheduler-name": "stands for itself: no process of kube-sync needs it",
}
