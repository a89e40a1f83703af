"""Which reviews have to be decided where policies are for their own namespace alone.

Keeps true: an object in a namespace without policies costs one lookup, and whether OPA is there
does not matter to it; where a policy may exist whatever cannot be decided is denied. What is to be
decided without any policy (the quality of service of pods) is, but refuses nothing for want of an
answer, and is not waited for any longer than it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from kube_sync.admission.decision_client import Admitted, DecisionReference, Undecidable, Verdict
from kube_sync.admission.review import Review
from kube_sync.admission.route import SystemDecider
from kube_sync.decisions.decision import Decision

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_PATIENCE = 1.0  # seconds, for what nobody's policy demands


class Seeing(Protocol):
    """Whether all policies are seen."""

    @property
    def is_blind(self) -> bool:
        """Whether there may be some that are not."""
        ...


class Placed(Protocol):
    """Which namespaces hold policies."""

    def any_in(self, namespace: str) -> bool:
        """Tell whether this one does."""
        ...


class Places:
    """Where policies may be."""

    def __init__(self, gate: Seeing, policies: Placed) -> None:
        self._gate = gate
        self._policies = policies

    def may_have(self, namespace: str) -> bool:
        """Tell whether a namespace may have a policy; False is certain."""
        return self._gate.is_blind or self._policies.any_in(namespace)


def is_pod(review: Review) -> bool:
    """Tell whether the review is about a pod."""
    return (review.kind.group, review.kind.kind) == ("", "Pod")


def nothing(_review: Review) -> bool:
    """Tell that nothing is decided without a policy."""
    return False


class ByNamespace:
    """A judge who is asked where a policy may be, and `anyway` about some objects elsewhere."""

    def __init__(
        self, judge: SystemDecider, places: Places, anyway: Callable[[Review], bool] = nothing
    ) -> None:
        self._judge = judge
        self._places = places
        self._anyway = anyway

    async def verdict(self, review: Review, seconds: float, *, always: bool = False) -> Verdict:
        """Decide within `seconds`, `always` or where a policy may exist; never raises."""
        if always or self._places.may_have(review.namespace):
            return await self._judge.verdict(review, seconds, always=True)
        if self._anyway(review):
            return await self._willing(review, min(seconds, _PATIENCE))
        return Admitted(Decision(), DecisionReference(review.uid))

    async def _willing(self, review: Review, seconds: float) -> Verdict:
        """Decide, and admit as it is what cannot be decided."""
        verdict = await self._judge.verdict(review, seconds, always=True)
        if not isinstance(verdict, Undecidable):
            return verdict
        log.warning("admitted_undecided", uid=review.uid, why=verdict.why, reason=verdict.reason)
        return Admitted(Decision(), verdict.asked)
