"""The pod that a controller creates from a template, its user, and the API server's defaults.

Invariant: pods are as the controllers of Kubernetes 1.36 create them, as far as scheduling is
concerned. Only the DaemonSet controller changes it: it binds each pod to one node by a required
node affinity in place of the template's, and adds tolerations (pkg/controller/daemon/util). The
controller manager is assumed to run with `--use-service-account-credentials`, as the controllers'
roles need it. Before it calls a webhook the API server defaults `schedulerName`, and the admission
plugins DefaultTolerationSeconds and Priority set their fields: a pod's own values are kept; values
of an unexpected type are left for the Rego to reject.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from kube_sync.kube.manifests import Document

_NODE: Final = "any-node"  # each pod of a DaemonSet has its own
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

# By API group and kind of the workload: the controller that creates its pods, even if indirectly.
_CONTROLLERS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("apps", "Deployment"): "replicaset-controller",
        ("apps", "ReplicaSet"): "replicaset-controller",
        ("apps", "StatefulSet"): "statefulset-controller",
        ("apps", "DaemonSet"): "daemon-set-controller",
        ("batch", "Job"): "job-controller",
        ("batch", "CronJob"): "job-controller",
        ("", "ReplicationController"): "replication-controller",
    }
)
_NO_EXECUTE: Final = ("not-ready", "unreachable")
_NO_SCHEDULE: Final = ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")

Json = dict[str, Any]


def user_of(document: Document) -> Json | None:
    """Return the `userInfo` of the controller that creates its pods, or None."""
    name = _CONTROLLERS.get((document.api_group, document.kind))
    if name is None:
        return None
    groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"]
    return {
        "username": f"system:serviceaccount:kube-system:{name}",
        "groups": [*groups, "system:authenticated"],
    }


def is_daemonset(document: Document) -> bool:
    """Return whether the object is a DaemonSet."""
    return (document.api_group, document.kind) == ("apps", "DaemonSet")


def on_a_node(pod: Json, daemonset: str) -> Json:
    """Return the pod of a template as the controller creates it for a DaemonSet of this name."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    tolerations = spec.get("tolerations")
    if tolerations is None or isinstance(tolerations, list):
        tolerations = _tolerating(tolerations or [], spec)
    tied = {"affinity": _tied(spec.get("affinity")), "tolerations": tolerations}
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemonset, "controller": True}
    metadata = {**pod["metadata"], "ownerReferences": [owner]}
    return {**pod, "metadata": metadata, "spec": {**spec, **tied}}


def _tied(affinity: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return an affinity whose node affinity requires one node, and nothing else of nodes."""
    if affinity is not None and not isinstance(affinity, dict):
        return affinity  # unchanged, for the Rego to reject
    nodes = (affinity or {}).get("nodeAffinity")
    if nodes is not None and not isinstance(nodes, dict):
        return affinity
    field = {"key": "metadata.name", "operator": "In", "values": [_NODE]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {**(affinity or {}), "nodeAffinity": {**(nodes or {}), _REQUIRED: required}}


def _tolerating(own: list[Any], spec: Json) -> list[Any]:
    """Return tolerations with the controller's, which replace those for the same taints."""
    found = list(own)
    for added in _tolerations(spec):
        same = [at for at, one in enumerate(found) if _is_same(one, added)]
        if same:
            found[same[0]] = added
        else:
            found.append(added)
    return found


def _tolerations(spec: Json) -> Iterator[Json]:
    for name in _NO_EXECUTE:
        yield _toleration(name, "NoExecute")
    for name in _NO_SCHEDULE:
        yield _toleration(name, "NoSchedule")
    if spec.get("hostNetwork") is True:
        yield _toleration("network-unavailable", "NoSchedule")


def _toleration(name: str, effect: str) -> Json:
    return {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}


def _is_same(one: object, added: Json) -> bool:
    """Return whether two are for the same taints, whatever their seconds (`MatchToleration`)."""
    if not isinstance(one, dict):
        return False
    operator = one.get("operator") or "Equal"
    return (one.get("key"), one.get("effect"), operator, one.get("value") or "") == (
        added["key"],
        added["effect"],
        added["operator"],
        "",
    )


_SCHEDULER: Final = "default-scheduler"
_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def filled_in(pod: Json, seconds: int, priority_class: str) -> Json:
    """Return a pod as webhooks get it.

    `seconds`: how long it tolerates a node that is not ready; `priority_class`: the global default,
    empty if there is none.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    filled = {**spec, "schedulerName": scheduler_of(spec)}
    if priority_class and not spec.get("priorityClassName"):
        filled["priorityClassName"] = priority_class
    tolerations = spec.get("tolerations")
    if tolerations is None or isinstance(tolerations, list):
        filled["tolerations"] = [*(tolerations or []), *_missing(tolerations or [], seconds)]
    return {**pod, "spec": filled}


def scheduler_of(spec: Json) -> Any:  # noqa: ANN401 - any JSON, which is refused as it is
    """Return the scheduler that a pod's spec names, or the default."""
    return spec.get("schedulerName") or _SCHEDULER


def global_default(priority_classes: Mapping[str, Any], configured: str) -> str:
    """Return the PriorityClass of pods that name none, empty if none is known."""
    found = [name for name, one in priority_classes.items() if one.get("globalDefault") is True]
    return configured or min(found, default="")


def _missing(tolerations: list[Any], seconds: int) -> list[Json]:
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in _TAINTS
        if not any(_tolerates(one, key) for one in tolerations)
    ]


def _tolerates(one: object, key: str) -> bool:
    return (
        isinstance(one, dict)
        and (one.get("key") or key) == key
        and (one.get("effect") or "NoExecute") == "NoExecute"
    )
