"""The MetadataPolicies that objects are judged by, as OPA would have them.

Keeps true: of a cluster it only reads, and only in the namespaces that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kube_sync.kube.client import KubeClient
from kube_sync.policykinds.documents import Document
from kube_sync.policykinds.kinds import METADATA
from kube_sync.policykinds.listing import listed

Policies = dict[str, dict[str, Any]]  # by namespace and name


def of_documents(documents: Iterable[Document], namespace: str | None) -> Policies:
    """Return those in files, of one name the last; `namespace` is of those that name none.

    Raises Misconfigured.
    """
    found: Policies = {}
    for document in documents:
        if (document.api_group, document.kind) == (METADATA.gvr.group, METADATA.kind):
            own = document.metadata.get("namespace")
            where = document.namespace(None if own else namespace)
            # As it would be stored: what is found about one is by the others of its namespace.
            metadata = {**document.metadata, "namespace": where}
            stored = {**document.object, "metadata": metadata}
            found.setdefault(where, {})[document.name()] = stored
    return found


async def of_cluster(client: KubeClient, namespaces: Iterable[str]) -> Policies:
    """Return those of these namespaces of a cluster. Raises SyncError."""
    found: Policies = {}
    for namespace in namespaces:
        for key, policy in await listed(client, METADATA.gvr, namespace):
            found.setdefault(key.namespace, {})[key.name] = policy
    return found
