"""ConfigMaps of ours, for people and tools: each is written when it differs from what is stored.

Invariant: one that somebody changed or deleted is restored at the next reconcile; an empty one that
does not exist is not created.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from kube_sync.errors import NO_JSON, NotFound, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.configmaps import CONFIGMAPS
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.meta import ObjectMeta
from kube_sync.kube.patch import patch
from kube_sync.topology.status.writer import MANAGER

Data = Mapping[str, str]

# Of the picture of a topology, for tools that draw it; an API server takes objects of about 1 MiB.
NAME: Final = "kube-sync-topology"
KEY: Final = "topology"
LABELS: Final = {"kube-sync.io/topology": "dot"}
LIMIT: Final = 900 << 10  # bytes
_CHECK_SECONDS: Final = 300.0  # seconds


class _ConfigMap(msgspec.Struct):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


Operation = Literal["picture", "paths"]


class OwnedConfigMaps:
    """The ConfigMaps of one namespace; `operation` is the label of writes in metrics."""

    def __init__(
        self,
        client: KubeClient,
        fenced: FencedWriter,
        namespace: str,
        operation: Operation,
        labels: Data,
    ) -> None:
        self._client = client
        self._fenced = fenced
        self._namespace = namespace
        self._operation = operation
        self._labels = labels
        self._written: dict[str, Data] = {}

    async def ensure(self, name: str, data: Data) -> bool:
        """Write one if it differs; return whether it was written. Raises SyncError."""
        if await self._is_current(name, data):
            return False
        await self._fenced.send(self._operation, lambda: self._write(name, data))
        self._written[name] = data
        return True

    async def _is_current(self, name: str, data: Data) -> bool:
        path = CONFIGMAPS.path(self._namespace, name)
        try:
            found = await self._client.request("GET", path)
            stored = msgspec.json.decode(found, type=_ConfigMap)
        except NotFound:
            return not data
        except NO_JSON as error:
            msg = f"{path} of the API server is no ConfigMap: {error}"
            raise Retriable(msg) from error
        labels = stored.metadata.labels or {}
        known = stored.data or {}
        # Other keys that remain after our write belong to somebody else.
        has_same_keys = known.keys() == data.keys() or self._written.get(name) == data
        return (
            has_same_keys
            and known.items() >= data.items()
            and labels.items() >= self._labels.items()
        )

    async def _write(self, name: str, data: Data) -> None:
        metadata = {"name": name, "namespace": self._namespace, "labels": dict(self._labels)}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        path = CONFIGMAPS.path(self._namespace, name)
        # Forced: our values replace those of other field managers.
        await patch(self._client, path, body | {"data": dict(data)}, "apply", MANAGER)


class PathStore:
    """The ConfigMaps of maps of paths; an unchanged one is checked only periodically."""

    def __init__(self, maps: OwnedConfigMaps, clock: Callable[[], float]) -> None:
        self._maps = maps
        self._clock = clock
        self._checked: dict[str, tuple[Data, float]] = {}  # and when it was checked

    async def ensure(self, layout: Mapping[str, Data]) -> None:
        """Write all that differ. Raises SyncError."""
        now = self._clock()
        for name, data in layout.items():
            known = self._checked.get(name)
            if known is None or known[0] != data or now - known[1] >= _CHECK_SECONDS:
                self._checked.pop(name, None)
                await self._maps.ensure(name, data)
                self._checked[name] = dict(data), now
