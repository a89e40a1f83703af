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

from kube_sync.decisions.evaluator import BATCH_MODULE, Evaluator, batch_module
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
from kube_sync.opa.paths import DataPath
from kube_sync.replicator.ledger import Ledger
from kube_sync.replicator.policies.guard import Guard
from kube_sync.replicator.policies.lastgood import LastGood
from kube_sync.replicator.policies.loader import Compiler, Epoch, PolicyLoader
from kube_sync.replicator.policies.shelf import Shelf
from kube_sync.replicator.resources import Reconfigured, Resources
from kube_sync.replicator.writer import Writer
from kube_sync.runtime.backoff import Backoff
from kube_sync.settings import Settings

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
        compiler: Compiler,
        shelf: Shelf,
    ) -> None:
        self._settings = settings
        self._kube = kube
        self._opa = opa
        self._hub = hub
        self._readiness = readiness
        self._roots = _roots(settings)  # changed in place: the loader looks at it each time
        allow = settings.policies.allow
        self._policies = PolicyLoader(
            opa,
            compiler,
            shelf,
            LastGood(kube, settings.coordination.namespace),
            self._annotate,
            Guard(self._roots, frozenset(allow.packages), frozenset(allow.builtins)),
            {BATCH_MODULE: batch_module(settings.replicate.root, settings.placement.path)},
            readiness,
        )
        shelf.wake = self._policies.wake
        self._wakers: tuple[Callable[[], None], ...] = ()
        self._resources: Resources | None = None

    def configure(self, settings: Settings) -> None:
        """Replicate what `settings` say from now on; what they leave as it was is not touched."""
        self._settings = settings
        self._roots[:] = _roots(settings)
        self._policies.wake()  # one of them may lie where a new collection goes
        if self._resources is not None:
            self._resources.configure(settings)

    async def run(self) -> NoReturn:
        """Run epochs until cancelled."""
        backoff = Backoff(longest=5.0)
        reason = "start"
        while True:
            # Held before anything is waited for or loaded: a decision on half a fleet is none.
            self._hub.hold_alone("load", "OPA is being loaded")
            self._readiness.waiting("data", "OPA is being loaded")
            if reason == "lost":
                await backoff.wait()
            metrics.opa_loads.labels(reason).inc()
            try:
                await self._epoch(backoff)
            except* EpochLost as lost:
                log.warning("opa_lost", error=str(first_of(lost)))
                reason = "lost"
            except* Reconfigured as changed:
                log.info("load_begun_again", reason=str(first_of(changed)))
                reason = "configuration"

    async def _epoch(self, backoff: Backoff) -> None:
        gc.unfreeze()  # what an earlier epoch left may be garbage by now
        settings, instance = self._settings, secrets.token_hex(8)
        root = settings.replicate.root
        self._resources = resources = Resources(settings, self._kube, self._readiness, self._wake)
        mirrors = resources.mirrors
        evaluator = Evaluator(self._opa, instance)
        targets = {resource.name: resource.gvr for resource in settings.targets()}
        static = settings.policies.static
        tracker = Tracker(evaluator, self._hub, targets, mirrors, static=static)
        ledger = Ledger(self._opa, root, (mirror.name for mirror in mirrors))
        writer = Writer(self._opa, instance, mirrors, self._readiness, tracker.written, ledger)
        maps = [PolicyMaps(name, self._policies.wake) for name in settings.policies.namespaces]
        applied = asyncio.Event()
        self._wakers = (writer.wake, tracker.wake)
        async with asyncio.TaskGroup() as group:
            group.create_task(writer.run())
            group.create_task(resources.run(writer, tracker))
            for found in maps:
                group.create_task(self._reflect(found))
            group.create_task(
                self._policies.run(
                    Epoch(maps, writer.loaded, applied, tracker.policies_changed, writer.stands)
                )
            )
            group.create_task(tracker.run(applied))
            await writer.loaded.wait()
            backoff.progressed()
            _leave_to_rest()

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


def _roots(settings: Settings) -> list[DataPath]:
    replicate = settings.replicate
    return [(replicate.root, resource.name) for resource in replicate.resources]


def _leave_to_rest() -> None:
    """Take what was loaded out of the garbage collector's sight.

    It stays as long as the epoch does, and looking through it again and again for cycles held
    events up for 0.1 s with 50,000 objects.
    """
    gc.collect()
    gc.freeze()
