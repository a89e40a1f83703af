"""Decisions over a snapshot, made by an OPA of its own that lives as long as somebody asks it.

Keeps true: the question is the one that the replicator asks, by the same generated module. Objects
of one group (`sharing`) are decided once; every object has an outcome in the end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import msgspec

from kube_sync.analysis.reads import Reads
from kube_sync.decisions.evaluator import BATCH_MODULE, Evaluator, Outcome, batch_module
from kube_sync.decisions.reading import DecisionReader
from kube_sync.decisions.requested import as_asked
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaClient
from kube_sync.opa.scratch import Modules
from kube_sync.planning.broken import Broken
from kube_sync.planning.sharing import Bodies, Group, needed
from kube_sync.planning.snapshot import EPOCH, document
from kube_sync.replicator.extent import Need
from kube_sync.replicator.policies.builtin import built_in
from kube_sync.safety import Placements
from kube_sync.settings import Settings
from kube_sync.survey.progress import Progress

_PART = 200  # classes between two signs of life

Key = tuple[str, ObjectKey]  # a collection's name, and an object of it


class Scratch(Protocol):
    """The scratch OPA."""

    def serving(self, modules: Modules, data: bytes) -> AbstractAsyncContextManager[OpaClient]:
        """Yield a client of an OPA that holds these."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """One side of a comparison: policies, and all objects as OPA would get them."""

    name: str  # for people
    modules: Modules
    bodies: Bodies
    beside: Mapping[ObjectKey, bytes] = field(default_factory=dict)  # other documents
    names: Mapping[str, str] = field(default_factory=dict)  # of modules that people call otherwise


@dataclass(frozen=True, slots=True)
class Decided:
    """What one world decides of each target, in how many classes, and the OPA that did."""

    world: World
    opa: OpaClient
    outcomes: Mapping[Key, Outcome]
    classes: int
    alone: str | None = None  # why no two objects share a decision

    async def budget(self) -> Any:  # noqa: ANN401 - any JSON
        """Return what policies say of how much may move, None: nothing. Raises SyncError."""
        body = msgspec.json.encode({"input": {"epoch": EPOCH}})
        answer = await self.opa.query("kube_sync/batch/budget", body)
        found = msgspec.json.decode(answer or b"{}")
        return found.get("document") if isinstance(found, dict) else None

    def asked(self, key: Key) -> bytes:
        """Return an object as a policy sees it."""
        return as_asked(self.world.bodies[key[0]][key[1]])


def generated(settings: Settings) -> dict[str, str]:
    """Return the module that is part of every set: what decisions are asked by."""
    return {BATCH_MODULE: batch_module(settings.replicate.root, settings.placement.path)}


def reader(
    settings: Settings, modules: Modules, names: Mapping[str, str] | None = None
) -> DecisionReader:
    """Return what reads decisions by these modules, as the replicator does."""
    check = Placements(settings.remediate.guard.placements).unreadable
    always = generated(settings).keys() | built_in(settings).keys()
    written = {i: source for i, source in modules.items() if i not in always}
    return DecisionReader(check, lambda: written, names)


@asynccontextmanager
async def deciding(
    world: World,
    need: Need,
    groups: Mapping[str, Sequence[Group]],
    scratch: Scratch,
    settings: Settings,
    progress: Progress,
) -> AsyncGenerator[Decided]:
    """Yield all decisions of a world, whose policies need this, one for each group.

    Raises SyncError.
    """
    replicate = settings.replicate
    chosen = {resource.name for resource in replicate.resources if resource.paths is not None}
    held = needed(world.bodies, need, groups, chosen)
    data = document(replicate.root, held, world.beside)
    async with scratch.serving(world.modules, data) as opa:
        evaluator = Evaluator(opa, EPOCH, read=reader(settings, world.modules, world.names))
        outcomes = dict[Key, Outcome]()
        for name, shared in groups.items():
            outcomes |= await _decided(world, name, shared, evaluator, progress)
        classes = sum(map(len, groups.values()))
        yield Decided(world, opa, outcomes, classes, _alone(need.reads))


def _alone(reads: Reads) -> str | None:
    if reads.gave_up is not None:
        return f"the policies could not be analysed: {reads.gave_up}"
    if reads.impure:
        return f"decided by {', '.join(reads.impure)}, which may answer otherwise another time"
    return "the policies read all of each" if () in reads.input.paths else None


async def _decided(
    world: World,
    name: str,
    groups: Sequence[Group],
    evaluator: Evaluator,
    progress: Progress,
) -> dict[Key, Outcome]:
    found: dict[Key, Outcome] = {}
    rest, done = iter(groups), 0
    while part := list(islice(rest, _PART)):
        answers = await evaluator.evaluate(name, [group[0] for group in part])
        for group in part:
            outcome = answers.get(group[0])
            if outcome is None:
                raise Broken([f"{name} {group[0]}: it vanished while it was planned"])
            found |= {(name, key): outcome for key in group}
        done += len(part)
        progress.reached(f"{world.name}: {_bar(done, len(groups))} {name} …")
    return found


def _bar(done: int, of: int) -> str:
    full = 20 * done // max(of, 1)
    return f"[{'#' * full}{'.' * (20 - full)}] {done} of {of} classes of"
