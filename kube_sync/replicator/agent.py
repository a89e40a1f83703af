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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import structlog

from kube_sync.analysis import analyzer
from kube_sync.analysis.reads import Reads
from kube_sync.decisions.evaluator import BATCH_MODULE, Evaluator, batch_module
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.limiting import Limiting
from kube_sync.decisions.tracker import Tracker
from kube_sync.errors import EpochLost, NotFound, first_of
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.configmaps import CONFIGMAPS, ConfigMaps
from kube_sync.kube.discovery import is_namespaced
from kube_sync.kube.lease import Lease
from kube_sync.kube.policymaps import data_maps, policy_maps
from kube_sync.kube.reflector import Reflector
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaClient
from kube_sync.opa.paths import DataPath
from kube_sync.replicator import datamaps
from kube_sync.replicator.audit import AUDIT_MODULE, Audit, audit_module
from kube_sync.replicator.datamaps import DataMaps
from kube_sync.replicator.ledger import Ledger
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.policies.builtin import built_in, packages
from kube_sync.replicator.policies.guard import Guard
from kube_sync.replicator.policies.lastgood import LastGood
from kube_sync.replicator.policies.loader import Epoch, PolicyLoader
from kube_sync.replicator.policies.reading import Reading
from kube_sync.replicator.policies.shelf import Shelf
from kube_sync.replicator.policies.way import Compiler
from kube_sync.replicator.resources import Reconfigured, Resources
from kube_sync.replicator.selfcheck import SelfCheck
from kube_sync.replicator.status import StatusWriter
from kube_sync.replicator.writer import Writer
from kube_sync.runtime.backoff import Backoff
from kube_sync.safety import parse_tightening
from kube_sync.settings import TOPOLOGY, Resource, Settings, with_builtin

log: structlog.stdlib.BoundLogger = structlog.get_logger()

