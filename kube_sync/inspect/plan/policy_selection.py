"""Determines which policies would be in force, by the replicator's own selection.

Invariant: the evaluated policies compile as one set, and pass all checks of modules.
A candidate with a fault, or that causes one in another policy, ends the plan; a policy that does
not compile now has its last good version, else is left out of both sides, and noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from kube_sync.config import TOPOLOGY, Settings
from kube_sync.errors import Broken
from kube_sync.inspect.plan.candidates import EditedPolicies
from kube_sync.inspect.plan.offline_opa import common_modules
from kube_sync.kube.policynames import called
from kube_sync.objects import ObjectKey
from kube_sync.opa.inspection import forbidden
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Cause, Modules, line_of
from kube_sync.policies.builtin import built_in, packages
from kube_sync.policies.delivery import Compiler
from kube_sync.policies.guard import Declared, Guard
from kube_sync.policies.set_compiler import Candidate, Choice, Versions, choose


@dataclass(frozen=True, slots=True)
class Policies:
    """The modules in force beside the generated ones, and the policies that are left out."""

    modules: Modules
    notes: tuple[str, ...] = ()


class PolicySelector:
    """Compiles and inspects sets of policies beside the `generated` modules."""

    def __init__(
        self, compiler: Compiler, guard: Guard, generated: Modules, created: Mapping[ObjectKey, str]
    ) -> None:
        """Of two ConfigMaps the newer one yields, by the times in `created`."""
        self._compiler = compiler
        self._guard = guard
        self._generated = generated
        self._created = created
        self._declared = Declared(compiler)

    @classmethod
    def of(
        cls,
        settings: Settings,
        compiler: Compiler,
        places: Iterable[DataPath] = (),
        created: Mapping[ObjectKey, str] | None = None,
    ) -> Self:
        """Create one by the configuration of the replicator; `places` hold data as well."""
        replicate, allow, builtin = settings.replicate, settings.policies.allow, built_in(settings)
        names = [resource.name for resource in replicate.resources]
        names += [TOPOLOGY] * replicate.topology
        guard = Guard(
            [*((replicate.root, name) for name in names), *places],
            frozenset(allow.packages),
            frozenset(allow.builtins),
            builtin=packages(builtin),
        )
        return cls(compiler, guard, common_modules(settings), created or {})

    async def select_current(
        self, policies: Mapping[ObjectKey, Modules], good: Versions
    ) -> tuple[Policies, Choice]:
        """Return the policies in force now, with last good versions. Raises SyncError."""
        choice = await self._choose(policies, good)
        notes = [
            f"policy {called(key)} is not in force as it is{_replacement_text(key, choice)}: {line}"
            for key, causes in sorted(choice.failures.items())
            for line in lines(causes, {})[:1]
        ]
        gone = sorted(choice.modules.keys() - policies.keys())
        notes += [f"policy {called(key)} is gone and in force: others need it" for key in gone]
        return Policies(_all_modules(choice), tuple(notes)), choice

    async def select_with(self, edited: EditedPolicies, current: Choice) -> Policies:
        """Return what would be in force. Raises Broken with all faults, and SyncError."""
        choice = await self._choose(edited.policies, current.modules)
        new_failures = {
            key: causes
            for key, causes in choice.failures.items()
            if key in edited.changed or key not in current.failures
        }
        if new_failures:
            found = (
                line
                for _, causes in sorted(new_failures.items())
                for line in lines(causes, edited.names)
            )
            raise Broken(dict.fromkeys(found))
        return Policies(_all_modules(choice))

    async def _choose(self, policies: Mapping[ObjectKey, Modules], good: Versions) -> Choice:
        await self._declared.learn([self._generated, *policies.values(), *good.values()])
        allowed = {key: modules for key, modules in good.items() if not self._refusals(modules)}
        candidates = {
            key: Candidate(modules, self._created.get(key, "9"), self._refusals(modules))
            for key, modules in policies.items()
        }
        return await choose(candidates, allowed, self._check)

    async def _check(self, modules: Modules) -> list[Cause]:
        return await self._compiler.check({**self._generated, **modules})

    def _refusals(self, modules: Modules) -> tuple[Cause, ...]:
        return tuple(
            forbidden(policy_id, finding)
            for policy_id, source in modules.items()
            if (found := self._declared[source]) is not None
            for finding in self._guard.findings(found)
        )


def lines(causes: Iterable[Cause], names: Mapping[str, str]) -> list[str]:
    """Return a line for each cause: file, row, and OPA's message."""
    return [line_of(cause, names) for cause in causes]


def _replacement_text(key: ObjectKey, choice: Choice) -> str:
    return ", but its last good version" if key in choice.modules else " and left out"


def _all_modules(choice: Choice) -> dict[str, str]:
    return {i: source for modules in choice.modules.values() for i, source in modules.items()}
