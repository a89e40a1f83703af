"""One spoke's API server: a client, the caches of our copies there, and the steps on them.

Invariant: whatever happens to this spoke, a caller waits for it no longer than `timeout` seconds,
with a bounded number of concurrent steps; its caches stay while it cannot be reached.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn

import structlog

from kube_sync.errors import Expired, Misconfigured, Retriable, SyncError
from kube_sync.guard.rivals import Rivals
from kube_sync.kube.client import KubeClient, connected
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.following import Feed, Following
from kube_sync.kube.inline import InlineCredentials
from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.copies import MANAGED, Copy, OnChange, PolicyId
from kube_sync.policysync.copy_cache import CopyCache, CopyObject
from kube_sync.policysync.spoke_collection import Fields, SpokeCollection, copy_in

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_SELECTOR: Final = f"{MANAGED}=true"
_TRUCE: Final = 600.0  # seconds for which a copy is left to another manager that writes it


@dataclass(frozen=True, slots=True)
class SpokeOptions:
    """How to access spokes."""

    manager: str  # field manager
    timeout: float = 15.0  # seconds for one step
    concurrency: int = 4  # concurrent steps
    clock: Callable[[], float] = time.monotonic


@dataclass(eq=False)
class _Collection:
    """The cache of one resource, and why it is not current, if so."""

    gvr: GroupVersionResource
    fields: Fields
    cache: CopyCache
    reason: str | None = None
    unreachable: bool = False  # the API server did not answer
    attempted: bool = False  # listed, or it is known why not
    rivals: Rivals = field(default_factory=lambda: Rivals(_TRUCE))

    @property
    def group_resource(self) -> tuple[str, str]:
        """The group and resource, equal for all its versions."""
        return self.gvr.group, self.gvr.resource


class Spoke:
    """One cluster."""

    def __init__(
        self,
        cluster: str,
        on_change: OnChange,
        on_reachable: Callable[[str], None],
        options: SpokeOptions,
    ) -> None:
        """`on_reachable` is called when the spoke answers, for the first time or again."""
        self._cluster = cluster
        self._on_reachable = on_reachable
        self._on_change = on_change
        self._options = options
        self._access: InlineCredentials | Misconfigured | None = None
        self._client: KubeClient | None = None
        self._collections: dict[GroupVersionResource, _Collection] = {}
        self._feeds: dict[GroupVersionResource, Feed] = {}
        self._following: Following | None = None
        self._slots = asyncio.Semaphore(options.concurrency)
        self._changed = asyncio.Event()
        self._steps_running = 0
        self._idle = asyncio.Event()

    @property
    def error(self) -> str | None:
        """The error of this spoke, as text, or None."""
        if isinstance(self._access, Misconfigured):
            return str(self._access)
        reasons = [one.reason for one in self._collections.values() if one.reason]
        if not all(one.attempted for one in self._collections.values()):
            reasons.append("not everything is listed there yet")
        return "; ".join(sorted(set(reasons))) or None

    @property
    def is_attempted(self) -> bool:
        """Whether every resource there was listed, or it is known why not."""
        all_attempted = all(one.attempted for one in self._collections.values())
        return all_attempted or not isinstance(self._access, InlineCredentials)

    def set_credentials(self, access: InlineCredentials | Misconfigured) -> None:
        """Set the credentials of the spoke; without valid ones, the caches stay."""
        if access != self._access:
            self._access = access
            self._changed.set()

    def follow(self, resources: Mapping[GroupVersionResource, Fields]) -> None:
        """Cache the copies of exactly these resources from now on, with these feedback fields.

        If the fields change, the cache stays until the LIST that reads the new ones ends.
        """
        for gvr in self._collections.keys() - resources.keys():
            del self._collections[gvr], self._feeds[gvr]
        for gvr, fields in resources.items():
            known = self._collections.get(gvr)
            if known is None or known.fields != fields:
                self._collections[gvr], self._feeds[gvr] = self._new_collection(gvr, fields, known)
        if self._following is not None:
            self._following.want(self._feeds)

    def policies(self) -> Iterable[PolicyId]:
        """Return the policies that have copies."""
        return [one for found in self._collections.values() for one in found.cache.policies()]

    def of(self, policy: PolicyId) -> list[CopyObject]:
        """Return the cached copies of a policy, without those being deleted."""
        found = self._collection(policy.gvr)
        return found.cache.of(policy) if found else []

    async def run(self) -> NoReturn:
        """Watch the resources until cancelled, through every change of credentials."""
        while True:
            self._changed.clear()
            if isinstance(self._access, InlineCredentials):
                await self._connect(self._access)
            await self._changed.wait()

    async def apply(self, copy: Copy) -> None:
        """Create or update a copy, and clear its mark. Raises SyncError; Conflict: not ours."""
        async with self._acquire(copy.key.policy.gvr) as collection:
            await collection.apply(copy)

    async def mark_for_removal(self, policy: PolicyId, remove_after: str) -> None:
        """Mark the copies of a policy with their removal time. Raises SyncError."""
        async with self._acquire(policy.gvr) as collection:
            for found in collection.cache.of(policy):
                await collection.mark(found, remove_after)

    async def remove(self, policy: PolicyId) -> None:
        """Delete the copies of a policy. Raises SyncError."""
        async with self._acquire(policy.gvr) as collection:
            for found in collection.cache.of(policy):
                await collection.delete(found)

    async def _connect(self, credentials: InlineCredentials) -> None:
        async with connected(credentials) as client, asyncio.TaskGroup() as group:
            source = partial(KubeCollection, client, label_selector=_SELECTOR)
            self._following = Following(source, f" on {self._cluster}", counted=" on spokes")
            self._following.want(self._feeds)
            following = group.create_task(self._following.run())
            self._client = client
            log.info("spoke_connected", cluster=self._cluster)
            try:
                await self._changed.wait()
            finally:
                self._client = self._following = None
                following.cancel()
            while self._steps_running:  # steps that are under way end with the old client
                self._idle.clear()
                await self._idle.wait()
        self._changed.set()

    def _collection(self, gvr: GroupVersionResource) -> _Collection | None:
        """Return the cache of a resource; it also has copies that were made in another version."""
        if (exact := self._collections.get(gvr)) is not None:
            return exact
        same = (gvr.group, gvr.resource)
        found = (one for one in self._collections.values() if one.group_resource == same)
        return next(found, None)

    @asynccontextmanager
    async def _acquire(self, gvr: GroupVersionResource) -> AsyncGenerator[SpokeCollection]:
        """Acquire a slot. Raises Retriable at once if the spoke does not answer."""
        async with self._slots:
            collection = self._collection(gvr)
            if self._client is None or collection is None or collection.unreachable:
                reason = self.error or f"{gvr} is not followed there yet"
                msg = f"cluster {self._cluster}: {reason}"
                raise Retriable(msg)
            self._steps_running += 1
            try:
                async with asyncio.timeout(self._options.timeout):
                    yield self._open(self._client, collection)
            except TimeoutError as error:
                msg = f"cluster {self._cluster}: no answer in {self._options.timeout:.0f} s"
                raise Retriable(msg) from error
            finally:
                self._steps_running -= 1
                self._idle.set()

    def _open(self, client: KubeClient, found: _Collection) -> SpokeCollection:
        manager, clock = self._options.manager, self._options.clock
        return SpokeCollection(
            self._cluster, client, found.gvr, found.cache, manager, found.rivals, clock
        )

    def _new_collection(
        self, gvr: GroupVersionResource, fields: Fields, known: _Collection | None
    ) -> tuple[_Collection, Feed]:
        cache = CopyCache(
            partial(copy_in, cluster=self._cluster, fields=fields),
            self._on_change,
            self._options.manager,
        )
        found = _Collection(gvr, fields, cache)
        if known is not None:
            cache.inherit(known.cache)
            found.unreachable, found.rivals = known.unreachable, known.rivals

        def report(reason: str | None) -> None:
            is_back = reason is None and (found.unreachable or not found.attempted)
            found.reason, found.attempted = reason, True
            if reason is None:
                found.unreachable = False
            if is_back:
                self._on_reachable(self._cluster)

        def failed(error: SyncError) -> None:
            found.unreachable = isinstance(error, Retriable) and not isinstance(error, Expired)

        return found, Feed(cache, report, failed)
