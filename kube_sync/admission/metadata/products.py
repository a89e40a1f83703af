"""The objects that controllers create for a workload in its namespace, as policies see them.

Invariant: their labels and annotations are those that the author of the workload writes (Kubernetes
1.36). What controllers add of their own (`pod-template-hash`, revisions, the names of Jobs) is left
out, and so are ControllerRevisions, which have the labels of the template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kube_sync.kube.manifests import Document
from kube_sync.policykinds.templates import pod_made_by

Json = dict[str, Any]
# Annotations of a Deployment that its ReplicaSets do not get (pkg/controller/deployment/util).
_NOT_COPIED: Final = frozenset(
    {
        "deployment.kubernetes.io/desired-replicas",
        "deployment.kubernetes.io/max-replicas",
        "deployment.kubernetes.io/revision",
        "deployment.kubernetes.io/revision-history",
        "deprecated.deployment.rollback.to",
        "kubectl.kubernetes.io/last-applied-configuration",
    }
)
_LABELLED: Final = frozenset({("batch", "Job"), ("", "ReplicationController")})


@dataclass(frozen=True, slots=True)
class Product:
    """An object of this kind that a controller creates, and the plural for messages."""

    group: str
    kind: str
    plural: str
    whole: Json


def products(document: Document) -> Iterator[Product]:
    """Return one object of each kind that a workload creates, pods last. Raises Misconfigured."""
    pod = pod_made_by(document)
    if pod is None:
        return
    yield from _BETWEEN.get((document.api_group, document.kind), _nothing)(document)
    yield Product("", "Pod", "pods", pod)


def as_filled_in(group: str, kind: str, whole: Json) -> Json:
    """Return an object with the labels that the API server defaults for a workload without any.

    Those of its template, for a Job or a ReplicationController (pkg/apis/batch/v1/defaults.go).
    """
    metadata = _map(whole, "metadata")
    labels = _map(_map(_map(_map(whole, "spec"), "template"), "metadata"), "labels")
    if (group, kind) not in _LABELLED or _map(metadata, "labels") or not labels:
        return whole
    return {**whole, "metadata": {**metadata, "labels": labels}}


def _nothing(_document: Document) -> Iterator[Product]:
    return iter(())


def _replica_set(document: Document) -> Iterator[Product]:
    spec = document.object["spec"]
    labels = _map(_map(spec["template"], "metadata"), "labels")
    own = _map(document.metadata, "annotations").items()
    annotations = {key: value for key, value in own if key not in _NOT_COPIED}
    metadata = {"labels": labels, "annotations": annotations}
    whole = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}
    yield Product("apps", "ReplicaSet", "ReplicaSets", whole)


def _job(document: Document) -> Iterator[Product]:
    whole = {"apiVersion": "batch/v1", "kind": "Job", **document.object["spec"]["jobTemplate"]}
    yield Product("batch", "Job", "Jobs", as_filled_in("batch", "Job", whole))


def _claims(document: Document) -> Iterator[Product]:
    spec = document.object["spec"]
    selected = _map(_map(spec, "selector"), "matchLabels")
    claims = spec.get("volumeClaimTemplates")
    for claim in claims if isinstance(claims, list) else ():
        if isinstance(claim, dict):
            metadata = _map(claim, "metadata")
            labels = {**_map(metadata, "labels"), **selected}
            head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
            whole = {**claim, **head, "metadata": {**metadata, "labels": labels}}
            yield Product("", "PersistentVolumeClaim", "volume claims", whole)


_BETWEEN: Final[Mapping[tuple[str, str], Callable[[Document], Iterator[Product]]]] = (
    MappingProxyType(
        {
            ("apps", "Deployment"): _replica_set,
            ("apps", "StatefulSet"): _claims,
            ("batch", "CronJob"): _job,
        }
    )
)


def _map(whole: Json, field: str) -> Json:
    found = whole.get(field)
    return found if isinstance(found, dict) else {}
