"""The picture of a topology, in a ConfigMap, for people and tools that draw it.

Keeps true: it is written when it differs from what is there and not otherwise; it is never more
than fits (an API server takes objects of about 1 MiB), and where it would be, it says so.
"""

from __future__ import annotations

from typing import Final

from kube_sync.kube.client import KubeClient
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.machinery.ownmaps import OwnMaps
from kube_sync.topology import Topology
from kube_sync.topology.dot import dot

NAME: Final = "kube-sync-topology"
KEY: Final = "topology"
LABELS: Final = {"kube-sync.io/topology": "dot"}
LIMIT: Final = 900 << 10  # bytes


class Picture:
    """The ConfigMap of that name in one namespace."""

    def __init__(self, client: KubeClient, fenced: FencedWriter, namespace: str) -> None:
        self._maps = OwnMaps(client, fenced, namespace, "picture", LABELS)

    async def draw(self, topology: Topology) -> bool:
        """Write the picture of a topology, unless it is there. Raises SyncError.

        Returns whether it was written.
        """
        return await self._maps.keep(NAME, {KEY: dot(topology, LIMIT)})
