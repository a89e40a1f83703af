"""The policies that decide in a replay: the recorded ones, with candidates in their places.

Invariant: a candidate takes the same place as in a plan, in each recorded set of
policies; all others stay as they were recorded. The newest set has to
compile with the candidates in it, or there is no replay; decisions of an older set that does not
are not evaluated again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kube_sync.errors import Broken
from kube_sync.inspect.plan.candidates import Candidates, put
from kube_sync.inspect.plan.policy_selection import lines
from kube_sync.inspect.replay.recorded import Unknown
from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import Cause, Modules


class RecordedPolicies(Protocol):
    """The policies that were in force."""

    def modules(self, policy: str) -> Modules:
        """Return the policies of a digest. Raises Unknown if one of them is not recorded."""


class Compiler(Protocol):
    """Checks whether modules compile."""

    async def check(self, modules: Modules) -> list[Cause]:
        """Return the errors, none if they compile."""


class Deciders:
    """The sets of policies of one replay, by the digests of the recorded ones."""

    def __init__(
        self,
        recorded: RecordedPolicies,
        compiler: Compiler,
        builtin: Modules,
        candidates: Candidates,
    ) -> None:
        """Without `candidates` each set is as recorded; `builtin` is in all of them."""
        self._recorded = recorded
        self._compiler = compiler
        self._builtin = builtin
        self._candidates = candidates
        self._known: dict[str, Modules | str] = {}  # or why there are none

    @property
    def has_candidates(self) -> bool:
        """Whether other policies decide than the recorded ones."""
        return bool(self._candidates)

    def name_of(self, policy: str) -> str:
        """Return the name of a set: candidates that replace all policies make all sets one."""
        return "" if self._candidates.instead else policy

    async def check(self, policies: Iterable[str]) -> None:
        """Check that the first of these that is recorded compiles. Raises Broken, SyncError."""
        for policy in policies:
            try:
                self._known[self.name_of(policy)] = await self._make(policy)
            except Unknown:
                continue
            return

    async def modules(self, policy: str) -> Modules:
        """Return all modules that decide in place of a recorded set. Raises Unknown."""
        name = self.name_of(policy)
        if name not in self._known:
            try:
                self._known[name] = await self._make(policy)
            except Unknown as error:
                self._known[name] = str(error)
            except Broken as error:
                first = str(error).partition("\n")[0]
                prefix = (
                    "with these policies those of then" if self.has_candidates else "those of then"
                )
                self._known[name] = f"{prefix} do not compile: {first}"
        found = self._known[name]
        if isinstance(found, str):
            raise Unknown(found)
        return found

    async def _make(self, policy: str) -> Modules:
        recorded = {} if self._candidates.instead else by_policy(self._recorded.modules(policy))
        edited = put(self._candidates, recorded)
        modules = {i: source for found in edited.policies.values() for i, source in found.items()}
        modules = {**self._builtin, **modules}
        if causes := await self._compiler.check(modules):
            raise Broken(lines(causes, edited.names))
        return modules


def by_policy(modules: Modules) -> Mapping[ObjectKey, Modules]:
    """Return recorded modules by their policy, which their id begins with."""
    found: dict[ObjectKey, dict[str, str]] = {}
    for policy_id, source in modules.items():
        namespace, _, name = policy_id.rpartition("/")[0].partition("/")
        found.setdefault(ObjectKey(namespace, name), {})[policy_id] = source
    return found
