"""The objects: clusters as ClusterProfile and as Argo CD's Secret, a policy, ApplicationSets.

Each ApplicationSet chooses the clusters of the tier gold, in one of three ways: by Argo CD's own
cluster generator, by the PlacementDecision of its placement, or by asking the remediator. In the
latter two it is itself the object that the policy places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kube_sync.objects import GroupVersionResource
from kube_sync.remediation.sinks.slices import decision_key
from tools.demo.fleet import FLEET, POLICIES
from tools.servers import argocd_controller
from tools.servers.argocd_controller import NAMESPACE, cluster_secret, plain_secret

Manifest = dict[str, Any]

APPLICATION_SETS = GroupVersionResource("argoproj.io", "v1alpha1", "applicationsets")
OWN, DECISION, PLUGIN = "own", "decision", "plugin"
WAYS = (OWN, DECISION, PLUGIN)
CONFIG, SECRET = "test-generator", "test-generator-token"
POLICY_NAME = "placement"
TIER = "tier"
GOLD = "gold"

# A policy that says nothing of an empty set of clusters, as a careless one does.
POLICY = """\
package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {"clusters": _clusters} if {
	input.metadata.labels.tier
}

_clusters[name] := {"weight": 1} if {
	some name, cluster in data.kubernetes.clusters.fleet
	cluster.metadata.labels.tier == input.metadata.labels.tier
}
"""

# What replicator and remediator are configured with: ApplicationSets are the targets.
REPLICATE: Mapping[str, object] = {
    "resources": [
        {
            "group": "multicluster.x-k8s.io",
            "version": "v1alpha1",
            "resource": "clusterprofiles",
            "as": "clusters",
        },
        {
            "group": APPLICATION_SETS.group,
            "version": APPLICATION_SETS.version,
            "resource": APPLICATION_SETS.resource,
        },
    ]
}
PLACEMENT: Mapping[str, object] = {"resources": [APPLICATION_SETS.resource]}


def profile(name: str, tier: str = GOLD) -> Manifest:
    """Return a ClusterProfile."""
    return {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": FLEET, "labels": {TIER: tier}},
        "spec": {"clusterManager": {"name": "test"}},
    }


def known_cluster(name: str, *, called: str | None = None, tier: str = GOLD) -> Manifest:
    """Return the Secret of a cluster, with the same labels; `called` is its name to Argo CD."""
    return cluster_secret(name, {TIER: tier}, called=called)


def policy(source: str = POLICY) -> Manifest:
    """Return the ConfigMap that holds the policy."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": POLICY_NAME, "namespace": POLICIES},
        "data": {"placement.rego": source},
    }


def generator_objects(url: str, token: str) -> Iterator[Manifest]:
    """Yield ConfigMap and Secret of the plugin generator at this URL."""
    yield plain_secret(SECRET, {"token": token})
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG, "namespace": NAMESPACE},
        "data": {"baseUrl": url, "token": f"${SECRET}:token"},
    }


def application_set(
    way: str, number: int, tier: str = GOLD, selected: str = TIER, every: int = 5
) -> Manifest:
    """Return an ApplicationSet that is reconciled `every` so many seconds.

    `selected` is the label that the cluster generator looks at.
    """
    name = f"{way}-{number}"
    found = argocd_controller.application_set(name, _generator(way, name, tier, selected, every))
    found["metadata"]["labels"] = {} if way == OWN else {TIER: tier}
    found["spec"]["template"]["metadata"]["labels"] = {"way": way}
    return found


def _generator(way: str, name: str, tier: str, selected: str, every: int) -> Manifest:
    if way == OWN:
        return {"clusters": {"selector": {"matchLabels": {selected: tier}}}}
    if way == DECISION:
        key = decision_key(APPLICATION_SETS, name, NAMESPACE)
        return {
            "clusterDecisionResource": {
                "configMapRef": "kube-sync-placements",
                "labelSelector": {
                    "matchLabels": {"cluster.open-cluster-management.io/placement": key}
                },
                "requeueAfterSeconds": every,
            }
        }
    named = {"resource": "applicationsets.argoproj.io", "namespace": NAMESPACE, "name": name}
    return {
        "plugin": {
            "configMapRef": {"name": CONFIG},
            "input": {"parameters": named},
            "requeueAfterSeconds": every,
        }
    }
