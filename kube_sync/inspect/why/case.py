"""One object in one world: what is decided of it, by an OPA of its own that can be asked on.

Placements are read as the remediator reads them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kube_sync.config import CLUSTERS, Resource, Settings
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.errors import Broken
from kube_sync.guard import Placements
from kube_sync.inspect.plan.comparison import Worlds
from kube_sync.inspect.plan.effects import clusters
from kube_sync.inspect.plan.offline import OfflineOpa, Scratch, World, serving_world
from kube_sync.inspect.plan.snapshot import reducing
from kube_sync.inspect.why.subject import Subject
from kube_sync.kube.collection import Item
from kube_sync.opa.analysis.reads import Document, Reads
from kube_sync.opa.paths import object_path
from kube_sync.opa.scratch import Modules


@dataclass(frozen=True, slots=True)
class Case:
    """An object, the world that it is decided in, and what is decided."""

    settings: Settings
    worlds: Worlds
    subject: Subject
    opa: OfflineOpa
    outcome: Outcome

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

    def resource(self, name: str) -> Resource:
        """Return a replicated resource by its name in OPA."""
        return next(r for r in self.settings.replicate.resources if r.name == name)

    async def put(self, opa: OfflineOpa, name: str, item: Item) -> bytes:
        """Put an object in place of its own for good, and return it as it is there.

        Raises SyncError.
        """
        body = reducing(self.resource(name))(item)
        await opa.client.put_data(object_path(self.settings.replicate.root, name, item.key), body)
        return body

    async def with_item(self, name: str, item: Item) -> Outcome:
        """Return what is decided with another object in place of its own, which then comes back.

        Raises SyncError.
        """
        await self.put(self.opa, name, item)
        try:
            return await _decided(self.opa, self.subject)
        finally:
            place = object_path(self.settings.replicate.root, name, item.key)
            await self.opa.client.put_data(place, self.world.bodies[name][item.key])


@asynccontextmanager
async def opened_case(
    settings: Settings, worlds: Worlds, subject: Subject, scratch: Scratch, more: Modules
) -> AsyncGenerator[Case]:
    """Yield the case of an object, in an OPA that holds `more` modules. Raises SyncError."""
    async with serving_world(scratch, settings, worlds.then, more) as opa:
        yield Case(settings, worlds, subject, opa, await _decided(opa, subject))


async def _decided(opa: OfflineOpa, subject: Subject) -> Outcome:
    answers = await opa.evaluate(subject.resource.name, [subject.key])
    if subject.key not in answers:
        why = "OPA does not hold it" if subject.item.uid else "it has no uid: nobody stored it"
        raise Broken([f"{subject}: {why}"])
    return answers[subject.key]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads placements as the remediator does."""

    placements: Placements

    @classmethod
    def of(cls, settings: Settings) -> Reader:
        """Return what reads the configured placement annotations."""
        return cls(Placements(settings.remediate.guard.placements))

    def names(self, annotations: Mapping[str, str]) -> tuple[str, ...]:
        """Return the clusters that annotations name, for people."""
        return clusters(self.placements, annotations)

    def decided(self, outcome: Outcome) -> tuple[str, ...]:
        """Return the clusters that are decided, for people; none where it is refused."""
        decision = usable(outcome)
        return () if decision is None else self.names(decision.annotations)

    def chooses(self, outcome: Outcome, cluster: str) -> bool:
        """Tell whether the object may run on a cluster by what was decided."""
        if (decision := usable(outcome)) is None:
            return False
        read = self.placements.read(decision.annotations).values()
        return any(c is not None and (cluster in c.names) != c.open for c in read)

    def by_selector(self, outcome: Outcome) -> bool:
        """Tell whether clusters are decided that have no names."""
        decision, forms = usable(outcome), self.placements.forms
        return decision is not None and any(
            forms.get(key) == "selector" for key in decision.annotations
        )


def usable(outcome: Outcome) -> Decision | None:
    """Return what was decided if it can be carried out."""
    decision = outcome.decision
    return None if decision is None or decision.errors else decision
