"""The people of the story: four clusters, a handful of ReplicaSets, and the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FLEET = "fleet"
SHOP = "shop"
POLICIES = "kube-federation-scheduling-policy"
STAGED = "placement-candidate"
REGION = "topology.kubernetes.io/region"
LEVEL = "compliance.example.com/pci-level"
EU = "policy.federation.alpha.kubernetes.io/eu-jurisdiction-required"
PCI = "policy.federation.alpha.kubernetes.io/pci-compliance-level"
PREFERENCES = "federation.kubernetes.io/replica-set-preferences"

CLUSTERS = {
    "gce-europe-west1": ("europe-west1", "2"),
    "gce-europe-west2": ("europe-west2", "2"),
    "gce-us-east1": ("us-east1", "3"),
    "gce-asia-east1": ("asia-east1", "1"),
}
POLICY = Path(__file__).resolve().parents[2] / "rego/examples/eu_pci/eu_pci.rego"

Manifest = dict[str, Any]


def namespace(name: str) -> Manifest:
    """Return a Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def cluster(name: str, region: str, level: str) -> Manifest:
    """Return a cluster as it registers with the fleet."""
    return {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": FLEET, "labels": {REGION: region, LEVEL: level}},
        "spec": {"displayName": name, "clusterManager": {"name": "demo"}},
    }


def replica_set(name: str, *, eu: bool = False, pci: str | None = None) -> Manifest:
    """Return a ReplicaSet that asks for EU jurisdiction, a PCI level, both or neither."""
    wishes = ({EU: "true"} if eu else {}) | ({PCI: pci} if pci else {})
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": SHOP, "labels": labels, "annotations": wishes},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]},
            },
        },
    }


def policy_map(source: str) -> Manifest:
    """Return the ConfigMap that holds the placement policy."""
    return _config_map({"name": "placement", "namespace": POLICIES}, source)


def staged_map(source: str, stage: str) -> Manifest:
    """Return the ConfigMap that holds an edit of the placement policy, in a stage before active."""
    labels = {"kube-sync.io/stage": stage}
    return _config_map({"name": STAGED, "namespace": POLICIES, "labels": labels}, source)


def _config_map(metadata: Manifest, source: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"placement.rego": source},
    }
