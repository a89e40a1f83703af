"""Policies, of ConfigMaps and PlacementPolicies, into OPA, and the outcome back to their authors.

Keeps true: OPA only ever gets sets that compile, once its data is loaded and has what they read,
which is let go when nothing that may be in force reads it; a policy that is at
fault falls back to its last good version, delays no other, and says why on itself; a module whose
key or policy is gone is unloaded. Candidates are compiled when nothing else is due, and OPA never
gets them. Reconciling an unchanged world writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol

import structlog

from kube_sync.analysis.reads import Reads, joined, unread
from kube_sync.decisions.canary import Canary
from kube_sync.errors import SyncError
from kube_sync.kube.placementpolicies import PlacementPolicies, PlacementPolicy
from kube_sync.kube.policymaps import PolicyMap, PolicyMaps
from kube_sync.kube.policynames import called
from kube_sync.kube.staging import CANARY, CANDIDATE
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaError
from kube_sync.opa.inspection import EXPENSIVE_SECONDS, forbidden, may_nest_deeply
from kube_sync.opa.lanes import ROOT, is_of_a_lane
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Cause, Modules
from kube_sync.replicator.extent import Need
from kube_sync.replicator.policies.account import account, not_put
from kube_sync.replicator.policies.bundle import Bundle, build, digest
from kube_sync.replicator.policies.canaries import Canaries, Counting, Offer
from kube_sync.replicator.policies.choice import Candidate, Choice, Versions, choose
from kube_sync.replicator.policies.guard import Guard
from kube_sync.replicator.policies.header import Declared
from kube_sync.replicator.policies.lanemaking import Beside, unknown
from kube_sync.replicator.policies.lanes import Counted, Lanes
from kube_sync.replicator.policies.outcomes import (
    Outcome,
    Policy,
    Told,
    Tried,
    nobody,
    unreadable,
)
from kube_sync.replicator.policies.puts import InForce
from kube_sync.replicator.policies.quarantine import Quarantine, quarantined
from kube_sync.replicator.policies.reading import Reading
from kube_sync.replicator.policies.shelf import Shelf, Stands
from kube_sync.replicator.policies.standing import Standing
from kube_sync.replicator.policies.trial import TakeSample, Trial
from kube_sync.replicator.policies.way import Compiler, Pathfinder, PolicyApi, Way
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_FAULT_CHARACTERS = 300
_AGAIN_SECONDS = 30.0  # until lanes are made that there was no answer for


class Record(Protocol):
    """Where last good versions outlive this process."""

    async def load(self) -> dict[ObjectKey, Modules]:
        """Return them."""
        ...

    async def save(self, good: Versions) -> None:
        """Keep them."""
        ...


class Data(Protocol):
    """What policies stand on: some of it may hold no more than they read."""

    @property
    def narrowed(self) -> bool:
        """Whether any of it holds only what is read."""
        ...

    def begin(self, needs: Iterable[Need | None]) -> None:
        """Load what these sets of policies need; None: what nobody knows."""
        ...

    def hold(self, needs: Iterable[Need | None]) -> bool:
        """Hold what these need beside what was needed before; returns whether OPA does.

        If not, the loader is woken when it does.
        """
        ...

    def settle(self, need: Need | None) -> None:
        """Hold only this: it is in force, and nothing else may be."""
        ...

    def withheld(self, reads: Reads) -> Mapping[str, Sequence[str]]:
        """Return what is read that the configuration keeps out, by module."""
        ...


class Whole:
    """Data that holds everything, whatever is read."""

    narrowed = False

    def begin(self, needs: Iterable[Need | None]) -> None:
        """Do nothing."""

    def hold(self, needs: Iterable[Need | None]) -> bool:  # noqa: ARG002 - it holds all
        """Hold it."""
        return True

    def settle(self, need: Need | None) -> None:
        """Do nothing."""

    def withheld(self, reads: Reads) -> Mapping[str, Sequence[str]]:  # noqa: ARG002 - it holds all
        """Return nothing."""
        return {}


# Told the digest of the modules in force, how many they are, and what the decision reads.
Changed = Callable[[str, int, Reads], None]
Annotate = Callable[[PolicyMap, str], Awaitable[None]]
Failed = Callable[[Mapping[ObjectKey, Policy], Mapping[ObjectKey, Iterable[Cause]]], None]
Failures = Mapping[str, OpaError]  # by a module's id
Warnings = Mapping[str, Sequence[str]]  # likewise


@dataclass(frozen=True, slots=True)
class Epoch:
    """One load of OPA, as far as policies are concerned."""

    maps: Sequence[PolicyMaps]
    loaded: asyncio.Event  # the data is there
    applied: asyncio.Event  # set when the policies are, for the first time
    changing: Callable[[], None]  # OPA may hold another set from now on
    changed: Changed  # always told after that
    renamed: Changed  # told, without either, of another set that decides all alike
    stands: Stands
    places: Callable[[], Sequence[DataPath]]  # where data lies beside that of the guard
    data: Data = field(default_factory=Whole)
    # Told what a lane reads, that OPA holds from now on; None: it may hold none, or another one.
    staging: Callable[[Reads | None], None] = lambda _: None
    objects: Sequence[PlacementPolicies] = ()
    # Told what OPA is to be asked for a canary's sake; None: nothing, or something else.
    counting: Callable[[Counting | None], None] = lambda _: None
    canary_changing: Callable[[], None] = lambda: None  # OPA may hold another one from now on
    canary: Callable[[Canary | None], None] = lambda _: None  # told what decides on its side
    sample: TakeSample | None = None  # of what OPA holds, to try policies on

    @property
    def policies(self) -> dict[ObjectKey, Policy]:
        """The policies as they are now, of either kind."""
        found: dict[ObjectKey, Policy] = {p.key: p for maps in self.maps for p in maps}
        return found | {p.key: p for objects in self.objects for p in objects}

    @property
    def listed(self) -> bool:
        """Whether these are all that there are."""
        return all(found.listed for found in self._stores)

    @property
    def namespaces(self) -> list[str]:
        """Where they are."""
        return [found.namespace for found in self._stores]

    @property
    def _stores(self) -> Sequence[PolicyMaps | PlacementPolicies]:
        return [*self.maps, *self.objects]

    @property
    def candidates(self) -> list[Policy]:
        """Those that are only compiled."""
        return [policy for found in self._stores for policy in found.candidates]

    @property
    def staged(self) -> list[Policy]:
        """Those that are not meant to decide yet, but for candidates."""
        maps = [policy for found in self.maps for policy in found.staged]
        objects = [policy for found in self.objects for policy in found.staged]
        return [*maps, *(policy for policy in objects if policy.stage != CANDIDATE)]


class PolicyLoader:
    """Makes OPA hold what the policy ConfigMaps say; it outlives the epochs of OPA's data."""

    def __init__(
        self,
        opa: PolicyApi,
        compiler: Compiler,
        shelf: Shelf,
        record: Record,
        annotate: Annotate,
        guard: Guard,
        generated: Modules,
        reading: Reading,
        readiness: Readiness,
        *,
        backoff: Backoff | None = None,
        at_fault: Callable[[str | None], None] = lambda _: None,
        lanes: Lanes | None = None,
        canaries: Canaries | None = None,
        candidates: Lanes | None = None,
        tell: Callable[[Told], None] = nobody,
        failed: Failed = lambda _policies, _failures: None,
        quarantine: Quarantine | None = None,
        trial: Trial | None = None,
    ) -> None:
        """Take the `generated` modules, which are part of every set.

        `at_fault` is told which policies are not in force as they are, None: all are; `tell` what
        became of each PlacementPolicy, `failed` why policies fail. Without `lanes` nothing is
        staged, without `canaries` no canary is, and without `candidates` these are not compiled.
        """
        self._lanes = lanes
        self._canaries = canaries
        self._only_compiled = candidates
        self._quarantine = quarantine or Quarantine()
        self._trial = trial
        self._told_canary: Canary | None = None
        self._told_counting: Counting | None = None
        self._canary_changing = False
        self._counted: Counted | None = None
        self._decided: Warnings = {}  # warnings of what is decided
        self._again: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._told_lane: tuple[str, Reads] | None = None
        self._at_fault = at_fault
        self._tell_objects = tell
        self._tell_failed = failed
        self._ways = Pathfinder(opa, compiler, guard, generated)
        self._compiler = compiler
        self._declared = Declared(compiler)
        self._shelf = shelf
        self._record = record
        self._annotate = annotate
        self._generated = generated
        self._reading = reading
        self._readiness = readiness
        self._backoff = backoff or Backoff(longest=5.0)
        self._news = asyncio.Event()
        self._good: Versions | None = None  # None: not read yet
        self._chosen: tuple[Modules, Mapping[ObjectKey, Candidate], Choice] | None = None
        self._way: Way | None = None  # in the present epoch
        self._explained: Choice | None = None  # with what OPA held when it failed
        self._bundle: Bundle | None = None
        self._in_force: Mapping[str, str | None] = {}
        self._offered: str | None = None  # the digest of what was delivered last
        self._told: tuple[str, Reads] | None = None
        self._standing: Standing | None = None  # None: nobody knows, or others are on their way
        self._may_hold: list[Modules] = []  # of each of these OPA may hold some modules

    @property
    def in_force(self) -> Mapping[str, str]:
        """The sources that OPA is known to hold, by id, without what is generated here."""
        return {i: source for i, source in self._in_force.items() if source is not None}

    @property
    def rejected(self) -> Mapping[str, str]:
        """Why a policy is not in force as it is, by its name."""
        failures = self._chosen[2].failures if self._chosen is not None else {}
        return {str(key): str(OpaError(errors=list(causes))) for key, causes in failures.items()}

    @property
    def reads(self) -> Reads | None:
        """What the decision reads by what is in force, None before anything is."""
        return None if self._told is None else self._told[1]

    @property
    def digest(self) -> str:
        """The digest of what is in force, "" before anything is."""
        return "" if self._told is None else self._told[0]

    @property
    def canary(self) -> Canary | None:
        """What decides on the objects of its side, None where nothing but what is in force does."""
        return self._told_canary

    async def claimed(self) -> Callable[[DataPath], bool]:
        """Return what tells whether policies on record are refused where data lies at a place.

        Raises SyncError.
        """
        good = self._good if self._good is not None else await self._record.load()
        declared = Declared(self._compiler)
        await declared.learn(good.values())
        found = (declared[source] for modules in good.values() for source in modules.values())
        packages = [module.package for module in found if module is not None]
        above = await self._ways.by_bundle()  # as the guard has it

        def claims(place: DataPath) -> bool:
            return any(
                package[: len(place)] == place or (above and place[: len(package)] == package)
                for package in packages
            )

        return claims

    def warn(self, warnings: Warnings) -> None:
        """Say on policies what is to be said of their decisions, by the ids of modules."""
        if warnings != self._decided:
            self._decided = warnings
            self._news.set()

    def count(self, counted: Counted | None) -> None:
        """Say what a lane would change, for whoever staged it; None: there is none."""
        self._counted = counted
        self._news.set()

    def count_canary(self, counted: Counted | None) -> None:
        """Say what the canary changes, or would; None: nobody knows."""
        if self._canaries is not None:
            self._canaries.count(counted)
            self._news.set()

    async def opa_ended(self) -> None:
        """Say that OPA has lost all that it held. Never raises SyncError."""
        await self._quarantine.opa_ended()

    def wake(self) -> None:
        """Say that a policy may have changed."""
        self._news.set()

    async def run(self, epoch: Epoch) -> NoReturn:
        """Once the data is loaded, keep OPA's modules equal to the policies."""
        self._told = self._offered = self._standing = self._told_lane = self._counted = None
        self._told_canary = self._told_counting = None
        self._canary_changing = False
        if self._canaries is not None:
            self._canaries.begin()
        self._shelf.withhold()
        self._let_try(None)
        if self._good is not None:
            self._good = self._quarantine.restored(self._good)
        if epoch.data.narrowed:
            await self._foresee(epoch)
        self._readiness.waiting("policies", "they are loaded after the data")
        await epoch.loaded.wait()
        await self._listed(epoch, "the policies are not listed yet")
        self._let_try(epoch.sample)
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
                # There was an answer, or this process ends as it should.
                self._try_later(await self._quarantine.ended())
            self._backoff.progressed()
            await self._news.wait()

    def _let_try(self, sample: TakeSample | None) -> None:
        if self._trial is not None:
            self._trial.begin(sample)
        if self._chosen is not None and self._chosen[2].modules != self._good:
            self._chosen = None  # it was chosen without trial, or what was good is not any more

    async def _listed(self, epoch: Epoch, reason: str) -> None:
        while not epoch.listed:
            self._readiness.waiting("policies", reason)
            self._news.clear()
            await self._news.wait()

    async def _foresee(self, epoch: Epoch) -> None:
        """Find out what will be read, and is by what OPA holds: until then nothing is loaded."""
        await self._listed(epoch, "they are not listed yet, so which fields they read is not known")
        while True:
            try:
                way = await self._find(epoch)
                choice = await self._choose(way, epoch, epoch.policies)
                needs = [await self._need(way, way.held)] if way.held else []
                needs += await self._ahead(way, self._wanted(choice))
            except SyncError as error:
                self._readiness.waiting("policies", str(error))
                await self._backoff.wait(getattr(error, "retry_after", None))
            else:
                epoch.data.begin(needs)
                self._backoff.progressed()
                return
            finally:
                await self._quarantine.ended()

    async def _find(self, epoch: Epoch) -> Way:
        way = await self._ways.find(epoch.namespaces)
        self._may_hold = [way.held]
        return way

    async def _ahead(self, way: Way, modules: Modules) -> list[Need | None]:
        """Return what is needed until these modules are in force."""
        needs = [await self._need(way, {**way.static, **modules})]
        if way.puts is not None:
            # One by one: what is there with some of them is read by no set that was ever wanted.
            before = {source for found in self._may_hold for source in found.values()}
            if not before <= {*way.static.values(), *modules.values()}:
                needs.append(await self._need(way, *self._may_hold, {**way.static, **modules}))
        return needs

    async def _need(self, way: Way, *sets: Modules) -> Need | None:
        """Return what is needed of the data, None where nobody knows."""
        return None if way.opaque else await self._reading.need(*sets)

    def _wanted(self, choice: Choice) -> dict[str, str]:
        wanted = {i: s for modules in choice.modules.values() for i, s in modules.items()}
        return {**wanted, **self._generated}

    async def _reconcile(self, way: Way, epoch: Epoch) -> bool:
        """Take one step; returns whether OPA holds what is chosen."""
        policies = epoch.policies
        choice = await self._choose(way, epoch, policies)
        if choice.failures and choice is not self._explained:
            # They may need what OPA has got from elsewhere since.
            self._way = way = await self._ways.look_again(way)
            choice = self._explained = await self._choose(way, epoch, policies)
        self._tell_faults(epoch, policies, choice)  # whatever becomes of the others
        wanted = self._wanted(choice)
        alike = self._alike(way, wanted)
        narrowed = epoch.data.narrowed
        if not epoch.data.hold(await self._ahead(way, wanted) if narrowed else [None]):
            self._readiness.waiting(
                "policies", "the data lacks what they read, and is listed again"
            )
            return False
        if wanted not in self._may_hold:
            self._may_hold.append(wanted)
        if (offered := digest(wanted)) != self._offered:
            self._offered = offered
            if not alike:
                self._told = self._standing = None
                epoch.changing()
        beside = self._beside(way, epoch, choice)
        staged, need_staged = await self._staged(way, epoch, beside, wanted)
        offer = await self._offer(way, epoch, beside, wanted)
        if offer.waits and not epoch.applied.is_set():
            # It decided before: without it, its objects would go back for a moment.
            self._readiness.waiting("policies", "the data lacks what the canary reads")
            return False
        self._leave_lane(epoch, staged)
        self._leave_canary(epoch, offer)
        modules = {**wanted, **staged, **offer.modules}
        beside_it = epoch.staged if staged or offer.modules else []
        versions = {**choice.modules, **{policy.key: policy.modules for policy in beside_it}}
        self._quarantine.offered(digest(modules), versions)
        delivered = await self._deliver(way, modules, epoch)
        if delivered is None:
            # While OPA fetches them: until it is known what they read no decision is shared.
            await self._reading.need({**way.static, **wanted})
            return False
        in_force, refused = _apart(delivered)
        stood = self._standing is not None
        reads = await self._settle(way, in_force, epoch, [need_staged, offer.need])
        self._note(choice, in_force, reads, epoch, alike=stood)
        await self._record.save(self._good or {})
        withheld = _both(epoch.data.withheld(reads), unread(reads))
        for policy in policies.values():
            await self._tell(policy, choice, in_force, withheld)
        not_staged = {i: error for i, error in refused.items() if i in staged}
        if staged and need_staged is not None and not not_staged:
            self._tell_lane(epoch, staged, need_staged.reads)
        self._enter_canary(epoch, offer, reads, refused)
        said = await self._tell_staged(epoch, beside, staged, not_staged)
        self._tell_objects(self._outcomes(epoch, choice, in_force, said, withheld))
        await self._make_lanes(epoch, beside)
        return True

    def _tell_faults(
        self, epoch: Epoch, policies: Mapping[ObjectKey, Policy], choice: Choice
    ) -> None:
        self._at_fault(_faults({**choice.failures, **unknown(epoch.staged)}))
        metrics.policies_rejected.set(len(choice.failures))
        metrics.policies_quarantined.set(quarantined(choice.failures))
        doubts = {key: self._quarantine.doubts(found.modules) for key, found in policies.items()}
        self._tell_failed(policies, {**doubts, **choice.failures})

    async def _settle(
        self, way: Way, in_force: InForce, epoch: Epoch, lanes: Iterable[Need | None]
    ) -> Reads:
        """Let the data go that nobody needs any more; return what is read by what is in force."""
        known = {i: source for i, source in in_force.modules.items() if source is not None}
        need = await self._reading.need({**way.static, **known})
        reads = need.reads
        if way.opaque or len(known) < len(in_force.modules):
            self._standing = None
            epoch.data.settle(None)
            return reads
        self._may_hold = [known]
        self._standing = Standing({**way.static, **known}, self._packages(known), need)
        for lane in lanes:
            need = need if lane is None else need.joined(lane)
        epoch.data.settle(need)
        return reads

    def _beside(self, way: Way, epoch: Epoch, choice: Choice) -> Beside:
        guard = replace(way.guard, data=[*way.guard.data, *epoch.places()])
        return Beside(choice.modules, way.static, way.opaque, guard)

    async def _staged(
        self, way: Way, epoch: Epoch, beside: Beside, wanted: Modules
    ) -> tuple[Modules, Need | None]:
        """Return the lanes to deliver now, and what is to be held for them.

        They are made, and their data is there, after what is in force is delivered.
        """
        made = self._lanes.made(_beside_it(epoch), beside) if self._lanes is not None else None
        if made is None or not made.modules:
            return {}, None
        together = {**way.static, **wanted, **made.modules}
        need = await self._reading.need(together, lane="shadow")
        return (made.modules if epoch.data.hold([need]) else {}), need

    def _leave_lane(self, epoch: Epoch, modules: Modules) -> None:
        """Tell that a lane ends before OPA may hold another one, or none."""
        if self._told_lane is not None and self._told_lane[0] != digest(modules):
            self._tell_lane(epoch, {}, None)

    def _tell_lane(self, epoch: Epoch, modules: Modules, reads: Reads | None) -> None:
        lane = None if reads is None else (digest(modules), reads)
        if lane != self._told_lane:
            self._told_lane = lane
            epoch.staging(reads)

    async def _make_lanes(self, epoch: Epoch, beside: Beside) -> None:
        """Last of all: what is in force is told of without waiting for what is beside it."""
        if self._lanes is not None and await self._lanes.make(_beside_it(epoch), beside):
            self._news.set()
        if self._canaries is not None and await self._canaries.make(beside):
            self._news.set()
        candidates = self._only_compiled
        # Where there is news, another turn follows.
        idle = not self._news.is_set()
        if candidates is not None and idle and await candidates.make(epoch.candidates, beside):
            self._news.set()
        made = (self._lanes, self._canaries, candidates)
        untried = any(lanes is not None and lanes.untried for lanes in made)
        if untried and self._again is None:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._try_again)

    def _try_later(self, seconds: float | None) -> None:
        """Look again so much later, at those that wait for others; None: there are none."""
        if self._later is not None:
            self._later.cancel()
        self._later = None
        if seconds is not None:
            self._later = asyncio.get_running_loop().call_later(seconds, self._news.set)

    def _try_again(self) -> None:
        self._again = None
        self._news.set()

    async def _tell_staged(
        self, epoch: Epoch, beside: Beside, staged: Modules, refused: Failures
    ) -> dict[ObjectKey, str]:
        """Tell what became of what is staged: ConfigMaps by their status.

        Returns what is said of PlacementPolicies.
        """
        said: dict[ObjectKey, str] = {}
        for policy, status in [*self._statuses(epoch, beside, staged, refused)]:
            if isinstance(policy, PolicyMap):
                await self._write(policy, status)
            else:
                said[policy.key] = status
        return said

    def _statuses(
        self, epoch: Epoch, beside: Beside, staged: Modules, refused: Failures
    ) -> Iterator[tuple[Policy, str]]:
        policies = _beside_it(epoch)
        made = self._lanes.made(policies, beside) if self._lanes is not None else None
        # Without these modules the data lacks what they read, and is listed again.
        if self._lanes is not None and made is not None and (staged or not made.modules):
            why = [*not_put(refused)]
            yield from self._lanes.statuses(policies, beside, self._counted, why)
        if self._only_compiled is not None:
            yield from self._only_compiled.statuses(epoch.candidates, beside)
        if self._canaries is not None:
            yield from self._canaries.statuses(epoch.staged, beside)

    async def _offer(self, way: Way, epoch: Epoch, beside: Beside, wanted: Modules) -> Offer:
        """Return what OPA is to hold for the canary."""
        if self._canaries is None:
            return Offer({})
        self._canaries.look(epoch.staged)
        if not epoch.applied.is_set():
            await self._canaries.make_first(beside)

        async def need(modules: Modules) -> Need:
            together = {**way.static, **wanted, **modules}
            return await self._reading.need(together, lane="canary")

        return await self._canaries.offer(beside, need, lambda need: epoch.data.hold([need]))

    def _leave_canary(self, epoch: Epoch, offer: Offer) -> None:
        """Tell what ends before OPA may hold something else."""
        told = self._told_canary
        if told is not None and offer.canary is None:
            self._told_canary, self._canary_changing = None, False
            epoch.canary(None)
        elif told is not None and offer.canary is not None and offer.canary.policy != told.policy:
            self._canary_changing = True
            epoch.canary_changing()
        counting = self._told_counting
        if counting is not None and (offer.counting is None or offer.counting.of != counting.of):
            self._told_counting = None
            epoch.counting(None)

    def _enter_canary(self, epoch: Epoch, offer: Offer, reads: Reads, refused: Failures) -> None:
        """Once OPA has it: tell what decides, and what is to be counted."""
        if self._canaries is None:
            return
        if self._canaries.delivered(offer, refused):
            self._news.set()
        if refused.keys() & offer.modules.keys():
            return  # the next step takes it out
        if offer.canary != self._told_canary or self._canary_changing:
            self._told_canary, self._canary_changing = offer.canary, False
            epoch.canary(offer.canary)
        counting = offer.counting
        if counting is not None:
            counting = replace(counting, reads=joined(reads, counting.reads))
        if counting != self._told_counting:
            self._told_counting = counting
            epoch.counting(counting)

    async def _choose(self, way: Way, epoch: Epoch, policies: Mapping[ObjectKey, Policy]) -> Choice:
        guard = replace(way.guard, data=[*way.guard.data, *epoch.places()])
        if self._good is None:
            self._good = await self._record.load()
        versions = {key: policy.modules for key, policy in policies.items()}
        staged = {p.key: p.modules for p in (*epoch.staged, *epoch.candidates)}
        await self._quarantine.begin({**staged, **versions}, self._good)
        await self._declared.learn([self._generated, *versions.values(), *self._good.values()])
        candidates = self._candidates(guard, policies)
        if self._chosen is not None and self._chosen[:2] == (way.static, candidates):
            return self._chosen[2]

        async def check(modules: Modules) -> list[Cause]:
            together = {**way.static, **self._generated, **modules}
            given = way.guard.own_builtins
            if self._trial is None or self._is_tried(modules, together):
                causes = await self._compiler.check(together, given)
            else:
                causes = await self._trial.check(together, given)
            new = {*modules.values()} - known
            if causes or not any(map(may_nest_deeply, new)):
                return causes
            return await self._reading.show(together)

        good = {k: m for k, m in self._good.items() if not self._refusals(guard, m)}
        known = {source for found in good.values() for source in found.values()}
        # Before anything decides all is found out: nobody decides by a part of what is wanted.
        choice = await choose(
            candidates, good, check, lambda: epoch.applied.is_set() and self._news.is_set()
        )
        if choice.put_off:
            choice.failures |= self._quarantine.put_off(choice.put_off, versions)
        if self._quarantine.judge(choice.failures, versions):
            asyncio.get_running_loop().call_later(EXPENSIVE_SECONDS, self._news.set)
        self._chosen = way.static, self._candidates(guard, policies), choice
        for key, causes in choice.failures.items():
            metrics.policy_loads.labels("rejected").inc()
            log.warning("policy_rejected", policy=str(key), error=str(OpaError(errors=causes)))
        return choice

    def _is_tried(self, modules: Modules, together: Modules) -> bool:
        """Tell whether these decided before, or decide as what is in force does."""
        good = {item for found in (self._good or {}).values() for item in found.items()}
        packages = self._packages({**self._generated, **modules})
        return modules.items() <= good or (
            self._standing is not None and self._standing.decides_as(together, packages)
        )

    def _candidates(
        self, guard: Guard, policies: Mapping[ObjectKey, Policy]
    ) -> dict[ObjectKey, Candidate]:
        return {
            key: Candidate(policy.modules, policy.born, self._objections(guard, policy))
            for key, policy in policies.items()
        }

    def _objections(self, guard: Guard, policy: Policy) -> tuple[Cause, ...]:
        return (
            unreadable(policy)
            or self._quarantine.objection(policy.modules)
            or self._refusals(guard, policy.modules)
        )

    def _refusals(self, guard: Guard, modules: Modules) -> tuple[Cause, ...]:
        return tuple(
            forbidden(policy_id, finding)
            for policy_id, source in modules.items()
            if (found := self._declared[source]) is not None
            for finding in guard.findings(found)
        )

    async def _deliver(self, way: Way, modules: Modules, epoch: Epoch) -> InForce | None:
        """Return what is in force, None while OPA has not come for it: then it wakes us."""
        if way.puts is not None:
            return await way.puts.deliver(modules)
        if self._bundle is None or self._bundle.revision != digest(modules):
            self._bundle = build(modules, self._packages(modules))
        if not self._shelf.publish(self._bundle, epoch.stands, self._complain):
            self._readiness.waiting("policies", "OPA has not fetched and activated them yet")
            return None
        return InForce(modules, {})

    def _packages(self, modules: Modules) -> dict[str, DataPath]:
        lanes: dict[str, DataPath] = {i: (ROOT,) for i in modules if is_of_a_lane(i)}
        found = {i: self._declared[source] for i, source in modules.items() if i not in lanes}
        return lanes | {i: module.package for i, module in found.items() if module}

    def _complain(self, reason: str) -> None:
        self._readiness.waiting("policies", reason)
        log.warning("policies_not_activated", reason=reason)

    def _alike(self, way: Way, wanted: Modules) -> bool:
        """Tell whether all decisions stay as they are, and remember it for what they read."""
        standing, modules = self._standing, {**way.static, **wanted}
        # The first policy, and the last one, are more than an edit: without any nobody decides.
        several = self.in_force and wanted.keys() - self._generated.keys()
        if standing is None or way.opaque or not several:
            return False
        if alike := standing.decides_as(modules, self._packages(wanted)):
            self._reading.remember(modules, standing.need)
        return alike

    def _note(
        self, choice: Choice, in_force: InForce, reads: Reads, epoch: Epoch, *, alike: bool
    ) -> None:
        """Remember what is good, and tell what is in force if that is news."""
        before = self._good or {}
        self._good = {
            key: before.get(key, {}) if modules.keys() & in_force.failures.keys() else modules
            for key, modules in choice.modules.items()
        }
        modules = {i: s for i, s in in_force.modules.items() if i not in self._generated}
        new = modules.items() - self._in_force.items()
        metrics.policy_loads.labels("loaded").inc(len(new))
        self._in_force = modules
        metrics.policies_rejected.set(len(choice.failures.keys() | _not_taken(choice, in_force)))
        metrics.policies_in_force.set(len(modules))
        if (told := (digest(modules), reads)) != self._told:
            same = alike and self._told is not None and self._told[1] == reads
            self._told = told
            (epoch.renamed if same else epoch.changed)(told[0], len(modules), reads)

    async def _tell(
        self, policy: Policy, choice: Choice, in_force: InForce, withheld: Warnings
    ) -> None:
        if isinstance(policy, PlacementPolicy):
            return  # told with all of its kind, once it is known what became of the staged ones
        causes = [*choice.failures.get(policy.key, ()), *not_put(_of(policy, in_force))]
        rivals = choice.conflicts.get(policy.key, ())
        held, warnings = self._is_held(policy), self._warnings(policy, withheld)
        await self._write(policy, account(causes, rivals, in_force=held, warnings=warnings))

    async def _write(self, policy: PolicyMap, status: str) -> None:
        if policy.status == status:
            return
        try:
            await self._annotate(policy, status)
        except SyncError as error:
            # The status is news for people; it never steers nor delays what is in force. A
            # conflict means that the ConfigMap changed: its next version gets a status of its own.
            log.warning("policy_status_not_written", policy=str(policy.key), error=str(error))

    def _outcomes(
        self,
        epoch: Epoch,
        choice: Choice,
        in_force: InForce,
        said: Mapping[ObjectKey, str],
        withheld: Warnings,
    ) -> Told:
        for policy in (policy for objects in epoch.objects for policy in objects):
            causes = tuple(choice.failures.get(policy.key, ()))
            refused = tuple(not_put(_of(policy, in_force)))
            rivals = frozenset(choice.conflicts.get(policy.key, ()))
            warnings = self._warnings(policy, withheld)
            yield policy, Outcome(causes, refused, rivals, self._is_held(policy), warnings)
        for policy in (policy for objects in epoch.objects for policy in objects.staged):
            yield policy, Tried(said[policy.key]) if policy.key in said else None

    def _is_held(self, policy: Policy) -> bool:
        return bool((self._good or {}).get(policy.key))

    def _warnings(self, policy: Policy, withheld: Warnings) -> tuple[str, ...]:
        doubts = (cause["message"] for cause in self._quarantine.doubts(policy.modules))
        found = (
            text
            for i in sorted(policy.modules)
            for text in (*withheld.get(i, ()), *self._decided.get(i, ()))
        )
        return (*found, *doubts)


