"""The picture of a topology, in a ConfigMap, for people and tools that draw it.

Keeps true: it is written when it differs from what is there and not otherwise; it is never more
than fits (an API server takes objects of about 1 MiB), and where it would be, it says so.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON, NotFound, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.configmaps import CONFIGMAPS
from kube_sync.kube.sending import Sending
from kube_sync.machinery.writer import MANAGER
from kube_sync.topology import Topology
from kube_sync.topology.dot import dot

NAME: Final = "kube-sync-topology"
KEY: Final = "topology"
LABELS: Final = {"kube-sync.io/topology": "dot"}
LIMIT: Final = 900 << 10  # bytes


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, str] | None = None


class Picture:
    """The ConfigMap of that name in one namespace."""

    def __init__(self, client: KubeClient, sending: Sending, namespace: str) -> None:
        self._client = client
        self._sending = sending
        self._namespace = namespace
        self._path = CONFIGMAPS.path(namespace, NAME)

    async def draw(self, topology: Topology) -> bool:
        """Write the picture of a topology, unless it is there. Raises SyncError.

        Returns whether it was written.
        """
        text = dot(topology, LIMIT)
        if await self._is_there(text):
            return False
        await self._sending.send("picture", lambda: self._write(text))
        return True

    async def _is_there(self, text: str) -> bool:
        try:
            found = await self._client.request("GET", self._path)
            there = msgspec.json.decode(found, type=_ConfigMap)
        except NotFound:
            return False
        except NO_JSON as error:
            msg = f"{self._path} of the API server is no ConfigMap: {error}"
            raise Retriable(msg) from error
        labels = there.metadata.labels or {}
        return (there.data or {}).get(KEY) == text and labels.items() >= LABELS.items()

    async def _write(self, text: str) -> None:
        metadata = {"name": NAME, "namespace": self._namespace, "labels": LABELS}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        await self._client.request(
            "PATCH",
            self._path,
            # Forced: what somebody else made of the picture is none.
            params={"fieldManager": MANAGER, "force": "true"},
            body=msgspec.json.encode(body | {"data": {KEY: text}}),
            content_type="application/apply-patch+yaml",
            accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        )
