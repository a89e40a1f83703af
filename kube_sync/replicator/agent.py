"""The replicator: one epoch of OPA's data after another.

An epoch is everything that stands on one load of OPA: reflectors, writer, policies, decisions.
When OPA is lost (restarted, wiped, taken over) the whole epoch is thrown away and the next one
begins with a fresh LIST of everything, so no state of ours can disagree with an OPA that is new.
Only two things outlive it: the last good policies, and the decisions that were made.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
from collections.abc import Callable
from typing import NoReturn

import structlog

from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.tracker import Tracker
from kube_sync.errors import EpochLost, first_of
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.patch import annotate
from kube_sync.kube.policymaps import CONFIGMAPS, STATUS, PolicyMap, PolicyMaps
from kube_sync.kube.reflector import Reflector
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaClient
from kube_sync.replicator.audit import AUDIT_MODULE, Audit, audit_module
from kube_sync.replicator.mirror import EVERYWHERE, Mirror
from kube_sync.replicator.policyloader import PolicyLoader
from kube_sync.replicator.projection import keeping, project
from kube_sync.replicator.selection import Feed
from kube_sync.replicator.writer import Writer
from kube_sync.runtime.backoff import Backoff
from kube_sync.settings import Resource, Settings

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FIELD_MANAGER = "kube-sync-replicator"


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
        self._policies = PolicyLoader(opa, self._annotate, roots, readiness)
        self._wakers: tuple[Callable[[], None], ...] = ()

    async def run(self) -> NoReturn:
        """Run epochs until cancelled."""
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
                log.warning("opa_lost", error=str(first_of(lost)))
                reason = "lost"

    async def _epoch(self, backoff: Backoff) -> None:
        gc.unfreeze()  # what an earlier epoch left may be garbage by now
        settings, instance = self._settings, secrets.token_hex(8)
        root = settings.replicate.root
        mirrors = {r: self._mirror(r) for r in settings.replicate.resources}
        beside = {AUDIT_MODULE: audit_module(root)}
        evaluator = Evaluator(self._opa, root, settings.placement.path, instance, beside=beside)
        targets = {resource.name: resource.gvr for resource in settings.targets()}
        static = settings.policies.static
        tracker = Tracker(evaluator, self._hub, targets, mirrors.values(), static=static)
        audit, told = Audit(self._opa, root), tracker.written
        writer = Writer(
            self._opa, instance, mirrors.values(), self._readiness, told, audit=audit.check
        )
        maps = [PolicyMaps(name, self._policies.wake) for name in settings.policies.namespaces]
        applied = asyncio.Event()
        self._wakers = (writer.wake, tracker.wake)
        async with asyncio.TaskGroup() as group:
            group.create_task(writer.run())
            for resource, mirror in mirrors.items():
                feed = Feed(self._kube, settings.replicate, resource, self._readiness)
                group.create_task(feed.run(mirror))
            for found in maps:
                group.create_task(self._reflect(found))
            group.create_task(
                self._policies.run(maps, writer.loaded, applied, tracker.policies_changed)
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

    async def _reflect(self, maps: PolicyMaps) -> NoReturn:
        name = f"policies in {maps.namespace}"
        source = KubeCollection(self._kube, CONFIGMAPS, namespace=maps.namespace)
        await Reflector(name, source, maps, self._readiness.reporter(name)).run()

    async def _annotate(self, policy: PolicyMap, status: str) -> None:
        await annotate(
            self._kube, CONFIGMAPS, policy.key, policy.version, {STATUS: status}, FIELD_MANAGER
        )


def _leave_to_rest() -> None:
    """Take what was loaded out of the garbage collector's sight.

    It stays as long as the epoch does, and looking through it again and again for cycles held
    events up for 0.1 s with 50,000 objects.
    """
    gc.collect()
    gc.freeze()
