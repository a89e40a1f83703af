"""Policy ConfigMaps into OPA, and the outcome back to whoever wrote them.

Keeps true: OPA only ever gets sets that compile, once its data is loaded and has what they read,
which is let go when nothing that may be in force reads it; a ConfigMap that is at
fault falls back to its last good version, delays no other, and says why on itself; a module whose
key or ConfigMap is gone is unloaded. Reconciling an unchanged world writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol

import structlog

from kube_sync.analysis.reads import Reads
from kube_sync.errors import SyncError
from kube_sync.kube.policymaps import PolicyMap, PolicyMaps
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaError
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Cause, Modules
from kube_sync.replicator.extent import Need
from kube_sync.replicator.policies.account import account, forbidden
from kube_sync.replicator.policies.bundle import Bundle, build, digest
from kube_sync.replicator.policies.choice import Candidate, Choice, Versions, choose
from kube_sync.replicator.policies.guard import Guard
from kube_sync.replicator.policies.header import Declared
from kube_sync.replicator.policies.puts import InForce
from kube_sync.replicator.policies.reading import Reading
from kube_sync.replicator.policies.shelf import Shelf, Stands
from kube_sync.replicator.policies.standing import Standing
from kube_sync.replicator.policies.way import Compiler, Pathfinder, PolicyApi, Way
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_ONE_BY_ONE = (
    "OPA took it neither before nor after the others; modules that need each other in a circle can"
    " only be loaded as a bundle (configure OPA to fetch one from the replicator)"
)


_FAULT_CHARACTERS = 300


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


# Told the digest of the modules in force, how many they are, and what the decision reads.
Changed = Callable[[str, int, Reads], None]
Annotate = Callable[[PolicyMap, str], Awaitable[None]]


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

    @property
    def policies(self) -> dict[ObjectKey, PolicyMap]:
        """The policy ConfigMaps as they are now."""
        return {policy.key: policy for found in self.maps for policy in found}


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
    ) -> None:
        """Take the `generated` modules, which are part of every set.

        `at_fault` is told which policies are not in force as they are, None: all are.
        """
        self._at_fault = at_fault
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
        """Why a policy ConfigMap is not in force as it is, by its name."""
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

    def wake(self) -> None:
        """Say that a policy ConfigMap may have changed."""
        self._news.set()

    async def run(self, epoch: Epoch) -> NoReturn:
        """Once the data is loaded, keep OPA's modules equal to the ConfigMaps."""
        self._told = self._offered = self._standing = None
        self._shelf.withhold()
        if epoch.data.narrowed:
            await self._foresee(epoch)
        self._readiness.waiting("policies", "they are loaded after the data")
        await epoch.loaded.wait()
        await self._listed(epoch, "the policy ConfigMaps are not listed yet")
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
            self._backoff.progressed()
            await self._news.wait()

    async def _listed(self, epoch: Epoch, reason: str) -> None:
        while not all(found.listed for found in epoch.maps):
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

    async def _find(self, epoch: Epoch) -> Way:
        way = await self._ways.find([found.namespace for found in epoch.maps])
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
        self._at_fault(_faults(choice.failures))  # whatever becomes of the others
        metrics.policies_rejected.set(len(choice.failures))
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
        in_force = await self._deliver(way, wanted, epoch)
        if in_force is None:
            # While OPA fetches them: until it is known what they read no decision is shared.
            await self._reading.need({**way.static, **wanted})
            return False
        known = {i: source for i, source in in_force.modules.items() if source is not None}
        need = await self._reading.need({**way.static, **known})
        stood = self._standing is not None
        if way.opaque or len(known) < len(in_force.modules):
            self._standing = None
            epoch.data.settle(None)
        else:
            self._may_hold = [known]
            self._standing = Standing({**way.static, **known}, self._packages(known), need)
            epoch.data.settle(need)
        self._note(choice, in_force, need.reads, epoch, alike=stood)
        await self._record.save(self._good or {})
        for policy in policies.values():
            await self._tell(policy, choice, in_force)
        return True

    async def _choose(
        self, way: Way, epoch: Epoch, policies: Mapping[ObjectKey, PolicyMap]
    ) -> Choice:
        guard = replace(way.guard, data=[*way.guard.data, *epoch.places()])
        if self._good is None:
            self._good = await self._record.load()
        versions = [p.modules for p in policies.values()]
        await self._declared.learn([self._generated, *versions, *self._good.values()])
        candidates = {
            key: Candidate(policy.modules, policy.born, self._refusals(guard, policy.modules))
            for key, policy in policies.items()
        }
        if self._chosen is not None and self._chosen[:2] == (way.static, candidates):
            return self._chosen[2]

        async def check(modules: Modules) -> list[Cause]:
            return await self._compiler.check({**way.static, **self._generated, **modules})

        good = {k: m for k, m in self._good.items() if not self._refusals(guard, m)}
        choice = await choose(candidates, good, check)
        self._chosen = way.static, candidates, choice
        for key, causes in choice.failures.items():
            metrics.policy_loads.labels("rejected").inc()
            log.warning("policy_rejected", policy=str(key), error=str(OpaError(errors=causes)))
        return choice

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
        found = {policy_id: self._declared[source] for policy_id, source in modules.items()}
        return {policy_id: module.package for policy_id, module in found.items() if module}

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

    async def _tell(self, policy: PolicyMap, choice: Choice, in_force: InForce) -> None:
        failures = {i: e for i, e in in_force.failures.items() if i in policy.modules}
        causes = [*choice.failures.get(policy.key, ()), *_not_put(failures)]
        held = bool((self._good or {}).get(policy.key))
        status = account(causes, choice.conflicts.get(policy.key, ()), in_force=held)
        if policy.status == status:
            return
        try:
            await self._annotate(policy, status)
        except SyncError as error:
            # The status is news for people; it never steers nor delays what is in force. A
            # conflict means that the ConfigMap changed: its next version gets a status of its own.
            log.warning("policy_status_not_written", policy=str(policy.key), error=str(error))


def _faults(failures: Mapping[ObjectKey, Sequence[Cause]]) -> str | None:
    if not failures:
        return None
    first = min(failures, key=str)
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    error = str(OpaError(errors=list(failures[first])))
    return f"policy ConfigMap {first}: not in force as it is: {error:.{_FAULT_CHARACTERS}}{more}"


def _not_taken(choice: Choice, in_force: InForce) -> set[ObjectKey]:
    failed = in_force.failures.keys()
    return {key for key, modules in choice.modules.items() if modules.keys() & failed}


def _not_put(failures: Mapping[str, OpaError]) -> Iterable[Cause]:
    """Yield why OPA did not take modules that compile together."""
    for policy_id, error in failures.items():
        yield from error.errors or [{"code": error.code, "message": error.message}]
        if error.code != "unauthorized":
            yield {
                "code": "one_by_one",
                "message": _ONE_BY_ONE,
                "location": {"file": policy_id},
            }