def _both(some: Warnings, others: Warnings) -> Warnings:
    return {i: [*some.get(i, ()), *others.get(i, ())] for i in {**some, **others}}


def _faults(failures: Mapping[ObjectKey, Sequence[Cause]]) -> str | None:
    if not failures:
        return None
    first = min(failures, key=str)
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    error = str(OpaError(errors=list(failures[first])))
    return f"policy {called(first)}: not in force as it is: {error:.{_FAULT_CHARACTERS}}{more}"


def _apart(delivered: InForce) -> tuple[InForce, Failures]:
    """Return what is in force without the lanes beside it, and what OPA refuses of these."""
    modules = {i: source for i, source in delivered.modules.items() if not is_of_a_lane(i)}
    failures = {i: error for i, error in delivered.failures.items() if not is_of_a_lane(i)}
    refused = {i: e for i, e in delivered.failures.items() if i not in failures}
    return InForce(modules, failures), refused


def _beside_it(epoch: Epoch) -> list[Policy]:
    """Return what is staged beside what is in force, canaries being no part of that."""
    return [policy for policy in epoch.staged if policy.stage != CANARY]


def _not_taken(choice: Choice, in_force: InForce) -> set[ObjectKey]:
    failed = in_force.failures.keys()
    return {key for key, modules in choice.modules.items() if modules.keys() & failed}


def _of(policy: Policy, in_force: InForce) -> Failures:
    return {i: error for i, error in in_force.failures.items() if i in policy.modules}
