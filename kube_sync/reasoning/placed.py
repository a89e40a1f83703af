"""Whether a decision puts its object on a cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.planning.effects import clusters
from kube_sync.safety import Placements
from kube_sync.settings import Settings


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
