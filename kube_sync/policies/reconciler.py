"""Reconcile policies (ConfigMaps and PlacementPolicies) with OPA, and report the outcome on them.

Invariant: OPA only gets sets that compile (`chooser.py`), once its data is loaded and has the
fields they read; a field is dropped when no set that may be in force reads it
(`loaded_policies.py`). Staged policies lie beside them (`stages.py`), and each policy's status says
why it is not in force (`reporter.py`). A module whose key or policy was deleted is unloaded.
Reconciling an unchanged state writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import structlog

from kube_sync.decisions.canary import Canary
from kube_sync.errors import SyncError
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.analysis.result import Reads, unread
from kube_sync.opa.client import OpaClient
from kube_sync.opa.lanes import is_of_a_lane
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Modules
from kube_sync.policies.bundle import Bundle, build, digest
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.policies.chooser import Chooser, Record
from kube_sync.policies.delivery import Compiler, Delivery, Pathfinder
from kube_sync.policies.epoch import Epoch
from kube_sync.policies.guard import Declared, Guard
from kube_sync.policies.linting import Linting
from kube_sync.policies.loaded_policies import Failures, Loaded
from kube_sync.policies.placementpolicy_status import Policy
from kube_sync.policies.policy_api import Delivered
from kube_sync.policies.policywarning import Warnings, as_warnings, by_module
from kube_sync.policies.quarantine import Quarantine
from kube_sync.policies.reading import Reading
from kube_sync.policies.reporter import Reporter, Result
from kube_sync.policies.set_compiler import Choice
from kube_sync.policies.staging.lane_builder import Beside
from kube_sync.policies.staging.lanes import Counted
from kube_sync.policies.staging.stages import Staged, Stages
from kube_sync.policies.trial_run import Trial
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class PolicyReconciler:
    """Keeps OPA's modules equal to the policies; it outlives the epochs of OPA's data."""

    def __init__(
        self,
        chooser: Chooser,
        loaded: Loaded,
        reporter: Reporter,
        ways: Pathfinder,
        shelf: BundleServer,
        readiness: Readiness,
        *,
        quarantine: Quarantine,
        news: asyncio.Event,
        stages: Stages | None = None,
        linting: Linting | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """`news` is set, also by the parts, when there is something to reconcile.

        Without `stages` only active policies count, without `linting` none is linted.
        """
        self._chooser = chooser
        self._loaded = loaded
        self._reporter = reporter
        self._ways = ways
        self._shelf = shelf
        self._readiness = readiness
        self._quarantine = quarantine
        self._news = news
        self._stages = stages
        self._linting = linting
        self._backoff = backoff or Backoff(longest=5.0)
        self._later: asyncio.TimerHandle | None = None
        self._way: Delivery | None = None  # in the present epoch
        self._explained: Choice | None = None  # with errors, and OPA's own modules refreshed
        self._bundle: Bundle | None = None

    @property
    def in_force(self) -> Mapping[str, str]:
        """The known sources in OPA, by id, without generated ones."""
        return self._loaded.in_force

    @property
    def rejected(self) -> Mapping[str, str]:
        """Errors of the policies that are not in force in their newest version, by name."""
        return self._chooser.rejected

    @property
    def warned(self) -> Mapping[str, Sequence[str]]:
        """The warnings on the policies in force, each a line, by the policy's name."""
        return self._reporter.warned

    @property
    def reads(self) -> Reads | None:
        """What the decision reads by the modules in force, None before any are."""
        return self._loaded.reads

    @property
    def digest(self) -> str:
        """The digest of the modules in force, "" before any are."""
        return self._loaded.digest

    @property
    def canary(self) -> Canary | None:
        """The canary that decides on the objects of its side, None if there is none."""
        return None if self._stages is None else self._stages.canary

    async def claimed(self) -> Callable[[DataPath], bool]:
        """Return a predicate: whether OPA rejects recorded policies if data lies at a path.

        Raises SyncError.
        """
        return await self._chooser.claimed(by_bundle=await self._ways.by_bundle())

    def warn(self, warnings: Warnings) -> None:
        """Set warnings on policies about their decisions, by module id."""
        if self._reporter.warn(warnings):
            self._news.set()

    def count(self, counted: Counted | None) -> None:
        """Report what a lane would change, in the statuses of its policies; None: there is none."""
        if self._stages is not None:
            self._stages.count(counted)

    def count_canary(self, counted: Counted | None) -> None:
        """Report what the canary changes, or would; None: unknown."""
        if self._stages is not None:
            self._stages.count_canary(counted)

    async def opa_ended(self) -> None:
        """Handle that OPA has lost all that it held. Never raises SyncError."""
        await self._quarantine.opa_ended()

    def wake(self) -> None:
        """Notify that a policy may have changed."""
        self._news.set()

    async def run(self, epoch: Epoch) -> NoReturn:
        """Once the data is loaded, keep OPA's modules equal to the policies."""
        try:
            await self._follow(epoch)
        finally:
            # Before the next epoch: memory is to hold the objects' keys and classes of one alone.
            self._chooser.end()
            self._shelf.withhold()

    async def _follow(self, epoch: Epoch) -> NoReturn:
        self._loaded.begin()
        if self._stages is not None:
            self._stages.begin()
        self._chooser.begin()
        if epoch.data.narrowed:
            await self._foresee(epoch)
        self._readiness.waiting("policies", "they are loaded after the data")
        await epoch.loaded.wait()
        await self._listed(epoch, "the policies are not listed yet")
        self._chooser.let_try(epoch.sample)
        self._way = None
        while True:
            self._news.clear()
            try:
                if self._way is None:
                    self._way = await self._find(epoch)
                if await self._reconcile(self._way, epoch):
                    self._readiness.met("policies")
                    epoch.applied.set()
            except SyncError as error:
                self._readiness.waiting("policies", str(error))
                await self._backoff.wait(getattr(error, "retry_after", None))
                continue
            finally:
                # There was an answer, or this process ends in an orderly way.
                self._try_later(await self._quarantine.ended())
            self._backoff.progressed()
            await self._news.wait()

    async def _listed(self, epoch: Epoch, reason: str) -> None:
        while not epoch.listed:
            self._readiness.waiting("policies", reason)
            self._news.clear()
            await self._news.wait()

    async def _foresee(self, epoch: Epoch) -> None:
        """Determine which fields will be read, or are by OPA's modules, before loading any data."""
        await self._listed(epoch, "they are not listed yet, so which fields they read is not known")
        while True:
            try:
                way = await self._find(epoch)
                choice = await self._chooser.choose(way, epoch, epoch.policies)
                needs = await self._loaded.ahead(way, self._chooser.wanted(choice))
                if way.held:
                    needs.append(await self._loaded.need(way, way.held))
            except SyncError as error:
                self._readiness.waiting("policies", str(error))
                await self._backoff.wait(getattr(error, "retry_after", None))
            else:
                epoch.data.begin(needs)
                self._backoff.progressed()
                return
            finally:
                await self._quarantine.ended()

    async def _find(self, epoch: Epoch) -> Delivery:
        way = await self._ways.find(epoch.namespaces)
        self._loaded.found(way.held)
        return way

    async def _reconcile(self, way: Delivery, epoch: Epoch) -> bool:
        """Take one step; return whether OPA holds the chosen modules."""
        policies = epoch.policies
        way, choice = await self._choose(way, epoch, policies)
        self._reporter.faults(epoch, policies, choice)
        wanted = self._chooser.wanted(choice)
        if not await self._has_data(way, epoch, wanted):
            return False
        guard = epoch.guard(way.guard)
        beside = Beside(choice.modules, way.static, way.opaque, guard)
        staged = await self._staged(way, epoch, beside, wanted)
        if staged is None:
            return False
        delivered = await self._deliver(way, epoch, choice, {**wanted, **staged.modules})
        if delivered is None:
            # While OPA fetches them: decisions are shared only once it is known what they read.
            await self._loaded.need(way, {**way.static, **wanted})
            return False
        in_force, refused = _apart(delivered)
        reads = await self._settle(way, epoch, choice, in_force, staged)
        await self._chooser.save()
        withheld = by_module(
            [
                *as_warnings("values_withheld", epoch.data.withheld(reads)),
                *as_warnings("not_analysed", unread(reads)),
            ]
        )
        self._lint(way, epoch, choice, in_force)
        result = Result(choice, in_force, self._chooser.good, withheld)
        if self._stages is None:
            await self._reporter.report(epoch, policies, result, ())
            return True
        self._stages.enter(epoch, staged, reads, refused)
        told = self._stages.statuses(epoch, beside, staged, refused)
        await self._reporter.report(epoch, policies, result, told)
        # Last: the report of what is in force does not wait for staged policies.
        await self._stages.make(epoch, beside)
        return True

    async def _choose(
        self, way: Delivery, epoch: Epoch, policies: Mapping[ObjectKey, Policy]
    ) -> tuple[Delivery, Choice]:
        choice = await self._chooser.choose(way, epoch, policies)
        if choice.failures and choice is not self._explained:
            # They may need modules that OPA has got from elsewhere since.
            self._way = way = await self._ways.look_again(way)
            choice = self._explained = await self._chooser.choose(way, epoch, policies)
        return way, choice

    async def _has_data(self, way: Delivery, epoch: Epoch, wanted: Modules) -> bool:
        """Make OPA hold what these read; once it does, announce that decisions may differ."""
        alike = self._loaded.stays(way, wanted)
        needs = await self._loaded.ahead(way, wanted) if epoch.data.narrowed else [None]
        if not epoch.data.hold(needs):
            reason = "the data lacks what they read, and is listed again"
            self._readiness.waiting("policies", reason)
            return False
        if self._loaded.offer(wanted, alike=alike):
            epoch.changing()
        return True

    async def _staged(
        self, way: Delivery, epoch: Epoch, beside: Beside, wanted: Modules
    ) -> Staged | None:
        """Return the staged modules, None while they must be waited for."""
        if self._stages is None:
            return Staged()
        staged = await self._stages.offer(way, epoch, beside, wanted)
        if staged.canary.waits and not epoch.applied.is_set():
            # It decided before: without it, its objects would switch back for a moment.
            self._readiness.waiting("policies", "the data lacks what the canary reads")
            return None
        self._stages.leave(epoch, staged)
        return staged

    async def _deliver(
        self, way: Delivery, epoch: Epoch, choice: Choice, modules: Modules
    ) -> Delivered | None:
        """Return the modules in force, None while OPA has not fetched them: `wake` follows."""
        beside = epoch.staged if any(map(is_of_a_lane, modules)) else []
        versions = {**choice.modules, **{policy.key: policy.modules for policy in beside}}
        self._quarantine.offered(digest(modules), versions)
        if way.puts is not None:
            return await way.puts.deliver(modules)
        if self._bundle is None or self._bundle.revision != digest(modules):
            self._bundle = build(modules, self._loaded.packages(modules))
        if not self._shelf.publish(self._bundle, epoch.stands, self._complain):
            self._readiness.waiting("policies", "OPA has not fetched and activated them yet")
            return None
        return Delivered(modules, {})

    async def _settle(
        self, way: Delivery, epoch: Epoch, choice: Choice, in_force: Delivered, staged: Staged
    ) -> Reads:
        """Release data that nothing needs any more, and announce the set in force if it is new."""
        alike = self._loaded.stands
        reads, need = await self._loaded.settle(way, in_force, staged.needs)
        epoch.data.settle(need)
        self._chooser.note(choice, in_force)
        new = self._loaded.note(in_force, reads, epoch.changed, epoch.renamed, alike=alike)
        metrics.policy_loads.labels("loaded").inc(new)
        metrics.policies_in_force.set(len(self._loaded))
        return reads

    def _lint(self, way: Delivery, epoch: Epoch, choice: Choice, in_force: Delivered) -> None:
        if self._linting is None or way.opaque:
            return  # rules that are not known may refer to any other
        known = {i: source for i, source in in_force.modules.items() if source is not None}
        authored = {i: known[i] for found in choice.modules.values() for i in found if i in known}
        together = {**way.static, **known}
        self._linting.look(together, authored, epoch.places(), way.guard.own_builtins)

    def _complain(self, reason: str) -> None:
        self._readiness.waiting("policies", reason)
        log.warning("policies_not_activated", reason=reason)

    def _try_later(self, seconds: float | None) -> None:
        """Wake after so many seconds, to try waiting versions; None: there are none."""
        if self._later is not None:
            self._later.cancel()
        self._later = None
        if seconds is not None:
            self._later = asyncio.get_running_loop().call_later(seconds, self._news.set)


