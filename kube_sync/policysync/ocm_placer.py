"""Places copies through Open Cluster Management (OCM): a ManifestWork each, in its cluster.

Invariant: a work that is right is not written; a work is changed or deleted only at the
resourceVersion that was read; a work of another owner is not taken over. The finalizer of a work is
its agent's: no new work is made before one that is being deleted is gone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial

import structlog

from kube_sync.errors import Conflict, NotFound, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.wholeobjects import apply_object, delete_object, mark_object
from kube_sync.objects import ObjectKey
from kube_sync.policysync.copies import MANAGER, Copy, CopyKey, OnChange, Placed, PolicyId
from kube_sync.policysync.copy_cache import CopyCache, CopyObject, one_per_cluster
from kube_sync.policysync.manifestworks import LEAVING, WORKS, placed_of, work_key, work_of

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class OcmPlacer:
    """A Placer that writes the hub's ManifestWorks; feed `store` with those that have our label."""

    def __init__(
        self,
        client: KubeClient,
        on_change: OnChange,
        manager: str = MANAGER,
        executor: str | None = None,
    ) -> None:
        """`executor`: see `work_of`."""
        self._client = client
        self._manager = manager
        self._executor = executor
        self.store = CopyCache(partial(placed_of, executor=executor), on_change)

    @property
    def ready(self) -> bool:
        """Whether the works were listed."""
        return self.store.served

    def policies(self) -> Iterable[PolicyId]:
        """Return every policy that has works."""
        return self.store.policies()

    def placed(self, policy: PolicyId) -> Mapping[str, Placed]:
        """Return the copies of a policy by cluster, without those that are being deleted."""
        return one_per_cluster(self.store.of(policy))

    async def apply(self, copy: Copy) -> None:
        """Create or update a work, and clear its mark. Raises SyncError; Conflict: not ours."""
        where, body = work_key(copy), work_of(copy, self._executor)
        found = self.store.get(where)
        if found is not None and found.placed.key.origin != copy.key.origin:
            msg = f"ManifestWork {where} brings another policy, and is left as it is"
            raise Conflict(msg)
        if found is not None and found.deleting:
            msg = f"ManifestWork {where} is being deleted: its agent is waited for"
            raise Retriable(msg)
        if found is None or found.comparable.digest != copy.digest:
            found = await self._write(where, body, found)
            log.info("work_applied", work=str(where))
        if found is not None and found.placed.remove_after is not None:
            await self._mark(found, None)
        await self._remove([one for one in self._of(copy.key) if one.where != where])

    async def mark_for_removal(self, key: CopyKey, at: float) -> None:
        """Mark the works of a copy: they may be removed from `at` on, in Unix seconds."""
        for found in self._of(key):
            await self._mark(found, str(math.ceil(at)))

    async def remove(self, key: CopyKey) -> None:
        """Delete the works of a copy. Raises SyncError."""
        await self._remove(self._of(key))

    def _of(self, key: CopyKey) -> list[CopyObject]:
        return [one for one in self.store.of(key.policy) if one.placed.key == key]

    async def _write(
        self, where: ObjectKey, body: Mapping[str, object], found: CopyObject | None
    ) -> CopyObject | None:
        uid = None if found is None else found.uid
        request = apply_object(self._client, WORKS, where, body, self._manager, uid)
        try:
            return await self.store.send(where, request)
        except NotFound as error:
            # This includes a missing namespace: the cluster is gone, or is not there yet.
            msg = f"ManifestWork {where}: {error}"
            raise Retriable(msg) from error

    async def _mark(self, found: CopyObject, remove_after: str | None) -> None:
        where, marks = found.where, {LEAVING: remove_after}
        request = mark_object(self._client, WORKS, where, found.uid, marks, self._manager)
        with suppress(NotFound):  # already gone, as the watch will show
            await self.store.send(where, request)
            log.info("work_leaves" if remove_after else "work_stays", work=str(where))

    async def _remove(self, works: Iterable[CopyObject]) -> None:
        for found in works:
            await delete_object(self._client, WORKS, found.where, found.uid)
            self.store.mark_deleting(found)
            log.info("work_deleted", work=str(found.where))
