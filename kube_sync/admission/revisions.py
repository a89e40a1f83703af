"""Revises the decisions that policies make, before anything is stored. Pure.

A revision keeps what the fleet does not have (`fleet`), leaves moves to the remediator
(`add_first`), or annotates nothing where other sinks carry decisions out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from kube_sync.admission.decision_client import Admitted, Decider, Verdict
from kube_sync.admission.review import Review
from kube_sync.decisions.decision import Decision

Revise = Callable[[Review, Decision], Decision]


class RevisedDecider:
    """Decides with another decider, and revises the placements of objects that it admits."""

    def __init__(self, decider: Decider, *revisions: Revise) -> None:
        """Each of `revisions` gets what the one before it returned."""
        self._decider = decider
        self._revisions = revisions

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        """Decide within so many seconds; never raises."""
        verdict = await self._decider.verdict(review, seconds)
        if not isinstance(verdict, Admitted) or verdict.ruled or review.subresource:
            return verdict
        decision = verdict.decision
        for revise in self._revisions:
            decision = revise(review, decision)
        if decision is verdict.decision:
            return verdict
        return msgspec.structs.replace(verdict, decision=decision)


def unannotated(
    review: Review, decision: Decision, *, resources: Collection[tuple[str, str]]
) -> Decision:
    """Take annotations and labels out for these resources (group and plural, in any version).

    Other sinks than the annotations carry their decisions out. A policy can still refuse such an
    object, and warn about it.
    """
    if (review.resource.group, review.resource.resource) not in resources:
        return decision
    return msgspec.structs.replace(decision, annotations={}, labels={})
