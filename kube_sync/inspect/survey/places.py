"""The places of each configured resource's objects below `data`, namespaced or not.

Determined by a cluster's discovery; without a cluster by exported objects, or by a list of the
kinds of Kubernetes; all other kinds count as namespaced.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube_sync.config import Replicate
from kube_sync.errors import Misconfigured, NotFound
from kube_sync.inspect.survey.exported import Exported
from kube_sync.kube.client import KubeClient
from kube_sync.kube.discovery import is_namespaced
from kube_sync.kube.naming import is_cluster_scoped
from kube_sync.opa.analysis.result import Collection


def guess_places(
    replicate: Replicate, cluster_scoped: Iterable[str], exported: Exported | None = None
) -> dict[str, Collection]:
    """Return the places without a cluster. Raises Misconfigured."""
    named = frozenset(cluster_scoped)
    if unknown := sorted(named - {resource.name for resource in replicate.resources}):
        msg = f'--cluster-scoped: "{unknown[0]}" is not in replicate.resources'
        raise Misconfigured(msg)
    found = {}
    for resource in replicate.resources:
        seen = None if exported is None else exported.namespaced(resource)
        inside = not is_cluster_scoped(resource.gvr) if seen is None else seen
        path = (replicate.root, resource.name)
        found[resource.name] = Collection(path, namespaced=inside and resource.name not in named)
    return found


async def discover_places(
    client: KubeClient, replicate: Replicate
) -> tuple[dict[str, Collection], frozenset[str]]:
    """Return the places by discovery, and the resources it does not have. Raises SyncError."""
    found, unknown = guess_places(replicate, ()), set()
    for resource in replicate.resources:
        try:
            inside = await is_namespaced(client, resource.gvr)
        except NotFound:
            unknown.add(resource.name)
        else:
            found[resource.name] = Collection((replicate.root, resource.name), namespaced=inside)
    return found, frozenset(unknown)
