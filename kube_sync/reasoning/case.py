"""One object in one world: what is decided of it, by an OPA of its own that can be asked on.

Keeps true: the question is the one that the replicator asks, by the same generated module.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kube_sync.analysis.reads import Document, Reads
from kube_sync.decisions.evaluator import Evaluator, Outcome
from kube_sync.decisions.reading import ReadDecision
from kube_sync.kube.collection import Item
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaClient
from kube_sync.opa.modules import file_of
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Modules
from kube_sync.planning.broken import Broken
from kube_sync.planning.deciding import Scratch, World, generated, reader
from kube_sync.planning.snapshot import EPOCH, document, reducing
from kube_sync.planning.worlds import CLUSTERS, Worlds
from kube_sync.reasoning.subject import Subject
from kube_sync.replicator.policies.builtin import built_in
from kube_sync.settings import Resource, Settings


@dataclass(frozen=True, slots=True)
class Case:
    """An object, the world that it is decided in, and what is decided."""

    settings: Settings
    worlds: Worlds
    subject: Subject
    opa: OpaClient
    outcome: Outcome
    modules: Mapping[str, str] = field(repr=False)  # by the names of their files

    @property
    def world(self) -> World:
        """Policies and objects, with the candidates in place."""
        return self.worlds.then

    @property
    def reads(self) -> Reads:
        """What the policies read."""
        return self.worlds.reads[self.world.name]

    @property
    def fleet(self) -> Document:
        """What the policies read of each cluster."""
        return self.reads.resources.get(CLUSTERS, Document())

    def file(self, name: str) -> str:
        """Return what people call the file of a module."""
        for policy_id in self.world.modules:
            if name in (policy_id, file_of(policy_id)):
                return self.worlds.names.get(policy_id, policy_id)
        return name

    @property
    def read(self) -> ReadDecision:
        """What reads decisions on it."""
        return reader(self.settings, self.world.modules, self.world.names)

    def resource(self, name: str) -> Resource:
        """Return a replicated resource by its name in OPA."""
        return next(r for r in self.settings.replicate.resources if r.name == name)

    def place(self, name: str, key: ObjectKey) -> DataPath:
        """Return where an object lies in OPA's data."""
        inside = (key.namespace, key.name) if key.namespace else (key.name,)
        return (self.settings.replicate.root, name, *inside)

    async def with_item(self, name: str, item: Item) -> Outcome:
        """Return what is decided with another object in place of its own, which then comes back.

        Raises SyncError.
        """
        place, before = self.place(name, item.key), self.world.bodies[name][item.key]
        await self.opa.put_data(place, reducing(self.resource(name))(item))
        try:
            return await decided(self.opa, self.subject, self.read)
        finally:
            await self.opa.put_data(place, before)


@asynccontextmanager
async def opened(
    settings: Settings, worlds: Worlds, subject: Subject, scratch: Scratch, more: Modules
) -> AsyncGenerator[Case]:
    """Yield the case of an object, in an OPA that holds `more` modules. Raises SyncError."""
    world = worlds.then
    data = document(settings.replicate.root, world.bodies, world.beside)
    async with scratch.serving({**world.modules, **more}, data) as opa:
        modules = {file_of(policy_id): source for policy_id, source in world.modules.items()}
        outcome = await decided(opa, subject, reader(settings, world.modules, world.names))
        yield Case(settings, worlds, subject, opa, outcome, modules)


def authored(settings: Settings, modules: Modules) -> dict[str, str]:
    """Return the modules that somebody wrote, without those that are part of every set."""
    always = {**generated(settings), **built_in(settings)}
    return {i: source for i, source in modules.items() if i not in always}


async def decided(opa: OpaClient, subject: Subject, read: ReadDecision) -> Outcome:
    """Return what is decided of an object. Raises SyncError."""
    evaluator = Evaluator(opa, EPOCH, read=read)
    answers = await evaluator.evaluate(subject.resource.name, [subject.key])
    if subject.key not in answers:
        why = "OPA does not hold it" if subject.item.uid else "it has no uid: nobody stored it"
        raise Broken([f"{subject}: {why}"])
    return answers[subject.key]
