"""The replicator: keeps OPA's data equal to the API server, one epoch after another.

An epoch is one load of OPA with all that depends on it: reflectors, writer, policies, decisions.
When OPA is lost (restarted, wiped, taken over) the whole epoch is discarded and the next one begins
with a fresh LIST of everything, so no state of ours can disagree with a new OPA. Only this outlives
an epoch: the last good policies and data, the decisions, and the Lease with the pending statuses.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, ParamSpec

import structlog

from kube_sync.config import TOPOLOGY, Resource, Settings, with_builtin
from kube_sync.decisions.batch_module import BATCH_MODULE, batch_module
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.sealing import Seals
from kube_sync.errors import EpochLost, NotFound, first_of
from kube_sync.kube.client import KubeClient
from kube_sync.kube.discovery import is_namespaced
from kube_sync.kube.lease import Lease
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.analysis import result
from kube_sync.opa.client import OpaClient
from kube_sync.opa.paths import DataPath
from kube_sync.policies.builtin import built_in, packages
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.policies.delivery import Compiler
from kube_sync.policies.guard import Guard
from kube_sync.policies.last_good import LastGood
from kube_sync.policies.linter import Known, known_of
from kube_sync.policies.linting import Linting
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
from kube_sync.runtime.cooperative import in_own_task
from kube_sync.runtime.memory import give_back

log: structlog.stdlib.BoundLogger = structlog.get_logger()

LEASE = "kube-sync-replicator"

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Callbacks for what becomes of policies."""

    # Receives digest and modules when they change; those of a canary too.
    in_force: InForce = lambda _digest, _modules: None
    # Returns the annotations to keep on the Lease, from its present ones.
    notes: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _seen: {}
    # Called only while this process holds the Lease.
    halted: Halted = lambda _policy, _halt: None
    failed: Failed = lambda _policies, _failures: None


class Replicator:
    """Keeps one OPA equal to one API server, until cancelled."""

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
        """Without `trial` policies are only compiled before they come into force, not tried.

        `topology` makes the origin of the topology, if it is replicated.
        """
        listeners = listeners or Listeners()
        settings = self._settings = with_builtin(settings)
        self._kube = kube
        self._hub = hub
        self._readiness = readiness
        self._roots = _roots(settings)  # changed in place: the guard reads it each time
        self._lease = Lease(
            kube,
            settings.coordination.namespace,
            LEASE,
            _identity(),
            on_acquired=self._held,
            notes=lambda: listeners.notes(self._lease.annotations),
        )
        self._statuses = StatusWriter(kube, self._lease)
        self._policies = self._loader(opa, compiler, shelf, trial, listeners)
        shelf.wake = self._policies.wake
        self._load: Load | None = None
        self._lasting = self._outliving(opa, listeners, topology)

    @property
    def policies(self) -> PolicyReconciler:
        """The reconciler of policies."""
        return self._policies

    @property
    def collections(self) -> Sequence[Mirror]:
        """The replicated collections in OPA's present load."""
        return () if self._load is None else self._load.resources.mirrors

    @property
    def targets(self) -> tuple[Resource, ...]:
        """The resources that decisions are made for."""
        return self._settings.targets()

    def configure(self, settings: Settings) -> None:
        """Apply new settings; resources that they leave unchanged are not touched."""
        settings = self._settings = with_builtin(settings)
        self._roots[:] = _roots(settings)
        self._policies.wake()  # a policy may lie at the path of a new collection
        if self._load is not None:
            self._load.resources.configure(settings)

    async def run(self) -> None:
        """Run epochs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lease.run())
            group.create_task(self._statuses.run())
            group.create_task(self._linting.run())
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
        reading = Reading(compiler, settings.placement.path, self._collections)
        self._linting = linting = Linting(
            reading, compiler, self._known, self._report, errors=trial
        )
        return policy_loader(
            opa,
            compiler,
            shelf,
            self._guard(),
            reading,
            generated,
            record=LastGood(self._kube, namespace, self._lease),
            reporter=self._reporter(quarantine, linting, listeners),
            readiness=self._readiness,
            quarantine=quarantine,
            trial=trial,
            linting=linting,
            stages=stages_of(
                settings,
                compiler,
                generated,
                quarantine=quarantine,
                trial=trial,
                halted=self._while_held(listeners.halted),
            ),
        )

    def _reporter(self, quarantine: Quarantine, linting: Linting, listeners: Listeners) -> Reporter:
        return Reporter(
            self._statuses.annotate,
            quarantine,
            at_fault=partial(self._hub.note, "policies"),
            tell=Outcomes(self._statuses.want_status).tell,
            failed=self._while_held(listeners.failed),
            linted=linting.warnings,
            off=self._settings.policies.warnings,
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

    async def _collections(self) -> Mapping[str, result.Collection]:
        """Return the paths of the replicated resources, without unknown kinds."""
        settings, found = self._settings, dict[str, result.Collection]()
        for resource in settings.replicate.resources:
            with suppress(NotFound):
                inside = await is_namespaced(self._kube, resource.gvr)
                path = (settings.replicate.root, resource.name)
                found[resource.name] = result.Collection(path, namespaced=inside)
        if settings.replicate.topology:
            # The sections of the topology are at the level of namespaces.
            path = (settings.replicate.root, TOPOLOGY)
            found[TOPOLOGY] = result.Collection(path, namespaced=True)
        return found

    async def _known(self, documents: frozenset[str]) -> Known:
        """Return what policies may name; `documents` are other names below `data`."""
        found = await self._collections()
        namespaced = {name: place.namespaced for name, place in found.items()}
        return known_of(self._settings, namespaced, documents)

    def _report(self) -> None:
        """Report other warnings on policies than before."""
        self._policies.wake()

    def _held(self) -> None:
        """Write pending statuses: this replica has just become the leader."""
        self._statuses.wake()
        self._policies.wake()

    def _while_held(self, tell: Callable[P, None]) -> Callable[P, None]:
        def told(*args: P.args, **kwargs: P.kwargs) -> None:
            if self._lease.held:  # each replica detects it itself
                tell(*args, **kwargs)

        return told

    async def _epochs(self) -> NoReturn:
        backoff = Backoff(longest=5.0)
        reason = "start"
        while True:
            # Hold before waiting or loading: a decision on part of the fleet is invalid.
            self._hub.hold_alone("load", "OPA is being loaded")
            self._hub.freshness.clear()
            self._readiness.waiting("data", "OPA is being loaded")
            if reason == "lost":
                await backoff.wait()
            metrics.opa_loads.labels(reason).inc()
            try:
                await in_own_task(self._epoch(backoff))
            except* EpochLost as lost:
                # Bound to no variable: the traceback would keep the failed epoch's objects alive.
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
        """Free the former epoch's memory before the next load, or memory holds both."""
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
    """Return whether OPA lacks the data (it restarted), rather than that a first load broke off."""
    return isinstance(error.__cause__, NotFound)


def _identity() -> str:
    """Return a name unique to this process, also among earlier ones of the same pod."""
    return f"{socket.gethostname()}_{secrets.token_hex(8)}"


def _roots(settings: Settings) -> list[DataPath]:
    replicate = settings.replicate
    names = [resource.name for resource in replicate.resources]
    return [(replicate.root, name) for name in [*names, *([TOPOLOGY] * replicate.topology)]]


def _leave_to_rest() -> None:
    """Exclude the loaded objects from garbage collection.

    They live as long as the epoch, and scanning them for cycles again and again delayed events by
    0.1 s with 50,000 objects.
    """
    gc.collect()
    gc.freeze()
    give_back()
