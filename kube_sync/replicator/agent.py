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
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, ParamSpec

import structlog

from kube_sync.analysis import analyzer
from kube_sync.analysis.reads import Reads
from kube_sync.decisions.canary import Canary, SidedEvaluator
from kube_sync.decisions.evaluator import BATCH_MODULE, Evaluator, batch_module
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.limiting import Limiting
from kube_sync.decisions.reading import DecisionReader
from kube_sync.decisions.sealing import Seals
from kube_sync.decisions.tracker import Tracker
from kube_sync.errors import EpochLost, NotFound, first_of
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.configmaps import CONFIGMAPS, ConfigMap, ConfigMaps
from kube_sync.kube.discovery import is_namespaced
from kube_sync.kube.lease import Lease
from kube_sync.kube.maybeserved import MaybeServed
from kube_sync.kube.placementpolicies import (
    PLACEMENT_POLICIES,
    PlacementPolicies,
    placement_policies,
)
from kube_sync.kube.policymaps import PolicyMaps, data_maps, policy_maps
from kube_sync.kube.reflector import ListerWatcher, Reflector, Store
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaClient
from kube_sync.opa.paths import DataPath
from kube_sync.replicator import datamaps
from kube_sync.replicator.audit import AUDIT_MODULE, Audit, audit_module
from kube_sync.replicator.datamaps import DataMaps
from kube_sync.replicator.fleetnames import fleet_names
from kube_sync.replicator.holdings import Holdings
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.placementcheck import PlacementCheck
from kube_sync.replicator.policies.builtin import built_in, packages
from kube_sync.replicator.policies.canaries import Canaries, Counting
from kube_sync.replicator.policies.canary import Halt
from kube_sync.replicator.policies.epoch import Epoch
from kube_sync.replicator.policies.guard import Guard
from kube_sync.replicator.policies.lanemaking import LaneMaker
from kube_sync.replicator.policies.lanes import Lanes
from kube_sync.replicator.policies.lastgood import LastGood
from kube_sync.replicator.policies.loader import PolicyLoader, policy_loader
from kube_sync.replicator.policies.marker import Marker
from kube_sync.replicator.policies.outcomes import Outcomes, Policy
from kube_sync.replicator.policies.quarantine import Quarantine
from kube_sync.replicator.policies.reading import Reading
from kube_sync.replicator.policies.reporter import Failed, Reporter
from kube_sync.replicator.policies.sample import Sampler
from kube_sync.replicator.policies.shelf import Shelf
from kube_sync.replicator.policies.stages import Stages
from kube_sync.replicator.policies.trial import Trial
from kube_sync.replicator.policies.way import Compiler
from kube_sync.replicator.resources import Reconfigured, Resources, TopologyOrigin
from kube_sync.replicator.selfcheck import SelfCheck
from kube_sync.replicator.shadow import Shadow
from kube_sync.replicator.status import StatusWriter
from kube_sync.replicator.witnessing import witnessing
from kube_sync.replicator.writer import Writer
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.memory import give_back
from kube_sync.safety import Inventory, Placements, parse_tightening
from kube_sync.settings import TOPOLOGY, Resource, Settings, with_builtin

log: structlog.stdlib.BoundLogger = structlog.get_logger()

LEASE = "kube-sync-replicator"

