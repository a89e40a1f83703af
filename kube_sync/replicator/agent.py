"""The replicator: one epoch of OPA's data after another.

An epoch is everything that stands on one load of OPA: reflectors, writer, policies, decisions.
When OPA is lost (restarted, wiped, taken over) the whole epoch is thrown away and the next one
begins with a fresh LIST of everything, so no state of ours can disagree with an OPA that is new.
Only this outlives it: the last good policies and data, the decisions that were made, and the Lease
with the statuses that wait for it.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import socket
from collections.abc import Callable
from typing import Any, NoReturn

import structlog

from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.tracker import Tracker
from kube_sync.errors import EpochLost, NotFound, first_of
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.configmaps import CONFIGMAPS, ConfigMaps
from kube_sync.kube.lease import Lease
from kube_sync.kube.policymaps import data_maps, policy_maps
from kube_sync.kube.reflector import Reflector
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaClient
from kube_sync.replicator.datamaps import DataMaps, LastGood
from kube_sync.replicator.mirror import EVERYWHERE, Mirror
from kube_sync.replicator.policyloader import PolicyLoader
from kube_sync.replicator.projection import keeping, project
from kube_sync.replicator.selection import Feed
from kube_sync.replicator.status import StatusWriter
from kube_sync.replicator.writer import Writer
from kube_sync.runtime.backoff import Backoff
from kube_sync.settings import Resource, Settings

log: structlog.stdlib.BoundLogger = structlog.get_logger()

LEASE = "kube-sync-replicator"
_RESERVED = frozenset({"kube_sync", "system"})  # and the root of what is replicated


class Replicator:
    """Makes one OPA equal to one API server, for ever."""

    def __init__(
        self,
        settings: Settings,
        kube: KubeClient,
        opa: OpaClient,
        hub: DecisionHub,
        readiness: Readiness,
    ) -> None:
        self._settings = settings
        self._kube = kube
        self._opa = opa
        self._hub = hub
        self._readiness = readiness
        root = settings.replicate.root
        roots = [(root, resource.name) for resource in settings.replicate.resources]
        namespace, identity = settings.coordination.namespace, _identity()
        self._lease = Lease(kube, namespace, LEASE, identity, news=self._held)
        self._statuses = StatusWriter(kube, self._lease)
        self._policies = PolicyLoader(opa, self._statuses.annotate, roots, readiness)
        self._good = LastGood()
        self._wakers: tuple[Callable[[], None], ...] = ()

    async def run(self) -> None:
        """Run epochs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lease.run())
            group.create_task(self._statuses.run())
            group.create_task(self._epochs())

    def _held(self) -> None:
        """Write the statuses that are due, now that this is the replica that writes them."""
        self._statuses.wake()

    async def _epochs(self) -> NoReturn:
        backoff = Backoff(longest=5.0)
        reason = "start"
        while True:
            # Held before anything is waited for or loaded: a decision on half a fleet is none.
            self._hub.hold("load", "OPA is being loaded")
            if reason == "lost":
                await backoff.wait()
            metrics.opa_loads.labels(reason).inc()
            try:
                await self._epoch(backoff)
            except* EpochLost as lost:
                error = first_of(lost)
                log.warning("opa_lost", error=str(error))
                metrics.opa_restarts.inc(_found_empty(error))
                reason = "lost"

    async def _epoch(self, backoff: Backoff) -> None:
        gc.unfreeze()  # what an earlier epoch left may be garbage by now
        settings, instance = self._settings, secrets.token_hex(8)
        root = settings.replicate.root
        mirrors = {r: self._mirror(r) for r in settings.replicate.resources}
        evaluator = Evaluator(self._opa, root, settings.placement.path, instance)
        targets = {resource.name: resource.gvr for resource in settings.targets()}
        static = settings.policies.static
        tracker = Tracker(evaluator, self._hub, targets, mirrors.values(), static=static)
        policies = policy_maps(settings.policies, self._policies.wake)

        def data_changed() -> None:
            documents.wake()
            writer.wake()

        data = data_maps(settings.policies, data_changed)
        documents = DataMaps(
            self._opa, data, _RESERVED | {root}, self._statuses.want, tracker.written, self._good
        )
        writer = Writer(
            self._opa,
            instance,
            mirrors.values(),
            self._readiness,
            tracker.written,
            documents=documents,
        )
        applied = asyncio.Event()
        self._wakers = (writer.wake, tracker.wake)
        async with asyncio.TaskGroup() as group:
            group.create_task(writer.run())
            for resource, mirror in mirrors.items():
                feed = Feed(self._kube, settings.replicate, resource, self._readiness)
                group.create_task(feed.run(mirror))
            for found in policies:
                group.create_task(self._reflect("policies", found))
            for held in data:
                group.create_task(self._reflect("data ConfigMaps", held))
            group.create_task(
                self._policies.run(policies, writer.loaded, applied, tracker.policies_changed)
            )
            group.create_task(tracker.run(applied))
            await writer.loaded.wait()
            backoff.progressed()
            _leave_to_rest()

    def _mirror(self, resource: Resource) -> Mirror:
        replicate = self._settings.replicate
        scopes = replicate.namespaces_of(resource) or (EVERYWHERE,)
        projection = project if resource.paths is None else keeping(resource.paths)
        root = (replicate.root,)
        return Mirror(resource.name, root, self._wake, scopes=scopes, projection=projection)

    def _wake(self) -> None:
        for waker in self._wakers:
            waker()

    async def _reflect(self, what: str, maps: ConfigMaps[Any]) -> NoReturn:
        name = f"{what} in {maps.where}"
        source = KubeCollection(
            self._kube, CONFIGMAPS, namespace=maps.scope, label_selector=maps.selector
        )
        await Reflector(name, source, maps, self._readiness.reporter(name)).run()


def _found_empty(error: BaseException) -> bool:
    """Whether OPA lacks what was written; else a first load broke off, in an OPA that may live."""
    return isinstance(error.__cause__, NotFound)


def _identity() -> str:
    """Name this process apart from every other one, an earlier one of the same pod too."""
    return f"{socket.gethostname()}_{secrets.token_hex(8)}"


def _leave_to_rest() -> None:
    """Take what was loaded out of the garbage collector's sight.

    It stays as long as the epoch does, and looking through it again and again for cycles held
    events up for 0.1 s with 50,000 objects.
    """
    gc.collect()
    gc.freeze()
