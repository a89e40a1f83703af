"""Writes copies directly to the API servers of spokes, for fleets without a work agent.

A spoke is a Secret with a kubeconfig, under its cluster's name. Invariant: an error of one
spoke is reported for that spoke, and delays no other. A spoke without its Secret is unknown: it
cannot be cleaned up, so its copies stay until the Secret is back. Copies are found again by their
label, also by a later process and after changes of the list of kinds: every kind that could have
been synced is read.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn

import structlog

from kube_sync.errors import Retriable
from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.copies import MANAGER, Copy, CopyKey, OnChange, Placed, PolicyId
from kube_sync.policysync.copy_cache import one_per_cluster
from kube_sync.policysync.spoke import Spoke, SpokeOptions
from kube_sync.policysync.spoke_collection import Fields
from kube_sync.policysync.spoke_secrets import SpokeSecrets


def spoke_kinds(
    synced: Mapping[GroupVersionResource, Fields],
    read: Mapping[GroupVersionResource, Fields],
    policies: Iterable[PolicyId],
    possible: Iterable[GroupVersionResource],
) -> dict[GroupVersionResource, Fields]:
    """Return the kinds to read on spokes, with their feedback fields.

    `read` are the kinds read until now, and `policies` those that have copies; of the `possible`
    kinds, which may not be synced at all, only copies are read.
    """
    copied = {_group_resource(policy.gvr) for policy in policies}
    found = {gvr: fields for gvr, fields in read.items() if _group_resource(gvr) in copied} | dict(
        synced
    )
    known = {_group_resource(gvr) for gvr in found}
    return found | {gvr: read.get(gvr, ()) for gvr in possible if _group_resource(gvr) not in known}


def _group_resource(gvr: GroupVersionResource) -> tuple[str, str]:
    return gvr.group, gvr.resource


_START_SECONDS: Final = 30.0  # for which a start waits for spokes that do not answer

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class DirectPlacer:
    """A Placer that writes from the hub to the spokes without anything between."""

    def __init__(
        self,
        on_change: OnChange,
        on_reachable: Callable[[str], None] = lambda _cluster: None,
        *,
        options: SpokeOptions | None = None,
        schemes: tuple[str, ...] = ("https",),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_reachable` is called with a cluster that answers, for the first time or again."""
        self._clock = clock
        self._listed_since: float | None = None  # when the Secrets were first listed
        self._started = False
        self._on_change = on_change
        self._on_reachable = on_reachable
        self._options = options or SpokeOptions(MANAGER)
        self.store = SpokeSecrets(self._update_spokes, schemes)
        self._spokes: dict[str, Spoke] = {}
        self._tasks: dict[Spoke, asyncio.Task[NoReturn]] = {}
        self._resources: Mapping[GroupVersionResource, Fields] = {}
        self._changed = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether every spoke was listed at the start, or has had its time to answer.

        A spoke that is added later delays nothing: its copies are unknown, so none is removed.
        """
        if not self.store.listed:
            return False
        if self._listed_since is None:
            self._listed_since = self._clock()
        timed_out = self._clock() - self._listed_since >= _START_SECONDS
        self._started = (
            self._started or timed_out or all(one.is_attempted for one in self._spokes.values())
        )
        return self._started

    @property
    def clusters(self) -> frozenset[str]:
        """The clusters with a Secret."""
        return frozenset(self._spokes)

    @property
    def errors(self) -> Mapping[str, str]:
        """The errors by cluster, as text."""
        errors = {name: spoke.error for name, spoke in sorted(self._spokes.items())}
        return {name: reason for name, reason in errors.items() if reason is not None}

    def follow(self, resources: Mapping[GroupVersionResource, Fields]) -> None:
        """Cache the copies of exactly these resources, with these feedback fields.

        A kind that is no longer synced must stay in it until its copies are gone.
        """
        self._resources = dict(resources)
        for spoke in self._spokes.values():
            spoke.follow(self._resources)

    def policies(self) -> Iterable[PolicyId]:
        """Return every policy that has copies."""
        return {policy for spoke in self._spokes.values() for policy in spoke.policies()}

    def placed(self, policy: PolicyId) -> Mapping[str, Placed]:
        """Return the copies of a policy by cluster, without those that are being deleted."""
        return one_per_cluster(one for spoke in self._spokes.values() for one in spoke.of(policy))

    async def apply(self, copy: Copy) -> None:
        """Create or update a copy, and clear its removal mark. Raises SyncError."""
        await self._spoke(copy.key).apply(copy)

    async def mark_for_removal(self, key: CopyKey, at: float) -> None:
        """Mark a copy: it may be removed from `at` on, in Unix seconds. Raises SyncError."""
        await self._spoke(key).mark_for_removal(key.policy, str(math.ceil(at)))

    async def remove(self, key: CopyKey) -> None:
        """Remove a copy. Raises SyncError."""
        await self._spoke(key).remove(key.policy)

    async def run(self) -> NoReturn:
        """Run a Spoke for each Secret until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                spokes = set(self._spokes.values())
                for spoke in self._tasks.keys() - spokes:
                    self._tasks.pop(spoke).cancel()
                for spoke in spokes - self._tasks.keys():
                    self._tasks[spoke] = group.create_task(spoke.run())
                await self._changed.wait()

    def _spoke(self, key: CopyKey) -> Spoke:
        if (spoke := self._spokes.get(key.cluster)) is None:
            msg = f"cluster {key.cluster}: there is no Secret with its kubeconfig"
            raise Retriable(msg)
        return spoke

    def _update_spokes(self) -> None:
        """Create or update the Spoke of each Secret with its current credentials."""
        found = self.store.spokes
        for name in self._spokes.keys() - found.keys():
            self._remove_spoke(name)
        for name, access in found.items():
            if name not in self._spokes:
                self._spokes[name] = spoke = Spoke(
                    name, self._on_change, self._on_reachable, self._options
                )
                spoke.follow(self._resources)
            self._spokes[name].set_credentials(access)
        self._changed.set()

    def _remove_spoke(self, name: str) -> None:
        spoke = self._spokes.pop(name)
        log.warning("spoke_has_no_secret", cluster=name)
        for policy in spoke.policies():
            self._on_change(policy)