LEASE = "kube-sync-replicator"


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
        settings = with_builtin(settings)
        self._settings = settings
        self._kube = kube
        self._opa = opa
        self._hub = hub
        self._readiness = readiness
        self._roots = _roots(settings)  # changed in place: the loader looks at it each time
        namespace, allow = settings.coordination.namespace, settings.policies.allow
        builtin = built_in(settings)
        self._lease = Lease(kube, namespace, LEASE, _identity(), news=self._held)
        self._statuses = StatusWriter(kube, self._lease)
        self._good = datamaps.LastGood()
        self._policies = PolicyLoader(
            opa,
            compiler,
            shelf,
            LastGood(kube, namespace, self._lease),
            self._statuses.annotate,
            Guard(
                self._roots,
                frozenset(allow.packages),
                frozenset(allow.builtins),
                builtin=packages(builtin),
            ),
            {**_generated(settings), **builtin},
            Reading(compiler, settings.placement.path, self._collections),
            readiness,
            at_fault=partial(hub.note, "policies"),
        )
        shelf.wake = self._policies.wake
        self._wakers: tuple[Callable[[], None], ...] = ()
        self._resources: Resources | None = None
        self._distrusted: set[str] = set()  # resources, until the next start

    @property
    def policies(self) -> PolicyLoader:
        """By what is decided."""
        return self._policies

    @property
    def collections(self) -> Sequence[Mirror]:
        """What is replicated, as far as it is of OPA's present load."""
        return () if self._resources is None else self._resources.mirrors

    @property
    def targets(self) -> tuple[Resource, ...]:
        """The resources that decisions are about."""
        return self._settings.targets()

    def configure(self, settings: Settings) -> None:
        """Replicate what `settings` say from now on; what they leave as it was is not touched."""
        settings = self._settings = with_builtin(settings)
        self._roots[:] = _roots(settings)
        self._policies.wake()  # one of them may lie where a new collection goes
        if self._resources is not None:
            self._resources.configure(settings)

    async def run(self) -> None:
        """Run epochs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lease.run())
            group.create_task(self._statuses.run())
            group.create_task(self._epochs())

    def _targets(self) -> dict[str, GroupVersionResource]:
        return {resource.name: resource.gvr for resource in self._settings.targets()}

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

    async def _epochs(self) -> NoReturn:
        backoff = Backoff(longest=5.0)
        reason = "start"
        while True:
            # Held before anything is waited for or loaded: a decision on half a fleet is none.
            self._hub.hold_alone("load", "OPA is being loaded")
            self._hub.currency.begin()
            self._readiness.waiting("data", "OPA is being loaded")
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
            except* Reconfigured as changed:
                log.info("load_begun_again", reason=str(first_of(changed)))
                reason = "configuration"

    async def _epoch(self, backoff: Backoff) -> None:
        gc.unfreeze()  # what an earlier epoch left may be garbage by now
        settings, instance = self._settings, secrets.token_hex(8)
        root = settings.replicate.root
        self._resources = resources = Resources(
            settings,
            self._kube,
            self._readiness,
            self._wake,
            grown=self._policies.wake,
            distrusted=self._distrusted,
            currency=self._hub.currency.tell,
        )
        check = SelfCheck(
            self._opa,
            self._kube,
            settings.placement.path,
            self._targets,
            resources,
            settings.replicate.verify,
        )
        mirrors = resources.mirrors
        evaluator = Evaluator(self._opa, instance)
        targets = {resource.name: resource.gvr for resource in settings.targets()}
        static = settings.policies.static
        ledger = Ledger(self._opa, root, (mirror.name for mirror in mirrors))
        policies = policy_maps(settings.policies, self._policies.wake)

        def data_changed() -> None:
            documents.wake()
            writer.wake()

        def written(name: str, keys: Collection[ObjectKey]) -> None:
            tracker.written(name, keys)
            check.written(name, keys)

        def policies_changed(digest: str, modules: int, reads: Reads) -> None:
            # First of all: from here on the classes by what the old ones read are unknown.
            resources.policies_changed(reads if modules or static else None)
            tracker.policies_changed(digest, modules, reads)
            check.policies_changed(digest, pure=not reads.impure)

        def policies_renamed(digest: str, modules: int, reads: Reads) -> None:
            tracker.policies_renamed(digest, modules)
            check.policies_changed(digest, pure=not reads.impure)

        def data_written(name: str, keys: Collection[ObjectKey]) -> None:
            tracker.written(name, keys)
            self._policies.wake()  # one of them may have waited for the place

        data = data_maps(settings.policies, data_changed)
        documents = DataMaps(
            self._opa,
            data,
            datamaps.RESERVED | {root},
            self._statuses.want,
            data_written,
            self._good,
        )
        beside = [documents.unsettled]
        limiting = Limiting(self._opa, instance, self._hub, parse_tightening, beside=beside)
        tracker = Tracker(evaluator, self._hub, targets, mirrors, static=static, limiting=limiting)
        writer = Writer(
            self._opa,
            instance,
            mirrors,
            self._readiness,
            written,
            ledger,
            documents=documents,
            audit=Audit(self._opa, root).check,
            away=self._away,
        )
        applied = asyncio.Event()
        self._wakers = (writer.wake, tracker.wake)
        async with asyncio.TaskGroup() as group:
            group.create_task(writer.run())
            group.create_task(resources.run(writer, tracker))
            for found in policies:
                group.create_task(self._reflect("policies", found))
            for held in data:
                group.create_task(self._reflect("data ConfigMaps", held))
            group.create_task(check.run())
            group.create_task(
                self._policies.run(
                    Epoch(
                        policies,
                        writer.loaded,
                        applied,
                        tracker.policies_changing,
                        policies_changed,
                        policies_renamed,
                        writer.stands,
                        documents.places,
                        resources,
                    )
                )
            )
            group.create_task(tracker.run(applied))
            await writer.loaded.wait()
            backoff.progressed()
            _leave_to_rest()

    def _wake(self) -> None:
        for waker in self._wakers:
            waker()

    def _away(self, reason: str | None) -> None:
        """Tell readers why OPA is not as it should be, None: it is."""
        self._hub.note("opa", reason)
        self._hub.currency.tell("OPA", reason)

    async def _reflect(self, what: str, maps: ConfigMaps[Any]) -> NoReturn:
        name = f"{what} in {maps.where}"
        source = KubeCollection(
            self._kube, CONFIGMAPS, namespace=maps.scope, label_selector=maps.selector
        )
        ready, current = self._readiness.reporter(name), partial(self._hub.currency.tell, name)

        def report(reason: str | None) -> None:
            ready(reason)
            current(reason)

        await Reflector(name, source, maps, report, behind=current).run()


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
