"""Policy ConfigMaps into OPA, and the outcome back to whoever wrote them.

Keeps true: OPA only ever gets sets that compile, once its data is loaded; a ConfigMap that is at
fault falls back to its last good version, delays no other, and says why on itself; a module whose
key or ConfigMap is gone is unloaded. Reconciling an unchanged world writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol

import structlog

from kube_sync.errors import SyncError
from kube_sync.kube.policymaps import PolicyMap, PolicyMaps
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import LoadedPolicy, OpaError
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Cause, Inspected, Modules
from kube_sync.replicator.policies.account import account, forbidden
from kube_sync.replicator.policies.bundle import Bundle, build, digest
from kube_sync.replicator.policies.choice import Candidate, Choice, Versions, choose
from kube_sync.replicator.policies.guard import Guard, suspects
from kube_sync.replicator.policies.header import plain_package
from kube_sync.replicator.policies.puts import InForce, PutApi, Puts
from kube_sync.replicator.policies.shelf import RESOURCE, Shelf, Stands
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_ONE_BY_ONE = (
    "OPA took it neither before nor after the others; modules that need each other in a circle can"
    " only be loaded as a bundle (configure OPA to fetch one from the replicator)"
)


class PolicyApi(PutApi, Protocol):
    """The part of OPA that holds policies."""

    async def policies(self) -> list[LoadedPolicy]:
        """Return all modules."""
        ...

    async def bundle_from(self, resource: str) -> str | None:
        """Return the name of the bundle that OPA fetches from here, if it does."""
        ...


class Compiler(Protocol):
    """The scratch OPA."""

    async def check(self, modules: Modules) -> list[Cause]:
        """Compile all together."""
        ...

    async def inspect(self, sources: Modules, suspects: Iterable[str]) -> dict[str, Inspected]:
        """Return what modules say of themselves."""
        ...


class Record(Protocol):
    """Where last good versions outlive this process."""

    async def load(self) -> dict[ObjectKey, Modules]:
        """Return them."""
        ...

    async def save(self, good: Versions) -> None:
        """Keep them."""
        ...


# Told the digest of the modules in force, and how many they are.
Changed = Callable[[str, int], None]
Annotate = Callable[[PolicyMap, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Epoch:
    """One load of OPA, as far as policies are concerned."""

    maps: Sequence[PolicyMaps]
    loaded: asyncio.Event  # the data is there
    applied: asyncio.Event  # set when the policies are, for the first time
    changed: Changed
    stands: Stands
    places: Callable[[], Sequence[DataPath]]  # where data lies beside that of the guard


@dataclass(frozen=True, slots=True)
class _Way:
    """How modules get into this OPA, and what is there already."""

    guard: Guard
    static: Modules
    puts: Puts | None  # None: by bundle
    bundle: str | None


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
        readiness: Readiness,
        *,
        backoff: Backoff | None = None,
    ) -> None:
        """Take the `generated` modules, which are part of every set."""
        self._opa = opa
        self._compiler = compiler
        self._shelf = shelf
        self._record = record
        self._annotate = annotate
        self._guard = guard
        self._generated = generated
        self._readiness = readiness
        self._backoff = backoff or Backoff(longest=5.0)
        self._news = asyncio.Event()
        self._inspected: dict[str, Inspected | None] = {}  # by source; None: does not parse
        self._good: Versions | None = None  # None: not read yet
        self._chosen: tuple[Modules, Mapping[ObjectKey, Candidate], Choice] | None = None
        self._way: _Way | None = None  # in the present epoch
        self._explained: Choice | None = None  # with what OPA held when it failed
        self._bundle: Bundle | None = None
        self._in_force: Mapping[str, str | None] = {}
        self._told: str | None = None

    def wake(self) -> None:
        """Say that a policy ConfigMap may have changed."""
        self._news.set()

    async def run(self, epoch: Epoch) -> NoReturn:
        """Once the data is loaded, keep OPA's modules equal to the ConfigMaps."""
        self._told = None
        self._shelf.withhold()
        self._readiness.waiting("policies", "they are loaded after the data")
        await epoch.loaded.wait()
        while not all(found.listed for found in epoch.maps):
            self._readiness.waiting("policies", "the policy ConfigMaps are not listed yet")
            self._news.clear()
            await self._news.wait()
        self._way = None
        while True:
            self._news.clear()
            try:
                if self._way is None:
                    self._way = await self._find_way([found.namespace for found in epoch.maps])
                if await self._reconcile(self._way, epoch):
                    self._readiness.met("policies")
                    epoch.applied.set()
            except SyncError as error:
                self._readiness.waiting("policies", str(error))
                await self._backoff.wait(getattr(error, "retry_after", None))
                continue
            self._backoff.progressed()
            await self._news.wait()

    async def _find_way(self, namespaces: Sequence[str]) -> _Way:
        """Learn how OPA gets its policies, and what it holds that did not come from here."""
        bundle = await self._opa.bundle_from(RESOURCE)
        held = await self._opa.policies()
        puts = None
        if bundle is None:
            puts = Puts(self._opa, namespaces)
            await puts.adopt(held)
        log.info("policies_go_by", way="put" if puts else "bundle")
        return await self._way_beside(bundle, puts, held)

    async def _way_beside(
        self, bundle: str | None, puts: Puts | None, held: Iterable[LoadedPolicy]
    ) -> _Way:
        """Take into account what OPA got from elsewhere."""
        ours = puts.is_ours if puts else lambda policy_id: policy_id.startswith(f"{bundle}/")
        own = [found for found in held if not ours(found.id)]
        static = {f"static/{found.id}": found.raw for found in own}
        if causes := await self._compiler.check({**static, **self._generated}):
            # They are in force all the same: OPA may run with options that we do not know.
            log.warning("own_policies_do_not_compile", error=str(OpaError(errors=causes)))
            static = {}
        packages = sorted({found.package for found in own})
        guard = replace(self._guard, own=packages, by_bundle=puts is None)
        return _Way(guard, static, puts, bundle)

    async def _reconcile(self, way: _Way, epoch: Epoch) -> bool:
        """Take one step; returns whether OPA holds what is chosen."""
        policies = {policy.key: policy for found in epoch.maps for policy in found}
        choice = await self._choose(way, epoch, policies)
        if choice.failures and choice is not self._explained:
            # They may need what OPA has got from elsewhere since.
            self._way = way = await self._way_beside(
                way.bundle, way.puts, await self._opa.policies()
            )
            choice = self._explained = await self._choose(way, epoch, policies)
        wanted = {i: s for modules in choice.modules.values() for i, s in modules.items()}
        in_force = await self._deliver(way, {**wanted, **self._generated}, epoch)
        if in_force is None:
            return False
        self._note(choice, in_force, epoch.changed)
        await self._record.save(self._good or {})
        for policy in policies.values():
            await self._tell(policy, choice, in_force)
        return True

    async def _choose(
        self, way: _Way, epoch: Epoch, policies: Mapping[ObjectKey, PolicyMap]
    ) -> Choice:
        guard = replace(way.guard, data=[*way.guard.data, *epoch.places()])
        if self._good is None:
            self._good = await self._record.load()
        await self._inspect([p.modules for p in policies.values()], self._good.values())
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

    async def _inspect(self, *versions: Iterable[Modules]) -> None:
        """Learn what every module says of itself; forget those that went."""
        every = [self._generated, *(modules for found in versions for modules in found)]
        sources = {source for modules in every for source in modules.values()}
        self._inspected = {s: found for s, found in self._inspected.items() if s in sources}
        new = {str(index): s for index, s in enumerate(sources - self._inspected.keys())}
        doubtful = set(suspects(new))
        for index, source in new.items():
            package = plain_package(source)
            if package is None:
                doubtful.add(index)
            elif index not in doubtful:
                self._inspected[source] = Inspected(package)
        if doubtful:
            asked = {index: new[index] for index in doubtful}
            found = await self._compiler.inspect(asked, suspects(asked))
            self._inspected |= {source: found.get(index) for index, source in asked.items()}

    def _refusals(self, guard: Guard, modules: Modules) -> tuple[Cause, ...]:
        return tuple(
            forbidden(policy_id, finding)
            for policy_id, source in modules.items()
            if (found := self._inspected[source]) is not None
            for finding in guard.findings(found)
        )

    async def _deliver(self, way: _Way, modules: Modules, epoch: Epoch) -> InForce | None:
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
        found = {policy_id: self._inspected[source] for policy_id, source in modules.items()}
        return {policy_id: module.package for policy_id, module in found.items() if module}

    def _complain(self, reason: str) -> None:
        self._readiness.waiting("policies", reason)
        log.warning("policies_not_activated", reason=reason)

    def _note(self, choice: Choice, in_force: InForce, changed: Changed) -> None:
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
        metrics.policies_in_force.set(len(modules))
        if (told := digest(modules)) != self._told:
            self._told = told
            changed(told, len(modules))

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
