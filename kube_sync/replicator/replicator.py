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
from collections.abc import (
    Callable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, ParamSpec

import structlog

from kube_sync.config import TOPOLOGY, Resource, Settings, with_builtin
from kube_sync.decisions.evaluator import BATCH_MODULE, batch_module
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.sealing import Seals
from kube_sync.errors import EpochLost, NotFound, first_of
from kube_sync.kube.client import KubeClient
from kube_sync.kube.discovery import is_namespaced
from kube_sync.kube.lease import Lease
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.analysis import analyzer
from kube_sync.opa.client import OpaClient
from kube_sync.opa.paths import DataPath
from kube_sync.policies.builtin import built_in, packages
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.policies.delivery import Compiler
from kube_sync.policies.guard import Guard
from kube_sync.policies.last_good import LastGood
from kube_sync.policies.marker import Marker
from kube_sync.policies.placementpolicy_status import Outcomes
from kube_sync.policies.quarantine import Quarantine
from kube_sync.policies.reading import Reading
from kube_sync.policies.reconciler import PolicyReconciler, policy_loader
from kube_sync.policies.reporter import Failed, Reporter
from kube_sync.policies.staging.canaries import Halted
from kube_sync.policies.staging.stages import stages_of
from kube_sync.policies.status import StatusWriter
from kube_sync.policies.trial_run import Trial
from kube_sync.replicator import datamaps
from kube_sync.replicator.audit import AUDIT_MODULE, audit_module
from kube_sync.replicator.epoch import InForce, Lasting, Load
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.replica import TopologyOrigin
from kube_sync.replicator.resources import Reconfigured
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.memory import give_back

log: structlog.stdlib.BoundLogger = structlog.get_logger()

LEASE = "kube-sync-replicator"

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who is told what becomes of policies."""

    # Told the digest and the modules, whenever they differ, of what a canary decides by too.
    in_force: InForce = lambda _digest, _modules: None
    # Returns the annotations to keep on the Lease, from those that it has.
    notes: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _seen: {}
    # Told while this process holds the Lease.
    halted: Halted = lambda _policy, _halt: None
    failed: Failed = lambda _policies, _failures: None


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
        *,
        shelf: BundleServer,
        listeners: Listeners | None = None,
        trial: Trial | None = None,
        topology: TopologyOrigin | None = None,
    ) -> None:
        """Without `trial` policies are compiled before they are in force, and not tried.

        `topology` is where the topology comes from, if it is replicated.
        """
        listeners = listeners or Listeners()
        settings = self._settings = with_builtin(settings)
        self._kube = kube
        self._hub = hub
        self._readiness = readiness
        self._roots = _roots(settings)  # changed in place: the loader looks at it each time
        self._lease = Lease(
            kube,
            settings.coordination.namespace,
            LEASE,
            _identity(),
            news=self._held,
            notes=lambda: listeners.notes(self._lease.annotations),
        )
        self._statuses = StatusWriter(kube, self._lease)
        self._policies = self._loader(opa, compiler, shelf, trial, listeners)
        shelf.wake = self._policies.wake
        self._load: Load | None = None
        self._lasting = self._outliving(opa, listeners, topology)

    @property
    def policies(self) -> PolicyReconciler:
        """By what is decided."""
        return self._policies

    @property
    def collections(self) -> Sequence[Mirror]:
        """What is replicated, as far as it is of OPA's present load."""
        return () if self._load is None else self._load.resources.mirrors

    @property
    def targets(self) -> tuple[Resource, ...]:
        """The resources that decisions are about."""
        return self._settings.targets()

    def configure(self, settings: Settings) -> None:
        """Replicate what `settings` say from now on; what they leave as it was is not touched."""
        settings = self._settings = with_builtin(settings)
        self._roots[:] = _roots(settings)
        self._policies.wake()  # one of them may lie where a new collection goes
        if self._load is not None:
            self._load.resources.configure(settings)

    async def run(self) -> None:
        """Run epochs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lease.run())
            group.create_task(self._statuses.run())
            group.create_task(self._epochs())

    def _loader(
        self,
        opa: OpaClient,
        compiler: Compiler,
        shelf: BundleServer,
        trial: Trial | None,
        listeners: Listeners,
    ) -> PolicyReconciler:
        settings, namespace = self._settings, self._settings.coordination.namespace
        generated = {**_generated(settings), **built_in(settings)}
        quarantine = Quarantine(Marker(self._kube, namespace, socket.gethostname()))
        return policy_loader(
            opa,
            compiler,
            shelf,
            self._guard(),
            Reading(compiler, settings.placement.path, self._collections),
            generated,
            record=LastGood(self._kube, namespace, self._lease),
            reporter=Reporter(
                self._statuses.annotate,
                quarantine,
                at_fault=partial(self._hub.note, "policies"),
                tell=Outcomes(self._statuses.want_status).tell,
                failed=self._while_held(listeners.failed),
            ),
            readiness=self._readiness,
            quarantine=quarantine,
            trial=trial,
            stages=stages_of(
                settings,
                compiler,
                generated,
                quarantine=quarantine,
                trial=trial,
                halted=self._while_held(listeners.halted),
            ),
        )

    def _outliving(
        self, opa: OpaClient, listeners: Listeners, topology: TopologyOrigin | None
    ) -> Lasting:
        return Lasting(
            settings=lambda: self._settings,
            kube=self._kube,
            opa=opa,
            hub=self._hub,
            readiness=self._readiness,
            policies=self._policies,
            statuses=self._statuses,
            good=datamaps.LastGood(),
            seals=Seals(self._settings.placement.key_file),
            in_force=listeners.in_force,
            distrusted=set(),
            topology=topology,
        )

    def _guard(self) -> Guard:
        allow = self._settings.policies.allow
        builtin = packages(built_in(self._settings))
        names = frozenset(allow.packages), frozenset(allow.builtins)
        return Guard(self._roots, *names, builtin=builtin)

    async def _collections(self) -> Mapping[str, analyzer.Collection]:
        """Return where the replicated resources lie, but for those that nobody knows."""
        settings, found = self._settings, dict[str, analyzer.Collection]()
        for resource in settings.replicate.resources:
            with suppress(NotFound):
                inside = await is_namespaced(self._kube, resource.gvr)
                path = (settings.replicate.root, resource.name)
                found[resource.name] = analyzer.Collection(path, namespaced=inside)
        if settings.replicate.topology:
            # Its sections lie where namespaces do.
            path = (settings.replicate.root, TOPOLOGY)
            found[TOPOLOGY] = analyzer.Collection(path, namespaced=True)
        return found

    def _held(self) -> None:
        """Write what is due, now that this is the replica that writes it."""
        self._statuses.wake()
        self._policies.wake()

    def _while_held(self, tell: Callable[P, None]) -> Callable[P, None]:
        def told(*args: P.args, **kwargs: P.kwargs) -> None:
            if self._lease.held:  # each replica finds out by itself
                tell(*args, **kwargs)

        return told

    async def _epochs(self) -> NoReturn:
        backoff = Backoff(longest=5.0)
        reason = "start"
        while True:
            # Held before anything is waited for or loaded: a decision on half a fleet is none.
            self._hub.hold_alone("load", "OPA is being loaded")
            self._hub.freshness.clear()
            self._readiness.waiting("data", "OPA is being loaded")
            if reason == "lost":
                await backoff.wait()
            metrics.opa_loads.labels(reason).inc()
            try:
                await self._epoch(backoff)
            except* EpochLost as lost:
                # In no variable: it would keep the parts that it was raised in, and all they hold.
                log.warning("opa_lost", error=str(first_of(lost)))
                metrics.opa_restarts.inc(_found_empty(first_of(lost)))
                if _found_empty(first_of(lost)):
                    await self._policies.opa_ended()
                reason = "lost"
            except* Reconfigured as changed:
                log.info("load_begun_again", reason=str(first_of(changed)))
                reason = "configuration"

    async def _epoch(self, backoff: Backoff) -> None:
        self._let_go()
        self._load = load = Load(self._lasting)

        def loaded() -> None:
            backoff.progressed()
            _leave_to_rest()

        await load.run(loaded)

    def _let_go(self) -> None:
        """Free what an earlier epoch left before another one is loaded, or memory holds both."""
        if self._load is not None:
            self._load = None
            gc.unfreeze()
            gc.collect()
            give_back()


def _generated(settings: Settings) -> dict[str, str]:
    root = settings.replicate.root
    return {
        BATCH_MODULE: batch_module(root, settings.placement.path),
        AUDIT_MODULE: audit_module(root),
    }


def _found_empty(error: BaseException) -> bool:
    """Whether OPA lacks what was written; else a first load broke off, in an OPA that may live."""
    return isinstance(error.__cause__, NotFound)


def _identity() -> str:
    """Name this process apart from every other one, an earlier one of the same pod too."""
    return f"{socket.gethostname()}_{secrets.token_hex(8)}"


def _roots(settings: Settings) -> list[DataPath]:
    replicate = settings.replicate
    names = [resource.name for resource in replicate.resources]
    return [(replicate.root, name) for name in [*names, *([TOPOLOGY] * replicate.topology)]]


def _leave_to_rest() -> None:
    """Take what was loaded out of the garbage collector's sight.

    It stays as long as the epoch does, and looking through it again and again for cycles held
    events up for 0.1 s with 50,000 objects.
    """
    gc.collect()
    gc.freeze()
    give_back()
