"""The policies that `kube-sync stage` reads and writes, and the versions that it saves of them.

Invariant: a policy is patched at the resourceVersion that was read. Its former content is in a
ConfigMap of its own, which is no policy.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.configmaps import CONFIGMAPS
from kube_sync.kube.meta import ObjectMeta, object_meta
from kube_sync.kube.patch import patch
from kube_sync.kube.policy_patches import Kind, Stageable, Texts
from kube_sync.kube.staging import LABEL, STANDS_FOR
from kube_sync.kube.wholeobjects import apply_object, delete_object, read_object
from kube_sync.objects import ObjectKey
from kube_sync.policies.staging.promotion import Record
from kube_sync.regoversion import NAME

_MANAGER: Final = "kube-sync-stage"
_KEY: Final = "before.json"  # no module, so the ConfigMap with it is no policy


class _Kept(msgspec.Struct):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


class StagingStore:
    """The policies of one kind, and the ConfigMaps with their former versions."""

    def __init__(self, kube: KubeClient, kind: Kind) -> None:
        self._kube = kube
        self.kind = kind

    async def read(self, key: ObjectKey) -> Stageable:
        """Read a policy. Raises SyncError: Terminal if there is none."""
        if (found := await self.find(key)) is None:
            kind = "ConfigMap " if self.kind.gvr == CONFIGMAPS else ""
            msg = f"there is no {kind}{self.kind.called(key)}"
            raise Terminal(msg)
        return found

    async def find(self, key: ObjectKey) -> Stageable | None:
        """Read a policy, None if there is none. Raises SyncError."""
        body = await read_object(self._kube, self.kind.gvr, key)
        if body is None:
            return None
        try:
            metadata = object_meta(body)
            version = ResourceVersion(metadata.resource_version)
            return self.kind.read(Item(key, metadata.uid, version, body))
        except NO_JSON as error:
            msg = f"{self.kind.called(key)} cannot be read: {error}"
            raise Terminal(msg) from error

    async def patch(self, found: Stageable, change: dict[str, Any]) -> None:
        """Patch a policy at the version that was read. Raises SyncError, Conflict."""
        version = {"resourceVersion": found.item.version}
        body = {**change, "metadata": {**change.get("metadata", {}), **version}}
        path = self.kind.gvr.path(found.key.namespace, found.key.name)
        await patch(self._kube, path, body, "merge", _MANAGER)

    async def put(self, place: ObjectKey, former: Stageable | None, staged: Stageable) -> None:
        """Have the policy at `place` say what a staged one says. Raises SyncError."""
        if former is not None:
            change = self.kind.holding(former, staged.texts, staged.rego_version)
            await self.patch(former, change)
            return
        labels = {k: v for k, v in staged.labels.items() if k not in (LABEL, NAME)}
        await self._create(place, staged.texts, staged.rego_version, labels)

    async def _create(
        self, key: ObjectKey, texts: Texts, rego_version: str | None, labels: dict[str, str]
    ) -> None:
        made = self.kind.made(texts, rego_version)
        labels = {**labels, **made["metadata"]["labels"]}
        metadata = {"name": key.name, "namespace": key.namespace, "labels": labels}
        body = {**made, "metadata": metadata}
        await self._kube.request(
            "POST", self.kind.gvr.path(key.namespace), body=msgspec.json.encode(body)
        )

    async def kept(self, place: ObjectKey) -> tuple[ObjectKey, str, Record] | None:
        """Return the saved version of a policy: its place, its uid, and its content."""
        key = self.kind.before(place)
        body = await read_object(self._kube, CONFIGMAPS, key)
        if body is None:
            return None
        try:
            found = msgspec.json.decode(body, type=_Kept)
            record = msgspec.json.decode((found.data or {}).get(_KEY, ""), type=Record)
        except NO_JSON as error:
            msg = f"ConfigMap {key} does not say what was there before"
            raise Terminal(msg) from error
        return key, found.metadata.uid, record

    async def keep(self, place: ObjectKey, record: Record) -> None:
        """Save the version of a policy before a promotion. Raises SyncError."""
        key, known = self.kind.before(place), await self.kept(place)
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": key.name, "annotations": {STANDS_FOR: place.name}},
            "data": {_KEY: msgspec.json.encode(record).decode()},
        }
        uid = None if known is None else known[1]
        await apply_object(self._kube, CONFIGMAPS, key, body, _MANAGER, uid)

    async def restore(self, place: ObjectKey, found: Stageable | None, record: Record) -> None:
        """Write the saved version of a policy back. Raises SyncError."""
        if record.before is None:
            if found is not None:
                await delete_object(self._kube, self.kind.gvr, place, found.item.uid)
        elif found is not None:
            change = self.kind.holding(found, record.before, record.rego_version)
            await self.patch(found, change)
        else:
            await self._create(place, record.before, record.rego_version, {})

    async def forget(self, where: ObjectKey, uid: str) -> None:
        """Delete a saved version. Raises SyncError."""
        await delete_object(self._kube, CONFIGMAPS, where, uid)
