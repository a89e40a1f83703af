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


class Then(Protocol):
    """The policies that were in force."""

    def modules(self, policy: str) -> Modules:
        """Return the policies of a digest. Raises Unknown if one of them is not recorded."""
        ...


class Compiler(Protocol):
    """Checks whether modules compile."""

    async def check(self, modules: Modules) -> list[Cause]:
        """Return the errors, none if they compile."""
        ...


class Deciders:
    """The sets of policies of one replay, by the digests of the recorded ones."""

    def __init__(
        self, then: Then, compiler: Compiler, builtin: Modules, candidates: Candidates
    ) -> None:
        """Without `candidates` each set is as recorded; `builtin` is in all of them."""
        self._then = then
        self._compiler = compiler
        self._builtin = builtin
        self._candidates = candidates
        self._known: dict[str, Modules | str] = {}  # or why there are none

    @property
    def others(self) -> bool:
        """Whether other policies decide than the recorded ones."""
        return bool(self._candidates)

    def named(self, policy: str) -> str:
        """Return the name of a set: candidates that replace all policies make all sets one."""
        return "" if self._candidates.instead else policy

    async def check(self, policies: Iterable[str]) -> None:
        """Check that the first of these that is recorded compiles. Raises Broken, SyncError."""
        for policy in policies:
            try:
                self._known[self.named(policy)] = await self._made(policy)
            except Unknown:
                continue
            return

    async def modules(self, policy: str) -> Modules:
        """Return all modules that decide in place of a recorded set. Raises Unknown."""
        name = self.named(policy)
        if name not in self._known:
            try:
                self._known[name] = await self._made(policy)
            except Unknown as error:
                self._known[name] = str(error)
            except Broken as error:
                first = str(error).partition("\n")[0]
                whose = "with these policies those of then" if self.others else "those of then"
                self._known[name] = f"{whose} do not compile: {first}"
        found = self._known[name]
        if isinstance(found, str):
            raise Unknown(found)
        return found

    async def _made(self, policy: str) -> Modules:
        then = {} if self._candidates.instead else by_policy(self._then.modules(policy))
        wanted = put(self._candidates, then)
        whole = {i: source for found in wanted.policies.values() for i, source in found.items()}
        whole = {**self._builtin, **whole}
        if causes := await self._compiler.check(whole):
            raise Broken(lines(causes, wanted.names))
        return whole


def by_policy(modules: Modules) -> Mapping[ObjectKey, Modules]:
    """Return recorded modules by their policy, which their id begins with."""
    found: dict[ObjectKey, dict[str, str]] = {}
    for policy_id, source in modules.items():
        namespace, _, name = policy_id.rpartition("/")[0].partition("/")
        found.setdefault(ObjectKey(namespace, name), {})[policy_id] = source
    return found
