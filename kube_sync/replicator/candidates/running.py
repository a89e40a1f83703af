"""Plans as they are made: by `kube-sync plan` itself, in a process of its own.

Keeps true: nothing of a plan is held in this process but its summary; whatever becomes of the
command is an answer, and no error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kube_sync.errors import NO_JSON, Retriable
from kube_sync.replicator.candidates.answers import Planned, Unplanned, Version
from kube_sync.runtime.errand import Done

_ARGUMENTS: Final = ("plan", "--staged", "--output", "summary")
_PREFIX: Final = "kube-sync: "
_ALIVE: Final = " …"  # what a sign of life ends with
_LAST: Final = 5  # lines of what was said otherwise

Errand = Callable[[Sequence[str]], Awaitable[Done]]


@dataclass(frozen=True, slots=True)
class Made:
    """A plan, and which version of each candidate, by its name, it is of."""

    planned: Planned
    versions: Mapping[str, Version]


class _Candidate(msgspec.Struct):
    name: str
    stands_for: str
    modules: str


class _Plan(msgspec.Struct):
    summary: dict[str, int]
    candidates: list[_Candidate]
    notes: list[str] = []


class Plans:
    """Runs the command."""

    def __init__(self, errand: Errand, command: Sequence[str], config: str | None) -> None:
        """`command` is kube-sync's own, `config` its configuration file."""
        self._errand = errand
        self._command = [*command, *_ARGUMENTS, *(("--config", config) if config else ())]

    async def make(self, names: Sequence[str]) -> Made | Unplanned:
        """Plan with the candidates of these names together."""
        chosen = [word for name in names for word in ("--candidate", name)]
        try:
            done = await self._errand([*self._command, *chosen])
        except Retriable as error:
            return Unplanned((str(error),))
        if not done.output:
            return Unplanned(_reasons(done))
        try:
            return _made(done)
        except (*NO_JSON, KeyError) as error:
            return Unplanned((f"the plan cannot be read: {error}",))


def _made(done: Done) -> Made:
    plan = msgspec.json.decode(done.output, type=_Plan)
    counts = dict(plan.summary)
    objects = counts.pop("workloads")
    counts.pop("classes", None)
    planned = Planned(objects, counts, done.status, tuple(plan.notes))
    versions = {c.name: Version(c.stands_for, c.modules) for c in plan.candidates}
    return Made(planned, versions)


def _reasons(done: Done) -> tuple[str, ...]:
    lines = [line for line in done.said.splitlines() if line.strip()]
    told = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)]
    reasons = [line for line in told if not line.endswith(_ALIVE)] or lines[-_LAST:]
    return tuple(reasons) or (f"the plan ended with status {done.status} and said nothing",)
