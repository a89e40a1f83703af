"""Annotates no object whose decisions are carried out by other sinks than its annotations. Pure.

A policy can still refuse such an object, and warn about it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kube_sync.admission.decision_client import Admitted, Verdict
from kube_sync.admission.fleet import Decider
from kube_sync.admission.review import Review
from kube_sync.objects import GroupVersionResource


class Unannotated:
    """Decides with another decider, and takes annotations and labels out for some resources."""

    def __init__(self, decider: Decider, resources: Iterable[GroupVersionResource]) -> None:
        """`resources`: those that get none, in any version."""
        self._decider = decider
        self._resources = frozenset((gvr.group, gvr.resource) for gvr in resources)

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        """Decide within so many seconds; never raises."""
        verdict = await self._decider.verdict(review, seconds)
        found = (review.resource.group, review.resource.resource)
        if not isinstance(verdict, Admitted) or found not in self._resources:
            return verdict
        decision = msgspec.structs.replace(verdict.decision, annotations={}, labels={})
        return msgspec.structs.replace(verdict, decision=decision)
