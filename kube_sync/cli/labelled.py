"""Which objects have labels: the API server is asked, since decisions do not carry them."""

from __future__ import annotations

import asyncio

from kube_sync.config import Settings
from kube_sync.errors import NotFound
from kube_sync.guard.labelselectors import parse_labels
from kube_sync.kube.client import KubeClient, kube_client
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.discovery import is_namespaced
from kube_sync.kube.reflector import items_of
from kube_sync.objects import GroupVersionResource, ObjectKey

Labelled = frozenset[tuple[str, str, ObjectKey]]  # by group and resource


def labelled(settings: Settings, selector: str, namespace: str | None) -> Labelled:
    """Return the objects that decisions are about and that have such labels now.

    Raises Misconfigured for what is no selector, SyncError if the API server does not answer.
    """
    parse_labels(selector)  # or the API server would refuse it, less plainly
    return asyncio.run(_listed(settings, selector, namespace))


async def _listed(settings: Settings, selector: str, namespace: str | None) -> Labelled:
    async with kube_client(settings.kubernetes) as client:
        found = [await _of(client, r.gvr, selector, namespace) for r in settings.targets()]
    return frozenset[tuple[str, str, ObjectKey]]().union(*found)


async def _of(
    client: KubeClient, gvr: GroupVersionResource, selector: str, namespace: str | None
) -> Labelled:
    try:
        inside = namespace if await is_namespaced(client, gvr) else None
    except NotFound:  # a kind that is not there has no objects
        return frozenset()
    source = KubeCollection(
        client, gvr, namespace=inside, metadata_only=True, label_selector=selector
    )
    return frozenset([(gvr.group, gvr.resource, item.key) async for item in items_of(source)])
