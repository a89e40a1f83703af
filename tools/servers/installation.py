"""Publishes processes on this machine as an installation in the cluster, for `kubectl kube-sync`.

ConfigMaps and the pod are those of `manifests/overlays/minimal`; the pod is on the node of the
stand-in for a kubelet, which forwards its ports to the processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from kube_sync.config.environment import YAML
from kube_sync.yamlnodes import plain, single
from tools.servers.kubelet import NODE
from tools.servers.manifests import manifests_of
from tools.servers.stack import RunningStack

NAMESPACE: Final = "kube-sync"
POD: Final = "kube-sync-0"
_OVERLAY: Final = Path(__file__).resolve().parents[2] / "manifests/overlays/minimal"


@dataclass(frozen=True, slots=True)
class Published:
    """What differs from the overlay."""

    secrets: Mapping[str, Mapping[str, str]]  # their texts, by name and key
    # Of config.yaml, by section: fields that take the place of the overlay's.
    configuration: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # beside config.yaml, by name


def publish(stack: RunningStack, published: Published) -> None:
    """Put an installation into the cluster, or what has changed of it."""
    for manifest in manifests_of(_OVERLAY):
        found = deepcopy(manifest)
        if found["kind"] == "ConfigMap" and found["metadata"]["namespace"] == NAMESPACE:
            if "config.yaml" in found["data"]:
                found["data"]["config.yaml"] = _configured(found["data"], published.configuration)
                found["data"] |= published.files
            stack.api.apply(found, force=True)
        elif found["kind"] == "Deployment" and found["metadata"]["name"] == "kube-sync":
            start_pod(stack, POD, found["spec"]["template"])
    for name, texts in published.secrets.items():
        secret = {"apiVersion": "v1", "kind": "Secret", "stringData": dict(texts)}
        secret["metadata"] = {"name": name, "namespace": NAMESPACE}
        stack.api.apply(secret, force=True)


def start_pod(stack: RunningStack, name: str, template: Mapping[str, Any] | None = None) -> None:
    """Make a pod of the Deployment, ready, as a kubelet would."""
    if template is None:
        deployments = (one for one in manifests_of(_OVERLAY) if one["kind"] == "Deployment")
        template = next(
            one["spec"]["template"] for one in deployments if one["metadata"]["name"] == "kube-sync"
        )
    metadata = {**template["metadata"], "name": name, "namespace": NAMESPACE}
    spec = {**template["spec"], "nodeName": NODE}
    stack.api.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    stack.api.merge("pods", name, {"status": ready}, NAMESPACE, "status")


def withdraw(stack: RunningStack) -> None:
    """Remove the pods, and all ConfigMaps and Secrets beside them."""
    for pod in stack.api.get("pods", namespace=NAMESPACE)["items"]:  # no kubelet lets them go
        stack.api.delete("pods", pod["metadata"]["name"], NAMESPACE)
    for resource in ("configmaps", "secrets"):
        stack.api.delete_all(resource, NAMESPACE)


def _configured(data: Mapping[str, str], changes: Mapping[str, Mapping[str, object]]) -> str:
    node = single(data["config.yaml"], YAML, "configuration")
    whole: Any = {} if node is None else plain(node)
    for section, fields in changes.items():
        whole[section] = {**whole.get(section, {}), **fields}
    return yaml.safe_dump(whole, sort_keys=False)
