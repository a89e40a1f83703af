"""The pods of workloads, from their templates."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from kube_sync.errors import Misconfigured
from kube_sync.kube.manifests import Document

# The path of the template in each kind (the API reference's "Workloads").
_TEMPLATES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = MappingProxyType(
    {
        ("apps", "Deployment"): ("spec", "template"),
        ("apps", "ReplicaSet"): ("spec", "template"),
        ("apps", "StatefulSet"): ("spec", "template"),
        ("apps", "DaemonSet"): ("spec", "template"),
        ("batch", "Job"): ("spec", "template"),
        ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
        ("", "ReplicationController"): ("spec", "template"),
        ("", "PodTemplate"): ("template",),
    }
)

# Groups in which Kubernetes has, or had, one of these kinds: in others they are custom.
_BUILT_IN: Final = frozenset({"", "apps", "batch", "extensions"})
_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {"Pod": "v1", **{kind: f"{group}/v1".lstrip("/") for group, kind in _TEMPLATES}}
)

Json = dict[str, Any]


def check_version(document: Document) -> None:
    """Check that an object has a kind and apiVersion, and a workload that of Kubernetes.

    Raises Misconfigured: its pods would be ignored silently.
    """
    given = document.object.get("apiVersion")
    if not document.kind or not given:
        msg = f"{document.where}: an object without {'apiVersion' if document.kind else 'a kind'}"
        raise Misconfigured(msg)
    version = _KINDS.get(document.kind)
    if version is not None and document.api_group in _BUILT_IN and given != version:
        msg = f"{document.where}: apiVersion of a {document.kind} has to be {version}, not {given}"
        raise Misconfigured(msg)


def is_pod(document: Document) -> bool:
    """Return whether an object is a pod itself."""
    return (document.api_group, document.kind) == ("", "Pod")


def pod_made_by(document: Document) -> Json | None:
    """Return the pod that an object creates, None if it creates none. Raises Misconfigured."""
    path = _TEMPLATES.get((document.api_group, document.kind))
    if path is None:
        return None
    found: Any = document.object
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        msg = f"{document.where}: {document.kind} without {'.'.join(path)}"
        raise Misconfigured(msg)
    return {"apiVersion": "v1", "kind": "Pod", **found}
