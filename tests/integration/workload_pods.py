"""Pods of workloads, as Kubernetes's controllers make them, where no controller runs."""

from __future__ import annotations

import copy
from typing import Any

Json = dict[str, Any]
_TEMPLATE = {"metadata": {"labels": {"app": "web"}}}
_SELECTOR = {"matchLabels": {"app": "web"}}
_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
# kubernetes 1.36, pkg/controller/daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations
_OF_DAEMONSETS = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_CONTROLLERS = {
    "DaemonSet": "daemon-set-controller",
    "Deployment": "replicaset-controller",  # of its ReplicaSet, of the same template
    "Job": "job-controller",
}


def workload(kind: str, name: str, namespace: str, /, **spec: Any) -> Json:
    """Return a workload whose template has a pod of one container with `spec`."""
    container = {"name": "main", "image": "registry.example/main"}
    template: Json = {**_TEMPLATE, "spec": {"containers": [container]} | spec}
    found: Json = {"template": template}
    if kind == "Job":
        template["spec"] = {"restartPolicy": "Never"} | template["spec"]
    else:
        found["selector"] = _SELECTOR
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": found,
    }


def made_by(stored: Json, node: str) -> tuple[Json, str]:
    """Return the pod that the controller of a stored workload makes, and as which user.

    That of a DaemonSet is for one node.
    """
    kind, metadata = stored["kind"], stored["metadata"]
    spec = copy.deepcopy(stored["spec"]["template"]["spec"])
    if kind == "DaemonSet":
        spec["tolerations"] = [*spec.get("tolerations", ()), *_tolerations()]
        affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        # ReplaceDaemonSetPodNodeNameNodeAffinity: whatever the template required is gone.
        affinity[_HARD] = {"nodeSelectorTerms": [{"matchFields": [tie(node)]}]}
    owner = {
        "apiVersion": stored["apiVersion"],
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "labels": stored["spec"]["template"]["metadata"]["labels"],
            "ownerReferences": [owner],
        },
        "spec": spec,
    }
    return pod, f"system:serviceaccount:kube-system:{_CONTROLLERS[kind]}"


def tie(node: str) -> Json:
    """Return the expression by which the DaemonSet controller names a node."""
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def _tolerations() -> list[Json]:
    return [{"key": k, "operator": "Exists", "effect": e} for k, e in _OF_DAEMONSETS]
