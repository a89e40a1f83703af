"""Lists the objects of the configured resources in a cluster.

Invariant: it makes the replicator's LISTs, and holds one page at a time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from kube_sync.config import Replicate, Resource
from kube_sync.inspect.survey.exported import Found, decoded
from kube_sync.inspect.survey.progress import Progress
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection, outside_of
from kube_sync.kube.reflector import items_of
from kube_sync.opa.analysis.result import Collection


async def objects_of(
    client: KubeClient, replicate: Replicate, places: Mapping[str, Collection], progress: Progress
) -> AsyncGenerator[Found]:
    """Yield the objects to replicate of the resources in `places`. Raises SyncError."""
    for resource in replicate.resources:
        place = places.get(resource.name)
        count = 0
        for source in () if place is None else sources_of(client, replicate, resource, place):
            async for item in items_of(source):
                value = decoded(item.body, f"{resource.name} {item.key}")
                yield resource.name, value, len(item.body)
                count += 1
                progress.report(f"{resource.name}: {count} objects read …")


def sources_of(
    client: KubeClient, replicate: Replicate, resource: Resource, place: Collection
) -> list[KubeCollection]:
    """Return the LISTs of a resource that the replicator would make."""
    namespaces = replicate.namespaces_of(resource) if place.namespaced else ()
    ignored = replicate.ignored_of(resource) if place.namespaced else ()
    return [
        KubeCollection(
            client,
            resource.gvr,
            namespace=namespace,
            label_selector=resource.label_selector,
            field_selector=outside_of(ignored, resource.field_selector),
        )
        for namespace in namespaces or (None,)
    ]
