"""Lists a whole collection of the API server once."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import msgspec

from kube_sync.errors import NotFound, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.objects import GroupVersionResource, ObjectKey


async def listed(
    client: KubeClient, gvr: GroupVersionResource, namespace: str | None = None
) -> list[tuple[ObjectKey, Any]]:
    """Return the objects of one namespace, or of all. Raises SyncError."""
    found: list[tuple[ObjectKey, Any]] = []
    try:
        async with aclosing(KubeCollection(client, gvr, namespace=namespace).list()) as pages:
            async for page in pages:
                found += [(item.key, msgspec.json.decode(item.body)) for item in page.items]
    except NotFound as error:
        msg = f"{client.server} does not know {gvr} (is manifests/crds installed?)"
        raise Terminal(msg) from error
    return found