P = ParamSpec("P")


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
        in_force: Callable[[str, Mapping[str, str]], None] = lambda _digest, _modules: None,
        *,
        notes: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _seen: {},
        halted: Callable[[Policy, Halt], None] = lambda _policy, _halt: None,
        failed: Failed = lambda _policies, _failures: None,
        trial: Trial | None = None,
        topology: TopologyOrigin | None = None,
    ) -> None:
        """`in_force` is told the digest and the modules of the policies, whenever they differ.

        It is told those that a canary decides by, too. Without `trial` policies are compiled before
        they are in force, and not tried.
        `notes` returns the annotations to keep on the Lease, from those that it has; while
        this process holds it, `halted` is called when a canary is halted, `failed` with why
        policies fail. `topology` is where the topology comes from, if it is replicated.
        """
        settings = with_builtin(settings)
        self._topology = topology
        self._in_force = in_force
        self._settings = settings
        self._kube = kube
        self._opa = opa
        self._hub = hub
        self._readiness = readiness
        self._roots = _roots(settings)  # changed in place: the loader looks at it each time
        namespace, allow = settings.coordination.namespace, settings.policies.allow
        builtin = built_in(settings)
        generated = {**_generated(settings), **builtin}
        self._lease = Lease(
            kube,
            namespace,
            LEASE,
            _identity(),
            news=self._held,
            notes=lambda: notes(self._lease.annotations),
        )
        self._statuses = StatusWriter(kube, self._lease)
        self._good = datamaps.LastGood()
        quarantine = Quarantine(Marker(kube, namespace, socket.gethostname()))
        batch = partial(batch_module, settings.replicate.root, settings.placement.path)
        maker = partial(LaneMaker, compiler, generated, batch, quarantine=quarantine, trial=trial)
        canaries = Canaries(
            Lanes(maker(), "canary"),
            settings.placement.path,
            everywhere=settings.asks_opa(),
            halted=self._while_held(halted),
        )
        guard = Guard(
            self._roots,
            frozenset(allow.packages),
            frozenset(allow.builtins),
            builtin=packages(builtin),
        )
        self._policies = policy_loader(
            opa,
            compiler,
            shelf,
            guard,
            Reading(compiler, settings.placement.path, self._collections),
            generated,
            record=LastGood(kube, namespace, self._lease),
            reporter=Reporter(
                self._statuses.annotate,
                quarantine,
                at_fault=partial(hub.note, "policies"),
                tell=Outcomes(self._statuses.want_status).tell,
                failed=self._while_held(failed),
            ),
            readiness=readiness,
            quarantine=quarantine,
            trial=trial,
            stages=partial(
                Stages,
                lanes=Lanes(maker(), "shadow"),
                canaries=canaries,
                candidates=Lanes(maker(), "candidate"),
            ),
        )
        shelf.wake = self._policies.wake
        self._wakers: tuple[Callable[[], None], ...] = ()
        self._resources: Resources | None = None
        self._seals = Seals(settings.placement.key_file)
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

    def _in_use(self) -> Settings:
        return self._settings

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

    def _canary_modules(self) -> Mapping[str, str]:
        canary = self._policies.canary
        return {} if canary is None else canary.modules

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

    async def _epoch(self, backoff: Backoff) -> None:  # noqa: PLR0915 - each part knows others
        self._let_go()
        settings, instance = self._settings, secrets.token_hex(8)
        root = settings.replicate.root
        self._resources = resources = Resources(
            settings,
            self._kube,
            self._readiness,
            self._wake,
            grown=self._policies.wake,
            distrusted=self._distrusted,
            currency=self._hub.freshness.report,
            seals=self._seals,
            topology=self._topology,
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
        witness = witnessing(self._in_use, mirrors)
        placements = Placements(settings.remediate.guard.placements)
        read = DecisionReader(placements.unreadable, lambda: self._policies.in_force)
        read_canary = DecisionReader(placements.unreadable, self._canary_modules)
        in_force = Evaluator(self._opa, instance, witness=witness, read=read)

        def inventory() -> Inventory | None:
            compares = self._settings.remediate.guard.known_clusters
            return fleet_names(resources.mirrors) if compares else None

        placed = PlacementCheck(
            self._hub,
            placements,
            inventory,
            lambda: self._policies.in_force,
            self._policies.warn,
            read.blamed,
        )
        canary = Evaluator(self._opa, instance, lane="canary", read=read_canary)
        evaluator = SidedEvaluator(in_force, canary)
        targets = {resource.name: resource.gvr for resource in settings.targets()}
        holdings = Holdings(self._opa, root, (mirror.name for mirror in mirrors))
        policies = policy_maps(settings.policies, self._policies.wake)
        objects = placement_policies(settings.policies, self._policies.wake)

        def data_changed() -> None:
            documents.wake()
            writer.wake()

        def written(name: str, keys: Collection[ObjectKey]) -> None:
            tracker.written(name, keys)
            shadow.written(name, keys)
            counter.written(name, keys)
            check.written(name, keys)
            placed.written(name)

        def policies_changed(digest: str, modules: int, reads: Reads) -> None:
            self._in_force(digest, self._policies.in_force)
            documents.policies_stand()
            writer.wake()
            # Before any decision: from here on the classes by what the old ones read are unknown.
            resources.policies_changed(reads if modules or settings.policies.static else None)
            tracker.policies_changed(digest, modules, reads)
            check.policies_changed(digest, pure=not reads.impure)

        def policies_renamed(digest: str, modules: int, reads: Reads) -> None:
            self._in_force(digest, self._policies.in_force)
            tracker.policies_renamed(digest, modules)
            check.policies_changed(digest, pure=not reads.impure)

        def data_written(name: str, keys: Collection[ObjectKey]) -> None:
            tracker.written(name, keys)
            shadow.written(name, keys)
            counter.written(name, keys)
            self._policies.wake()  # one of them may have waited for the place

        data = data_maps(settings.policies, data_changed)
        documents = DataMaps(
            self._opa,
            data,
            datamaps.RESERVED | {root},
            self._statuses.want,
            data_written,
            self._good,
            self._policies.claimed,
        )
        limiting = Limiting(
            self._opa, instance, self._hub, parse_tightening, beside=[documents.unsettled]
        )
        tracker = Tracker(
            evaluator,
            self._hub,
            targets,
            mirrors,
            static=settings.policies.static,
            limiting=limiting,
        )
        shadow = Shadow(
            Evaluator(
                self._opa, instance, lane="shadow", read=DecisionReader(placements.unreadable)
            ),
            self._hub,
            self._targets,
            lambda: resources.mirrors,
            placements,
            self._policies.count,
            inventory=inventory,
        )
        counter = Shadow(
            Evaluator(self._opa, instance, lane="canary", read=read_canary),
            self._hub,
            self._targets,
            lambda: resources.mirrors,
            placements,
            self._policies.count_canary,
            in_force=Evaluator(self._opa, instance, read=read),
            gauge=metrics.canary_differences,
            inventory=inventory,
        )
        writer = Writer(
            self._opa,
            instance,
            mirrors,
            self._readiness,
            written,
            holdings,
            documents=documents,
            audit=Audit(self._opa, root).check,
            away=self._away,
            witness=witness,
        )
        sampler = Sampler(
            self._opa, root, lambda: resources.mirrors, self._targets, documents.places
        )
        applied = asyncio.Event()
        self._wakers = (writer.wake, tracker.wake)
        async with asyncio.TaskGroup() as group:
            group.create_task(writer.run())
            group.create_task(resources.run(writer, tracker))
            for following in self._following(policies, objects, data):
                group.create_task(following)
            group.create_task(check.run())
            group.create_task(placed.run())
            group.create_task(
                self._policies.run(
                    Epoch(
                        maps=policies,
                        objects=objects,
                        loaded=writer.loaded,
                        applied=applied,
                        changing=tracker.policies_changing,
                        changed=policies_changed,
                        renamed=policies_renamed,
                        stands=writer.stands,
                        places=documents.places,
                        data=resources,
                        staging=partial(_stage, resources, shadow),
                        counting=partial(_count, resources, counter),
                        canary_changing=tracker.canary_changing,
                        canary=partial(
                            _decide, self._in_force, evaluator, resources, tracker, check
                        ),
                        sample=sampler.sample,
                    )
                )
            )
            group.create_task(tracker.run(applied))
            group.create_task(shadow.run())
            group.create_task(counter.run())
            await writer.loaded.wait()
            backoff.progressed()
            _leave_to_rest()

    def _let_go(self) -> None:
        """Free what an earlier epoch left before another one is loaded, or memory holds both."""
        self._wakers = ()
        if self._resources is not None:
            self._resources = None
            gc.unfreeze()
            gc.collect()
            give_back()

    def _wake(self) -> None:
        for waker in self._wakers:
            waker()

    def _away(self, reason: str | None) -> None:
        """Tell readers why OPA is not as it should be, None: it is."""
        self._hub.note("opa", reason)
        self._hub.freshness.report("OPA", reason)

    def _following(
        self,
        policies: Iterable[PolicyMaps],
        objects: Iterable[PlacementPolicies],
        data: Iterable[ConfigMaps[ConfigMap]],
    ) -> Iterator[Coroutine[Any, Any, NoReturn]]:
        """Yield what follows policies and data, where they may be."""
        yield from (self._reflect_maps("policies", found) for found in policies)
        yield from (self._reflect_maps("data ConfigMaps", found) for found in data)
        yield from map(self._reflect_objects, objects)

    async def _reflect_maps(self, what: str, maps: ConfigMaps[Any]) -> NoReturn:
        source = KubeCollection(
            self._kube, CONFIGMAPS, namespace=maps.scope, label_selector=maps.selector
        )
        await self._reflect(f"{what} in {maps.where}", source, maps)

    async def _reflect_objects(self, objects: PlacementPolicies) -> NoReturn:
        source = MaybeServed(self._kube, PLACEMENT_POLICIES, objects.namespace)
        await self._reflect(f"PlacementPolicies in {objects.namespace}", source, objects)

    async def _reflect(self, name: str, source: ListerWatcher, store: Store) -> NoReturn:
        ready, current = self._readiness.reporter(name), partial(self._hub.freshness.report, name)

        def report(reason: str | None) -> None:
            ready(reason)
            current(reason)

        await Reflector(name, source, store, report, behind=current).run()


def _generated(settings: Settings) -> dict[str, str]:
    root = settings.replicate.root
    return {
        BATCH_MODULE: batch_module(root, settings.placement.path),
        AUDIT_MODULE: audit_module(root),
    }


def _stage(resources: Resources, shadow: Shadow, reads: Reads | None) -> None:
    # First: until then classes say nothing of the lane.
    resources.staged_changed("shadow", reads)
    shadow.staged(reads)


def _decide(
    in_force: Callable[[str, Mapping[str, str]], None],
    evaluator: SidedEvaluator,
    resources: Resources,
    tracker: Tracker,
    check: SelfCheck,
    canary: Canary | None,
) -> None:
    if canary is not None:
        in_force(canary.policy, canary.modules)
    # In one step: from here on each object is decided by the set of its side, and by no other.
    evaluator.side = None if canary is None else canary.side
    resources.canary_changed(None if canary is None else canary.reads)
    tracker.canary_changed(canary)
    check.canary_changed(canary)


def _count(resources: Resources, counter: Shadow, counting: Counting | None) -> None:
    if counting is None:
        resources.staged_changed("counted", None)
        counter.staged(None)
    else:
        resources.staged_changed("counted", counting.reads)
        counter.staged(counting.reads, counting.side, counting.of)


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
