"""A small fleet as objects: three clusters, and workloads that have what a policy decides."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.configmaps import STATUS
from kube_sync.kube.staging import CANARY, LABEL, SHARE
from kube_sync.objects import ObjectKey
from kube_sync.policies.bundle import digest

NAMESPACE = "kube-federation-scheduling-policy"
PLACEMENT = "federation.kubernetes.io/replica-set-preferences"
ZONE = "example.com/zone"

# A workload runs on the clusters of its zone; what asks for no zone runs anywhere.
POLICY = """package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {
	"clusters": {name: {"weight": 1} | some name in _fit},
} if {
	count(_fit) > 0
}

errors contains "no cluster fits" if count(_fit) == 0

_fit contains name if {
	some name, cluster in data.kubernetes.clusters.fleet
	_zone(cluster.metadata.labels) == _zone(input.metadata.annotations)
}

_zone(texts) := object.get(texts, "example.com/zone", "")
"""


def item(body: dict[str, Any]) -> Item:
    metadata = body["metadata"]
    key = ObjectKey(metadata.get("namespace", ""), metadata["name"])
    uid = metadata.get("uid", "")
    return Item(key, uid, ResourceVersion("1"), msgspec.json.encode(body))


def cluster(name: str, namespace: str = "fleet", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": namespace, "uid": f"u-{name}", "labels": labels},
    }


def zoned(name: str, zone: str) -> dict[str, Any]:
    return cluster(name, **{ZONE: zone})


def preferences(*names: str) -> str:
    return msgspec.json.encode({"clusters": {name: {"weight": 1} for name in names}}).decode()


def replicaset(name: str, zone: str, *on: str, namespace: str = "shop") -> dict[str, Any]:
    annotations = {ZONE: zone}
    if on:
        annotations[PLACEMENT] = preferences(*on)
    metadata = {"name": name, "namespace": namespace, "uid": f"u-{name}"}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {**metadata, "annotations": annotations},
    }


def policy(
    source: str = POLICY, name: str = "placement", namespace: str = NAMESPACE, **more: Any
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, **more}
    data = {"policy.rego": source}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def canary(source: str, share: str, said: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a canary of POLICY's ConfigMap that decides on a share, or of which this is `said`."""
    name = "placement-candidate"
    status = {
        "status": "ok",
        "stage": "canary",
        "stands_for": f"{NAMESPACE}/placement",
        "modules": digest({f"{NAMESPACE}/{name}/policy.rego": source}),
        "effect": {"share": share, "namespaces": []},
        **(said or {}),
    }
    annotations = {SHARE: share, STATUS: msgspec.json.encode(status).decode()}
    return policy(source, name, labels={LABEL: CANARY}, annotations=annotations)


def policy_object(
    source: str = POLICY, name: str = "placement", namespace: str = NAMESPACE, **spec: Any
) -> dict[str, Any]:
    """Return the same as a PlacementPolicy."""
    return {
        "apiVersion": "policy.kube-sync.io/v1alpha1",
        "kind": "PlacementPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"modules": [{"name": "policy.rego", "rego": source}], **spec},
    }


def record(good: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return the record of last good versions, by `namespace/name` of a ConfigMap."""
    packed = base64.b64encode(gzip.compress(msgspec.json.encode(good))).decode()
    metadata = {"name": "kube-sync-last-good", "namespace": "kube-sync"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "binaryData": {"modules.json.gz": packed},
    }


def data_map(name: str, namespace: str = "teams", **data: str) -> dict[str, Any]:
    labels = {"openpolicyagent.org/data": "opa"}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def write(file: Path, *objects: dict[str, Any]) -> str:
    """Write objects one a line, as an export has them."""
    file.write_bytes(b"\n".join(map(msgspec.json.encode, objects)))
    return str(file)


FLEET = (zoned("c1", "eu"), zoned("c2", "eu"), zoned("c3", "us"))
WORKLOADS = (
    replicaset("web", "eu", "c1", "c2"),
    replicaset("shop", "eu", "c1", "c2"),
    replicaset("ads", "us", "c3"),
)
