"""One object in one world: its decision, in an OPA of its own for further queries.

Placements are parsed as the remediator parses them.
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
from kube_sync.inspect.plan.effects import clusters
from kube_sync.inspect.plan.offline_opa import OfflineOpa, Scratch, World, serving_world
from kube_sync.inspect.plan.snapshot import projection_of
from kube_sync.inspect.plan.worlds import Worlds
from kube_sync.inspect.why.subject import Subject
from kube_sync.kube.collection import Item
from kube_sync.opa.analysis.result import Document, Reads
from kube_sync.opa.paths import object_path
from kube_sync.opa.scratch import Modules


@dataclass(frozen=True, slots=True)
class Case:
    """An object, the world of its decision, and the decision."""

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
        """Replace the object for good, and return it in OPA's form.

        Raises SyncError.
        """
        body = projection_of(self.resource(name))(item)
        await opa.client.put_data(object_path(self.settings.replicate.root, name, item.key), body)
        return body

    async def evaluate_with(self, name: str, item: Item) -> Outcome:
        """Return the outcome with another object in its place, then restore it.

        Raises SyncError.
        """
        await self.put(self.opa, name, item)
        try:
            return await _evaluate(self.opa, self.subject)
        finally:
            place = object_path(self.settings.replicate.root, name, item.key)
            await self.opa.client.put_data(place, self.world.bodies[name][item.key])


@asynccontextmanager
async def open_case(
    settings: Settings, worlds: Worlds, subject: Subject, scratch: Scratch, more: Modules
) -> AsyncGenerator[Case]:
    """Yield the case of an object, in an OPA that holds `more` modules. Raises SyncError."""
    async with serving_world(scratch, settings, worlds.then, more) as opa:
        yield Case(settings, worlds, subject, opa, await _evaluate(opa, subject))


async def _evaluate(opa: OfflineOpa, subject: Subject) -> Outcome:
    answers = await opa.evaluate(subject.resource.name, [subject.key])
    if subject.key not in answers:
        why = "OPA does not hold it" if subject.item.uid else "it has no uid: nobody stored it"
        raise Broken([f"{subject}: {why}"])
    return answers[subject.key]


@dataclass(frozen=True, slots=True)
class PlacementReader:
    """Parses placements as the remediator does."""

    placements: Placements

    @classmethod
    def of(cls, settings: Settings) -> PlacementReader:
        """Create the parser of the configured placement annotations."""
        return cls(Placements(settings.remediate.guard.placements))

    def names(self, annotations: Mapping[str, str]) -> tuple[str, ...]:
        """Return the clusters that annotations name, for people."""
        return clusters(self.placements, annotations)

    def decided_clusters(self, outcome: Outcome) -> tuple[str, ...]:
        """Return the decided clusters, for people; none if the object is refused."""
        decision = applicable_decision(outcome)
        return () if decision is None else self.names(decision.annotations)

    def is_chosen(self, outcome: Outcome, cluster: str) -> bool:
        """Return whether the outcome places the object on a cluster."""
        if (decision := applicable_decision(outcome)) is None:
            return False
        read = self.placements.read(decision.annotations).values()
        return any(c is not None and (cluster in c.names) != c.open for c in read)

    def is_by_selector(self, outcome: Outcome) -> bool:
        """Return whether the outcome selects clusters without names."""
        decision, forms = applicable_decision(outcome), self.placements.forms
        return decision is not None and any(
            forms.get(key) == "selector" for key in decision.annotations
        )


def applicable_decision(outcome: Outcome) -> Decision | None:
    """Return the decision if it can be applied."""
    decision = outcome.decision
    return None if decision is None or decision.errors else decision
