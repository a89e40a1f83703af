"""What policies make less of: the limits as the decision stream tells them. Pure.

Keeps true: what cannot be used changes nothing; before anything usable was told, nobody knows how
much may move. It is read here and not believed to be good, whatever engine sends it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kube_sync.decisions.records import Budget
from kube_sync.errors import Undecided
from kube_sync.safety import Tightening, parse_tightening


@dataclass(frozen=True, slots=True)
class InForce:
    """What tightens the limits now, and why that is not what was told last.

    `by` is None while nobody knows.
    """

    by: Tightening | None = None
    trouble: str | None = None

    def told(self, budget: Budget | None) -> InForce:
        """Return what is in force once this was told."""
        if budget is None:
            return InForce(Tightening())
        if budget.failure is not None and not budget.last_good:
            return InForce(self.by, budget.failure)
        try:
            document = {} if budget.document is None else budget.document
            return InForce(parse_tightening(document), budget.failure)
        except Undecided as error:
            return InForce(self.by, str(error))
