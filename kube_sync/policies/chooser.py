"""Chooses the version of each policy to put in force, and remembers the last good ones.

Invariant: the chosen versions compile together, with OPA's own modules too. A policy at fault falls
back to its last good version, and delays no other. Modules that have been in force are not tried
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import structlog

from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.client import OpaError
from kube_sync.opa.inspection import EXPENSIVE_SECONDS, forbidden, may_nest_deeply
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Cause, Modules
from kube_sync.policies.delivery import Compiler, Delivery
from kube_sync.policies.epoch import Epoch
from kube_sync.policies.guard import Declared, Guard
from kube_sync.policies.loaded_policies import Loaded
from kube_sync.policies.placementpolicy_status import Policy, unreadable
from kube_sync.policies.policy_api import Delivered
from kube_sync.policies.quarantine import Quarantine
from kube_sync.policies.reading import Reading
from kube_sync.policies.set_compiler import Candidate, Choice, Versions, choose
from kube_sync.policies.trial_run import TakeSample, Trial

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Record(Protocol):
    """Stores last good versions beyond the life of this process."""

    async def load(self) -> dict[ObjectKey, Modules]:
        """Return the stored versions."""

    async def save(self, good: Versions) -> None:
        """Store these versions."""


class Chooser:
    """Holds the last choice, and the last good versions."""

    def __init__(
        self,
        compiler: Compiler,
        declared: Declared,
        loaded: Loaded,
        reading: Reading,
        generated: Modules,
        *,
        record: Record,
        quarantine: Quarantine,
        trial: Trial | None,
        news: asyncio.Event,
    ) -> None:
        """Take the parts; `generated` modules are part of every set.

        Without `trial` policies are compiled, and not tried. `news` is set when a postponed policy
        can be tried.
        """
        self._compiler = compiler
        self._declared = declared
        self._loaded = loaded
        self._reading = reading
        self._generated = generated
        self._record = record
        self._quarantine = quarantine
        self._trial = trial
        self._news = news
        self._good: Versions | None = None  # None: not loaded yet
        self._chosen: tuple[Modules, Mapping[ObjectKey, Candidate], Choice] | None = None

    @property
    def rejected(self) -> Mapping[str, str]:
        """Errors of the policies that are not in force in their newest version, by name."""
        failures = self._chosen[2].failures if self._chosen is not None else {}
        return {str(key): str(OpaError(errors=list(causes))) for key, causes in failures.items()}

    @property
    def good(self) -> Versions:
        """The last good version of each policy."""
        return self._good or {}

    def begin(self) -> None:
        """Drop versions that are quarantined since OPA restarted."""
        self.let_try(None)
        if self._good is not None:
            self._good = self._quarantine.restored(self._good)

    def end(self) -> None:
        """Release the data of an epoch: a sampler refers to all that is known of it."""
        if self._trial is not None:
            self._trial.begin(None)

    def let_try(self, sample: TakeSample | None) -> None:
        """Try policies on a sample of the data from now on; None: there is no data yet."""
        if self._trial is not None:
            self._trial.begin(sample)
        if self._chosen is not None and self._chosen[2].modules != self._good:
            self._chosen = None  # it was chosen without a trial, or the good versions have changed

    def wanted(self, choice: Choice) -> dict[str, str]:
        """Return all modules of a choice."""
        wanted = {i: s for modules in choice.modules.values() for i, s in modules.items()}
        return {**wanted, **self._generated}

    async def choose(
        self, way: Delivery, epoch: Epoch, policies: Mapping[ObjectKey, Policy]
    ) -> Choice:
        """Return the versions to put in force. Raises SyncError."""
        guard = epoch.guard(way.guard)
        if self._good is None:
            self._good = await self._record.load()
        versions = {key: policy.modules for key, policy in policies.items()}
        staged = {p.key: p.modules for p in (*epoch.staged, *epoch.candidates)}
        await self._quarantine.begin({**staged, **versions}, self._good)
        await self._declared.learn([self._generated, *versions.values(), *self._good.values()])
        candidates = self._candidates(guard, policies)
        if self._chosen is not None and self._chosen[:2] == (way.static, candidates):
            return self._chosen[2]
        good = {k: m for k, m in self._good.items() if not self._refusals(guard, m)}
        # Before the first decision all is tried: no decision by part of the wanted set.
        choice = await choose(
            candidates,
            good,
            self._check(way, good),
            lambda: epoch.applied.is_set() and self._news.is_set(),
        )
        if choice.put_off:
            choice.failures |= self._quarantine.put_off(choice.put_off, versions)
        if self._quarantine.judge(choice.failures, versions):
            asyncio.get_running_loop().call_later(EXPENSIVE_SECONDS, self._news.set)
        self._chosen = way.static, self._candidates(guard, policies), choice
        _log(choice.failures)
        return choice

    def note(self, choice: Choice, in_force: Delivered) -> None:
        """Take the versions that OPA accepted as good."""
        before = self.good
        self._good = {
            key: before.get(key, {}) if modules.keys() & in_force.failures.keys() else modules
            for key, modules in choice.modules.items()
        }

    async def save(self) -> None:
        """Store the good versions. Raises SyncError."""
        await self._record.save(self.good)

    async def claimed(self, *, by_bundle: bool) -> Callable[[DataPath], bool]:
        """Return a predicate: whether OPA rejects recorded policies if data lies at a path.

        Raises SyncError.
        """
        good = self._good if self._good is not None else await self._record.load()
        declared = Declared(self._compiler)
        await declared.learn(good.values())
        found = (declared[source] for modules in good.values() for source in modules.values())
        packages = [module.package for module in found if module is not None]

        def claims(place: DataPath) -> bool:
            return any(
                package[: len(place)] == place or (by_bundle and place[: len(package)] == package)
                for package in packages
            )

        return claims

    def _check(self, way: Delivery, good: Versions) -> Callable[[Modules], Awaitable[list[Cause]]]:
        known = {source for found in good.values() for source in found.values()}

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

        return check

    def _is_tried(self, modules: Modules, together: Modules) -> bool:
        """Return whether these have been in force, or decide like the modules in force."""
        good = {item for found in self.good.values() for item in found.items()}
        return modules.items() <= good or self._loaded.decides_as(modules, together)

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


def _log(failures: Mapping[ObjectKey, Sequence[Cause]]) -> None:
    for key, causes in failures.items():
        metrics.policy_loads.labels("rejected").inc()
        log.warning("policy_rejected", policy=str(key), error=str(OpaError(errors=list(causes))))
