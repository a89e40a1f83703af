"""Decides reviews only in namespaces with policies, for systems with namespaced policies.

Invariant: an object in a namespace without policies costs one lookup and does not depend on OPA; if
a policy may exist, an undecidable review is denied. What is decided without any policy (the quality
of service of pods) fails open there, with a short time-out.
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

_PATIENCE = 1.0  # seconds, for decisions without a policy


class Seeing(Protocol):
    """Whether all policies are known."""

    @property
    def is_blind(self) -> bool:
        """Whether there may be unknown ones."""


class Placed(Protocol):
    """The namespaces with policies."""

    def any_in(self, namespace: str) -> bool:
        """Return whether this one has any."""


class Places:
    """Where policies may exist."""

    def __init__(self, gate: Seeing, policies: Placed) -> None:
        self._gate = gate
        self._policies = policies

    def may_have(self, namespace: str) -> bool:
        """Return whether a namespace may have a policy; False is certain."""
        return self._gate.is_blind or self._policies.any_in(namespace)


def is_pod(review: Review) -> bool:
    """Return whether the review is about a pod."""
    return (review.kind.group, review.kind.kind) == ("", "Pod")


def nothing(_review: Review) -> bool:
    """Return False: nothing is decided without a policy."""
    return False


class ByNamespace:
    """Asks another decider if a policy may exist, and `anyway` about some objects elsewhere."""

    def __init__(
        self, decider: SystemDecider, places: Places, anyway: Callable[[Review], bool] = nothing
    ) -> None:
        self._decider = decider
        self._places = places
        self._anyway = anyway

    async def verdict(self, review: Review, seconds: float, *, always: bool = False) -> Verdict:
        """Decide within `seconds`, `always` or only if a policy may exist; never raises."""
        if always or self._places.may_have(review.namespace):
            return await self._decider.verdict(review, seconds, always=True)
        if self._anyway(review):
            return await self._willing(review, min(seconds, _PATIENCE))
        return Admitted(Decision(), DecisionReference(review.uid))

    async def _willing(self, review: Review, seconds: float) -> Verdict:
        """Decide, but admit unchanged what cannot be decided."""
        verdict = await self._decider.verdict(review, seconds, always=True)
        if not isinstance(verdict, Undecidable):
            return verdict
        log.warning("admitted_undecided", uid=review.uid, why=verdict.why, reason=verdict.reason)
        return Admitted(Decision(), verdict.asked)
