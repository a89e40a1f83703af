"""Builds the admission requests in which the pods of the given objects would be created.

Invariant: a pod is as its controller creates it, in the namespace and with the service account of
the command line; the Rego validates its shape. A DaemonSet is a request of its own before that of
its pods, from which the controller removes the required node affinity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from kube_sync.admission.scheduling.controllers import (
    is_daemonset,
    on_a_node,
    scheduler_of,
    user_of,
)
from kube_sync.errors import Misconfigured
from kube_sync.kube.manifests import Document
from kube_sync.policykinds.templates import check_version, is_pod, pod_made_by

_DEFAULT: Final = "default"
_POD: Final = {"group": "", "version": "v1", "kind": "Pod"}
_DAEMONSET: Final = {"group": "apps", "version": "v1", "kind": "DaemonSet"}
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Account:
    """A service account."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Its name as a user (Kubernetes, "Authenticating": service account tokens)."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


@dataclass(frozen=True, slots=True)
class Request:
    """Which pods to judge, as whom, by what, and how to print it."""

    files: tuple[str, ...]  # "-" for standard input
    account: Account | None = None  # None: the one that each pod names
    user: str | None = None  # who creates it, where that is no service account
    groups: tuple[str, ...] = ()  # of that user
    namespace: str | None = None
    policies: tuple[str, ...] = ()  # files and folders; none: the configured cluster
    ignore_other_kinds: bool = False  # in these files
    json: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod to evaluate: its workload, its service account, and the admission request."""

    kind: str
    name: str
    account: Account
    request: Json  # of an AdmissionReview
    written: Json | None = None  # the request in which their DaemonSet is created


def candidates(documents: Iterable[Document], request: Request) -> list[Candidate]:
    """Return the pods of the objects; some have none. Raises Misconfigured."""
    found = [one for one in (_candidate(d, request) for d in documents) if one is not None]
    if not found:
        msg = f"{', '.join(request.files)}: there is no pod in it, and nothing that makes pods"
        raise Misconfigured(msg)
    return found


def namespaces(found: Iterable[Candidate]) -> list[str]:
    """Return the namespaces of these pods."""
    return sorted({one.account.namespace for one in found})


def _candidate(document: Document, request: Request) -> Candidate | None:
    check_version(document)
    pod = document.object if is_pod(document) else pod_made_by(document)
    if pod is None:
        return None
    namespace = document.namespace(
        request.account.namespace if request.account else request.namespace
    )
    pod = {**pod, "metadata": {**_mapping(pod.get("metadata")), "namespace": namespace}}
    pod, account = _running_as(pod, namespace, request)
    name = str(document.metadata.get("name") or document.metadata.get("generateName") or "")
    author = _user(account, request)
    asked = _review(_POD, pod, name, namespace, user_of(document) or author)
    found = Candidate(document.kind, name, account, asked)
    if not is_daemonset(document):
        return found
    whole = _with_template(document, pod, namespace)
    written = _review(_DAEMONSET, whole, name, namespace, author)
    return of_daemonset(replace(found, written=written), whole)


def daemonsets(found: Iterable[Candidate]) -> dict[str, Json]:
    """Return the DaemonSets of these pods by namespace and name, as in OPA's data."""
    stored: dict[str, Json] = {}
    for one in found:
        if one.written is not None:
            stored.setdefault(one.account.namespace, {})[one.name] = one.written["object"]
    return stored


def of_daemonset(found: Candidate, whole: Json) -> Candidate:
    """Return the pod of the DaemonSet `whole`."""
    template = whole["spec"]["template"]
    metadata = {**_mapping(template.get("metadata")), "namespace": found.account.namespace}
    pod = on_a_node(
        {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}, found.name
    )
    request = {**found.request, "object": pod}
    return replace(found, request=request, written={**(found.written or {}), "object": whole})


def _with_template(document: Document, pod: Json, namespace: str) -> Json:
    """Return a DaemonSet whose template has the pod's account and the API server's defaults."""
    whole, template = document.object, document.object["spec"]["template"]
    spec = pod.get("spec")
    if isinstance(spec, dict):
        template = {**template, "spec": {**spec, "schedulerName": scheduler_of(spec)}}
    metadata = {**document.metadata, "namespace": namespace}
    return {**whole, "metadata": metadata, "spec": {**whole["spec"], "template": template}}


def _running_as(pod: Json, namespace: str, request: Request) -> tuple[Json, Account]:
    spec = _mapping(pod.get("spec"))
    if request.account is None:
        # `serviceAccount` is the old name of the field, which the API server copies.
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or _DEFAULT
        return pod, Account(namespace, str(name))
    if pod.get("spec") is not None and not isinstance(pod["spec"], dict):
        return pod, request.account  # unchanged, for the Rego to reject
    rest = {n: v for n, v in spec.items() if n != "serviceAccount"}
    named = {**rest, "serviceAccountName": request.account.name}
    return {**pod, "spec": named}, request.account


def _review(kind: Json, whole: Json, name: str, namespace: str, user: Json) -> Json:
    resource = f"{kind['kind'].lower()}s"
    return {
        "uid": "",
        "kind": kind,
        "resource": {**{n: kind[n] for n in ("group", "version")}, "resource": resource},
        "name": name,
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": user,
        "object": whole,
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
