"""What decisions on scheduling are made by: policies, roles and bindings, as OPA would have them.

Keeps true: of a cluster it only reads, and of roles and bindings in namespaces only those of the
namespaces that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from typing import Any, Final

import msgspec

from kube_sync.errors import Misconfigured, NotFound, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.scheduling.documents import Document
from kube_sync.scheduling.kinds import COLLECTIONS, SCHEDULING_POLICIES

_IN_NAMESPACES: Final = frozenset({"Role", "RoleBinding"})

Json = dict[str, Any]


class Evidence:
    """Objects by collection, as below `data.kubernetes`."""

    def __init__(self) -> None:
        self.data: dict[str, Json] = {gvr.resource: {} for gvr in COLLECTIONS.values()}

    def add(self, kind: str, key: ObjectKey, value: Json) -> None:
        """Take in one object; one of the same name is replaced, as by an apply."""
        inside = self.data[COLLECTIONS[kind].resource]
        if key.namespace:
            inside = inside.setdefault(key.namespace, {})
        inside[key.name] = value

    @property
    def policies(self) -> Json:
        """The SchedulingPolicies by name."""
        return self.data[SCHEDULING_POLICIES.resource]


def of_documents(documents: Iterable[Document]) -> Evidence:
    """Return what objects in files say; other kinds are left out. Raises Misconfigured."""
    found = Evidence()
    for document in documents:
        gvr = COLLECTIONS.get(document.kind)
        if gvr is not None and gvr.group == document.api_group:
            found.add(document.kind, _key(document), document.object)
    return found


async def of_cluster(client: KubeClient, namespaces: Iterable[str]) -> Evidence:
    """Return what a cluster holds, in namespaces only of these. Raises SyncError."""
    found = Evidence()
    wanted = list(namespaces)
    for kind, gvr in COLLECTIONS.items():
        for namespace in wanted if kind in _IN_NAMESPACES else (None,):
            await _list(client, kind, gvr, namespace, found)
    return found


async def _list(
    client: KubeClient,
    kind: str,
    gvr: GroupVersionResource,
    namespace: str | None,
    found: Evidence,
) -> None:
    try:
        async with aclosing(KubeCollection(client, gvr, namespace=namespace).list()) as pages:
            async for page in pages:
                for item in page.items:
                    found.add(kind, item.key, msgspec.json.decode(item.body))
    except NotFound as error:
        msg = f"{client.server} does not know {gvr} (is manifests/crds installed?)"
        raise Terminal(msg) from error


def _key(document: Document) -> ObjectKey:
    metadata = document.metadata
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        msg = f"{document.file}: a {document.kind} without metadata.name"
        raise Misconfigured(msg)
    if document.kind not in _IN_NAMESPACES:
        return ObjectKey("", name)
    # Where `kubectl apply` would put it.
    return ObjectKey(str(metadata.get("namespace") or "default"), name)
