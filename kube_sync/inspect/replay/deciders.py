"""Which policies decide on what is recorded: those of then, with candidates in their places.

Keeps true: a candidate takes the place of the policy that it would take in a plan, in each set of
policies that was ever in force; all others stay as they were recorded. The newest set has to
compile with the candidates in it, or there is no replay; of an older one that does not, its
decisions are not made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kube_sync.errors import Broken
from kube_sync.inspect.plan.candidates import Candidates, put
from kube_sync.inspect.plan.policies import lines
from kube_sync.inspect.replay.recorded import Unknown
from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import Cause, Modules


class Then(Protocol):
    """What was in force."""

    def modules(self, policy: str) -> Modules:
        """Return the policies of a digest. Raises Unknown where one of them is not known."""
        ...


class Compiler(Protocol):
    """What tells whether modules compile."""

    async def check(self, modules: Modules) -> list[Cause]:
        """Return what is against them, nothing where they do."""
        ...


class Deciders:
    """The sets of policies of one replay, by the digests of those of then."""

    def __init__(
        self, then: Then, compiler: Compiler, builtin: Modules, candidates: Candidates
    ) -> None:
        """Without `candidates` each set is as it was; `builtin` is in all of them."""
        self._then = then
        self._compiler = compiler
        self._builtin = builtin
        self._candidates = candidates
        self._known: dict[str, Modules | str] = {}  # or why there are none

    @property
    def others(self) -> bool:
        """Whether other policies decide than those of then."""
        return bool(self._candidates)

    def named(self, policy: str) -> str:
        """Return what a set goes by: all are one where candidates decide instead of all others."""
        return "" if self._candidates.instead else policy

    async def check(self, policies: Iterable[str]) -> None:
        """Make sure that the first of these that is recorded compiles. Raises Broken, SyncError."""
        for policy in policies:
            try:
                self._known[self.named(policy)] = await self._made(policy)
            except Unknown:
                continue
            return

    async def modules(self, policy: str) -> Modules:
        """Return all that decides in place of the policies of a digest. Raises Unknown."""
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
    """Return recorded modules by the policy that each is of, as its id begins."""
    found: dict[ObjectKey, dict[str, str]] = {}
    for policy_id, source in modules.items():
        namespace, _, name = policy_id.rpartition("/")[0].partition("/")
        found.setdefault(ObjectKey(namespace, name), {})[policy_id] = source
    return found
