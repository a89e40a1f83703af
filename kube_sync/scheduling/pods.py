"""The pods that objects are, or would make, and the requests in which they would be created.

Keeps true: a pod is passed on as it is written, but for the namespace and the service account that
the command line gives it; its shape is for the Rego to judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kube_sync.errors import Misconfigured
from kube_sync.scheduling.arguments import Account, Request
from kube_sync.scheduling.documents import Document

_DEFAULT: Final = "default"
# Where each kind keeps its template (the API reference's "Workloads").
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

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod to judge: what it is of, as whom it would run, and the request to judge."""

    kind: str
    name: str
    account: Account
    request: Json  # of an AdmissionReview


def candidates(documents: Iterable[Document], request: Request) -> list[Candidate]:
    """Return the pods among the objects; others make none. Raises Misconfigured."""
    found = [one for one in (_candidate(d, request) for d in documents) if one is not None]
    if not found:
        msg = f"{', '.join(request.files)}: there is no pod in it, and nothing that makes pods"
        raise Misconfigured(msg)
    return found


def namespaces(found: Iterable[Candidate]) -> list[str]:
    """Return where these pods would be."""
    return sorted({one.account.namespace for one in found})


def _candidate(document: Document, request: Request) -> Candidate | None:
    pod = _pod(document)
    if pod is None:
        return None
    namespace = _namespace(document, request)
    pod = {**pod, "metadata": {**_mapping(pod.get("metadata")), "namespace": namespace}}
    pod, account = _running_as(pod, namespace, request)
    name = str(document.metadata.get("name") or document.metadata.get("generateName") or "")
    return Candidate(document.kind, name, account, _review(pod, name, account, request))


def _pod(document: Document) -> Json | None:
    """Return the pod that an object is or makes, None for others. Raises Misconfigured."""
    if (document.api_group, document.kind) == ("", "Pod"):
        return document.object
    way = _TEMPLATES.get((document.api_group, document.kind))
    if way is None:
        return None
    found: Any = document.object
    for name in way:
        found = _mapping(found).get(name)
    if not isinstance(found, dict):
        msg = f"{document.file}: {document.kind} without {'.'.join(way)}"
        raise Misconfigured(msg)
    return {"apiVersion": "v1", "kind": "Pod", **found}


def _namespace(document: Document, request: Request) -> str:
    """Return where the pod would be, as kubectl finds it. Raises Misconfigured."""
    own = document.metadata.get("namespace")
    asked = request.account.namespace if request.account else request.namespace
    if own and asked and own != asked:
        name = document.metadata.get("name", "")
        msg = f"{document.file}: {document.kind} {name} is in namespace {own}, not in {asked}"
        raise Misconfigured(msg)
    return str(own or asked or _DEFAULT)


def _running_as(pod: Json, namespace: str, request: Request) -> tuple[Json, Account]:
    spec = _mapping(pod.get("spec"))
    if request.account is None:
        # `serviceAccount` is the old name of the field, which the API server copies.
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or _DEFAULT
        return pod, Account(namespace, str(name))
    if pod.get("spec") is not None and not isinstance(pod["spec"], dict):
        return pod, request.account  # which is refused as it is
    rest = {n: v for n, v in spec.items() if n != "serviceAccount"}
    named = {**rest, "serviceAccountName": request.account.name}
    return {**pod, "spec": named}, request.account


def _review(pod: Json, name: str, account: Account, request: Request) -> Json:
    return {
        "uid": "",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": name,
        "namespace": account.namespace,
        "operation": "CREATE",
        "userInfo": _user(account, request),
        "object": pod,
        "oldObject": None,
        "dryRun": True,
        "options": {},
    }


def _user(account: Account, request: Request) -> Json:
    if request.user is not None:
        groups = list(dict.fromkeys([*request.groups, "system:authenticated"]))
        return {"username": request.user, "groups": groups}
    groups = [
        "system:serviceaccounts",
        f"system:serviceaccounts:{account.namespace}",
        "system:authenticated",
    ]
    return {"username": str(account), "groups": groups}


def _mapping(value: Any) -> Json:  # noqa: ANN401 - any JSON
    return value if isinstance(value, dict) else {}
