"""Builds the admission requests in which the given objects would be created or updated.

Invariant: an object is passed on as written, except for its namespace and the labels that the API
server sets on a Job; the Rego validates its shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kube_sync.admission.metadata.products import as_filled_in, products
from kube_sync.errors import Misconfigured
from kube_sync.kube.manifests import Document
from kube_sync.kube.naming import CLUSTER_SCOPED
from kube_sync.policykinds.templates import check_version

Kind = tuple[str, str]  # API group and kind

Operation = Literal["CREATE", "UPDATE"]


@dataclass(frozen=True, slots=True)
class Request:
    """Which objects to judge, by what, and how to print it."""

    files: tuple[str, ...]  # "-" for standard input
    namespace: str | None = None
    policies: tuple[str, ...] = ()  # files and folders; none: the configured cluster
    ignore_other_kinds: bool = False  # in these files
    operation: Operation = "CREATE"
    old: tuple[str, ...] = ()  # of an update: files of the objects as they are stored
    json: bool = False


def of_the_cluster(documents: Iterable[Document]) -> frozenset[Kind]:
    """Return cluster-scoped kinds: Kubernetes' own, and those of CustomResourceDefinitions."""
    return CLUSTER_SCOPED | {
        (str(spec.get("group")), str(names.get("kind")))
        for document in documents
        if document.kind == "CustomResourceDefinition"
        and isinstance(spec := document.object.get("spec"), dict)
        and isinstance(names := spec.get("names"), dict)
        and spec.get("scope") == "Cluster"
    }


Json = dict[str, Any]
_Id = tuple[str, str, str, str]  # API group, kind, namespace and name


@dataclass(frozen=True, slots=True)
class Candidate:
    """One object to evaluate; `kind` and `name` are the workload's if `product` is set."""

    kind: str
    name: str
    namespace: str  # "" if cluster-scoped
    request: Json  # of an AdmissionReview
    product: str = ""  # what controllers would create for it: "pods", "Jobs"

    @property
    def operation(self) -> str:
        """The operation of the request."""
        return str(self.request["operation"])


def candidates(
    documents: Sequence[Document], old: Sequence[Document], request: Request
) -> list[Candidate]:
    """Return all objects, each followed by what controllers would create for it.

    Raises Misconfigured.
    """
    outside = of_the_cluster(documents)
    stored = {_id(one, outside, request): one.object for one in old}
    found = [c for one in documents for c in _candidates(one, outside, stored, request)]
    if not found:
        msg = f"{', '.join(request.files)}: there is no object in it"
        raise Misconfigured(msg)
    return found


def namespaces(found: Iterable[Candidate]) -> list[str]:
    """Return the namespaces of these objects."""
    return sorted({one.namespace for one in found if one.namespace})


def _candidates(
    document: Document, outside: frozenset[Kind], stored: Mapping[_Id, Json], request: Request
) -> Iterator[Candidate]:
    whole, namespace = _placed(document, outside, request)
    name = str(document.metadata.get("name") or document.metadata.get("generateName") or "")
    before = _before(document, _id(document, outside, request), stored, request)
    kind = {"group": document.api_group, "version": _version(document), "kind": document.kind}
    asked = _review(kind, name, namespace, request.operation, whole, before)
    yield Candidate(document.kind, name, namespace, asked)
    for made in products(document):
        kind = {"group": made.group, "version": "v1", "kind": made.kind}
        # These are created anew, also when the workload is updated.
        asked = _review(kind, "", namespace, "CREATE", _in(made.whole, namespace), None)
        yield Candidate(document.kind, name, namespace, asked, made.plural)


def _id(document: Document, outside: frozenset[Kind], request: Request) -> _Id:
    _, namespace = _placed(document, outside, request)
    name = str(document.metadata.get("name") or "")
    return document.api_group, document.kind, namespace, name


def _placed(document: Document, outside: frozenset[Kind], request: Request) -> tuple[Json, str]:
    check_version(document)
    if (document.api_group, document.kind) in outside:
        return document.object, ""
    namespace = document.namespace(request.namespace)
    whole = as_filled_in(document.api_group, document.kind, document.object)
    return _in(whole, namespace), namespace


def _in(whole: Json, namespace: str) -> Json:
    metadata = whole.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        return whole  # unchanged, for the Rego to reject
    return {**whole, "metadata": {**(metadata or {}), "namespace": namespace}}


def _before(
    document: Document, wanted: _Id, stored: Mapping[_Id, Json], request: Request
) -> Json | None:
    if request.old and wanted not in stored:
        msg = f"--old: {document.kind} {wanted[3] or '(no name)'} of {document.file} is not in it"
        raise Misconfigured(msg)
    return stored.get(wanted)


def _version(document: Document) -> str:
    return str(document.object.get("apiVersion") or "").rpartition("/")[2]


def _review(
    kind: Json, name: str, namespace: str, operation: Operation, whole: Json, before: Json | None
) -> Json:
    return {
        "uid": "",
        "kind": kind,
        "name": name,
        "namespace": namespace,
        "operation": operation,
        "object": whole,
        "oldObject": before,
        "dryRun": True,
        "options": {},
    }
