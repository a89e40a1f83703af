"""Wire the parts of one load of OPA, from the first LIST until OPA is lost.

Invariant: no state of one load is used by the next one. Callbacks for writes and for policy changes
call their receivers in a safe order.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from kube_sync.config import Settings
from kube_sync.decisions.budget_watcher import BudgetWatcher
from kube_sync.decisions.decision_reader import DecisionReader
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.sealing import Seals
from kube_sync.decisions.tracker import Tracker
from kube_sync.guard import Inventory, Placements, parse_tightening
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.configmaps import CONFIGMAPS, ConfigMaps
from kube_sync.kube.maybeserved import MaybeServed
from kube_sync.kube.placementpolicies import (
    PLACEMENT_POLICIES,
    PlacementPolicies,
    placement_policies,
)
from kube_sync.kube.policymaps import data_maps, policy_maps
from kube_sync.kube.reflector import ListerWatcher, Reflector, Store
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.analysis.result import Reads
from kube_sync.opa.client import OpaClient
from kube_sync.policies.epoch import Epoch
from kube_sync.policies.reconciler import PolicyReconciler
from kube_sync.policies.status import StatusWriter
from kube_sync.policies.trial_run import Sampler
from kube_sync.replicator import datamaps
from kube_sync.replicator.audit import Audit
from kube_sync.replicator.bookkeeping import RootIndex
from kube_sync.replicator.datamaps import DataMaps
from kube_sync.replicator.failed_additions import FailedAdditions
from kube_sync.replicator.input_recorder import input_reader
from kube_sync.replicator.parameter_problems import ParameterProblems
from kube_sync.replicator.placementcheck import PlacementCheck, fleet_names
from kube_sync.replicator.replica import ReplicaMaker, TopologyOrigin
from kube_sync.replicator.resources import Resources
from kube_sync.replicator.selfcheck import SelfCheck
from kube_sync.replicator.staging import Core, StagedEvaluation
from kube_sync.replicator.writer import Writer

InForce = Callable[[str, Mapping[str, str]], None]  # receives the policies' digest, and the modules


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """The parts that outlive a load."""

    settings: Callable[[], Settings]  # returns the current settings
    kube: KubeClient
    opa: OpaClient
    hub: DecisionHub
    readiness: Readiness
    policies: PolicyReconciler
    statuses: StatusWriter
    good: datamaps.LastGood
    seals: Seals
    in_force: InForce
    distrusted: set[str]  # resources replicated as whole objects until the next start
    topology: TopologyOrigin | None

    def targets(self) -> dict[str, GroupVersionResource]:
        """Return the targets of decisions, by collection."""
        return {resource.name: resource.gvr for resource in self.settings().targets()}


class Load:
    """The parts of one load, wired together."""

    def __init__(self, lasting: Lasting) -> None:
        self._lasting, self._instance = lasting, secrets.token_hex(8)
        self._settings = settings = lasting.settings()
        self._policies, self._opa, self._hub = lasting.policies, lasting.opa, lasting.hub
        self._placements = Placements(settings.remediate.guard.placements)
        self._maps = policy_maps(settings.policies, self._policies.wake)
        self._objects = placement_policies(settings.policies, self._policies.wake)
        self._data = data_maps(settings.policies, self._data_changed)
        self._failed = FailedAdditions(self._additions_failed)
        self.resources = Resources(
            settings,
            self._maker(lasting),
            lasting.readiness,
            grown=self._policies.wake,
            distrusted=lasting.distrusted,
        )
        self._input_reader = input_reader(lasting.settings, self.resources.mirrors)
        self._problems = ParameterProblems(self._opa, self._data_changed)
        self._documents = DataMaps(
            self._opa,
            self._data,
            datamaps.RESERVED | {settings.replicate.root},
            lasting.statuses.want,
            self._data_written,
            good=lasting.good,
            claimed=self._policies.claimed,
            problems=self._problems.of,
        )
        self._read = DecisionReader(self._placements.unreadable, lambda: self._policies.in_force)
        self._evaluator = Evaluator(
            self._opa, self._instance, input_reader=self._input_reader, read=self._read
        )
        self._tracker = self._decide_by(settings)
        self._check, self._placed = self._compare_whole(), self._compare_fleet()
        self._staging = self._stage()
        self._writer = self._write(settings.replicate.root)

    def _additions_failed(self) -> None:
        self._staging.recount()

    def _maker(self, lasting: Lasting) -> ReplicaMaker:
        return ReplicaMaker(
            lasting.kube,
            lasting.readiness,
            self._wake,
            currency=self._hub.freshness.report,
            seals=lasting.seals,
            topology=lasting.topology,
            known=self._hub.log.known,
            seen=self._failed.note,
        )

    async def run(self, loaded: Callable[[], None]) -> None:
        """Replicate until OPA is lost; call `loaded` when the data is complete.

        Raises EpochLost, Reconfigured; both in groups.
        """
        applied = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._writer.run())
            group.create_task(self.resources.run(self._writer, self._tracker))
            for following in self._following():
                group.create_task(following)
            group.create_task(self._check.run())
            group.create_task(self._placed.run())
            group.create_task(self._policies.run(self._epoch(applied)))
            group.create_task(self._tracker.run(applied))
            group.create_task(self._staging.run())
            if self._data:
                group.create_task(self._problems.run())
            await self._writer.loaded.wait()
            loaded()

    # Construction of the parts

    def _decide_by(self, settings: Settings) -> Tracker:
        other_data = [self._documents.unsettled]
        return Tracker(
            self._evaluator,
            self._hub,
            self._lasting.targets(),
            self.resources.mirrors,
            static=settings.policies.static,
            documents=self._documents,
            budget_watcher=BudgetWatcher(
                self._opa, self._instance, self._hub, parse_tightening, other_data=other_data
            ),
        )

    def _stage(self) -> StagedEvaluation:
        return StagedEvaluation(
            Core(
                opa=self._opa,
                instance=self._instance,
                hub=self._hub,
                policies=self._policies,
                resources=self.resources,
                placements=self._placements,
                targets=self._lasting.targets,
                inventory=self._inventory,
                evaluator=self._evaluator,
                read=self._read,
                tracker=self._tracker,
                check=self._check,
                in_force=self._lasting.in_force,
                failed=self._failed,
            )
        )

    def _compare_whole(self) -> SelfCheck:
        return SelfCheck(
            self._opa,
            self._lasting.kube,
            self._settings.placement.path,
            self._lasting.targets,
            self.resources,
            self._settings.replicate.verify,
        )

    def _compare_fleet(self) -> PlacementCheck:
        return PlacementCheck(
            self._hub,
            self._placements,
            self._inventory,
            lambda: self._policies.in_force,
            self._policies.warn,
            self._read.failing_rows,
        )

    def _write(self, root: str) -> Writer:
        mirrors = self.resources.mirrors
        return Writer(
            self._opa,
            self._instance,
            mirrors,
            self._lasting.readiness,
            self._written,
            RootIndex(self._opa, root, (mirror.name for mirror in mirrors)),
            documents=self._documents,
            audit=Audit(self._opa, root).check,
            away=self._away,
            input_reader=self._input_reader,
        )

    def _epoch(self, applied: asyncio.Event) -> Epoch:
        root = self._settings.replicate.root
        sampler = Sampler(
            self._opa,
            root,
            lambda: self.resources.mirrors,
            self._lasting.targets,
            self._documents.places,
        )
        return Epoch(
            maps=self._maps,
            objects=self._objects,
            loaded=self._writer.loaded,
            applied=applied,
            changing=self._tracker.policies_changing,
            changed=self._policies_changed,
            renamed=self._policies_renamed,
            stands=self._writer.verify_epoch,
            places=self._documents.places,
            data=self.resources,
            staging=self._staging,
            sample=sampler.sample,
        )

    def _inventory(self) -> Inventory | None:
        compares = self._lasting.settings().remediate.guard.known_clusters
        return fleet_names(self.resources.mirrors) if compares else None

    # Notifications between the parts

    def _wake(self) -> None:
        self._writer.wake()
        self._tracker.wake()

    def _away(self, reason: str | None) -> None:
        """Report to readers why OPA does not accept writes, None: it does."""
        self._hub.note("opa", reason)
        self._hub.freshness.report("OPA", reason)

    def _data_changed(self) -> None:
        self._documents.wake()
        self._writer.wake()

    def _written(self, name: str, keys: Collection[ObjectKey]) -> None:
        self._tracker.written(name, keys)
        for lane in self._staging.counting:
            lane.written(name, keys)
        self._check.written(name, keys)
        self._placed.written(name)

    def _data_written(self, name: str, keys: Collection[ObjectKey]) -> None:
        self._tracker.written(name, keys)
        for lane in self._staging.counting:
            lane.written(name, keys)
        self._policies.wake()  # a policy may have waited for this path
        self._problems.data_written()

    def _policies_changed(self, digest: str, modules: int, reads: Reads) -> None:
        self._lasting.in_force(digest, self._policies.in_force)
        self._documents.policies_loaded()
        self._problems.policies_changed()
        self._writer.wake()
        # Before any decision: the classes by the old policies' reads become unknown here.
        static = self._settings.policies.static
        self.resources.policies_changed(reads if modules or static else None)
        self._tracker.policies_changed(digest, modules, reads)
        self._check.policies_changed(digest, pure=not reads.impure)

    def _policies_renamed(self, digest: str, modules: int, reads: Reads) -> None:
        self._lasting.in_force(digest, self._policies.in_force)
        self._tracker.policies_renamed(digest, modules)
        self._check.policies_changed(digest, pure=not reads.impure)

    # Reflectors of policies and data, one for each namespace with any

    def _following(self) -> Iterator[Coroutine[Any, Any, NoReturn]]:
        yield from (self._reflect_maps("policies", found) for found in self._maps)
        yield from (self._reflect_maps("data ConfigMaps", found) for found in self._data)
        yield from map(self._reflect_objects, self._objects)

    async def _reflect_maps(self, what: str, maps: ConfigMaps[Any]) -> NoReturn:
        source = KubeCollection(
            self._lasting.kube, CONFIGMAPS, namespace=maps.scope, label_selector=maps.selector
        )
        await self._reflect(f"{what} in {maps.where}", source, maps)

    async def _reflect_objects(self, objects: PlacementPolicies) -> NoReturn:
        source = MaybeServed(self._lasting.kube, PLACEMENT_POLICIES, objects.namespace)
        await self._reflect(f"PlacementPolicies in {objects.namespace}", source, objects)

    async def _reflect(self, name: str, source: ListerWatcher, store: Store) -> NoReturn:
        ready = self._lasting.readiness.reporter(name)
        current = partial(self._hub.freshness.report, name)

        def report(reason: str | None) -> None:
            ready(reason)
            current(reason)

        await Reflector(name, source, store, report, behind=current).run()
