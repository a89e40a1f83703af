"""A function that is called only for the events that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kube_sync.topology.controller.events import Matcher
from kube_sync.topology.controller.workflow import Reconcile, Reconciliation


@dataclass(frozen=True, slots=True)
class Subscription:
    """Calls `reconcile` with the events that any of the matchers fits, if there are some.

    A reconcile without events, as when this process has just become the one that writes, is none
    of its business: who has to put things right then is a task of its own.
    """

    reconcile: Reconcile
    matchers: Sequence[Matcher]

    async def __call__(self, reconciliation: Reconciliation) -> None:
        """Call the function, or not. Raises what it raises."""
        events = [e for e in reconciliation.events if any(m.fits(e) for m in self.matchers)]
        if events:
            await self.reconcile(replace(reconciliation, events=events))