def policy_loader(
    opa: OpaClient,
    compiler: Compiler,
    shelf: BundleServer,
    guard: Guard,
    reading: Reading,
    generated: Modules,
    *,
    record: Record,
    reporter: Reporter,
    readiness: Readiness,
    quarantine: Quarantine,
    trial: Trial | None = None,
    stages: Callable[[Reading, asyncio.Event], Stages] | None = None,
    linting: Linting | None = None,
    backoff: Backoff | None = None,
) -> PolicyReconciler:
    """Build a PolicyReconciler; `generated` modules are part of every set."""
    news, declared = asyncio.Event(), Declared(compiler)
    loaded = Loaded(declared, reading, generated)
    parts = compiler, declared, loaded, reading, generated
    chooser = Chooser(*parts, record=record, quarantine=quarantine, trial=trial, news=news)
    return PolicyReconciler(
        chooser,
        loaded,
        reporter,
        Pathfinder(opa, compiler, guard, generated),
        shelf,
        readiness,
        quarantine=quarantine,
        news=news,
        stages=None if stages is None else stages(reading, news),
        linting=linting,
        backoff=backoff,
    )


def _apart(delivered: Delivered) -> tuple[Delivered, Failures]:
    """Return the modules in force without lanes, and the errors of the lanes' modules."""
    modules = {i: source for i, source in delivered.modules.items() if not is_of_a_lane(i)}
    failures = {i: error for i, error in delivered.failures.items() if not is_of_a_lane(i)}
    refused = {i: e for i, e in delivered.failures.items() if i not in failures}
    return Delivered(modules, failures), refused
