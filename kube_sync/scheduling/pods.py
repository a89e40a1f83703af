"""The pods that objects are, or would make, and the requests in which they would be created.

Keeps true: a pod is passed on as it is written, but for the namespace and the service account that
the command line gives it; its shape is for the Rego to judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kube_sync.errors import Misconfigured
from kube_sync.policykinds.documents import Document
from kube_sync.policykinds.templates import is_pod, pod_made_by
from kube_sync.scheduling.arguments import Account, Request

_DEFAULT: Final = "default"
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
    pod = document.object if is_pod(document) else pod_made_by(document)
    if pod is None:
        return None
    asked = request.account.namespace if request.account else request.namespace
    namespace = document.namespace(asked)
    pod = {**pod, "metadata": {**_mapping(pod.get("metadata")), "namespace": namespace}}
    pod, account = _running_as(pod, namespace, request)
    name = str(document.metadata.get("name") or document.metadata.get("generateName") or "")
    return Candidate(document.kind, name, account, _review(pod, name, account, request))


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
