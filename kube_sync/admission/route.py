"""Routes of the webhook: a path, who decides there, and how the verdict becomes a response.

Placement has two; each built-in policy system has two: `/admit/<system>` is the mutating webhook,
`/validate/<system>` the validating one, which also checks the system's own policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from prometheus_client import Histogram

from kube_sync.admission.decision_client import (
    Admitted,
    Decider,
    DecisionReference,
    Denied,
    Undecidable,
    Verdict,
)
from kube_sync.admission.outcome import Read, placed, ruled, still_placed
from kube_sync.admission.requested_values import proven
from kube_sync.admission.review import Malformed, Review
from kube_sync.admission.singleflight import InFlight, Memo
from kube_sync.admission.statuswrite import STATUS, as_update, restored
from kube_sync.admission.verdict import parse_ruling
from kube_sync.config import Admission, System
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.sealing import Seals
from kube_sync.observability import metrics

PLACEMENT = "/admit/placement"
PLACED = "/validate/placement"

# Operations that leave no object to decide on.
_NOTHING = frozenset(("DELETE", "CONNECT"))
_OUTCOMES = ("admitted", "denied", "undecidable")

OnRefusal = Callable[[Review, str, str], None]  # a denied review, its outcome, the reason


class SystemDecider(Protocol):
    """Decides reviews for a built-in system."""

    async def verdict(self, review: Review, seconds: float, *, always: bool = False) -> Verdict:
        """Decide within so many seconds, `always` or only if a policy may exist; never raises."""


def nobody(_review: Review, _outcome: str, _reason: str) -> None:
    """Ignore a denial."""


def _as_sent(review: Review) -> Review:
    return review


@dataclass(frozen=True, slots=True)
class Route:
    """One path of the webhook."""

    path: str
    decider: Decider
    read: Read
    passes: Callable[[Review], bool]  # what is admitted unchanged, without a decision
    seconds: Mapping[str, Histogram]  # by outcome: looked up once, since labels cost
    denied: OnRefusal = nobody
    log_fields: Mapping[str, str] = field(default_factory=dict)  # in the log, with every review
    # Preprocesses the review for all that follows; raises Malformed.
    preprocess: Callable[[Review], Review] = _as_sent


def placement_route(
    decider: Decider, settings: Admission, denied: OnRefusal = nobody, seals: Seals | None = None
) -> Route:
    """Return the mutating route of placement, also for status writes that change metadata."""
    seals = seals or Seals()
    read = partial(placed, settings=settings, seals=seals)
    seconds = {outcome: metrics.admission_seconds.labels(outcome) for outcome in _OUTCOMES}
    return _placement(PLACEMENT, decider, read, seconds, denied, seals)


def placement_check(
    decider: Decider,
    may_exist: Callable[[], bool],
    settings: Admission,
    denied: OnRefusal = nobody,
    seals: Seals | None = None,
) -> Route:
    """Return the validating route of placement.

    It asks `decider` about objects whose placement has no valid seal, if a policy `may_exist`.
    """
    seals = seals or Seals()
    checking = _Sealed(decider, may_exist, seals)
    read = partial(still_placed, settings=settings, seals=seals)
    seconds = {o: metrics.admission_system_seconds.labels("placement", o) for o in _OUTCOMES}
    return _placement(PLACED, checking, read, seconds, denied, seals)


def _placement(
    path: str,
    decider: Decider,
    read: Read,
    seconds: Mapping[str, Histogram],
    denied: OnRefusal,
    seals: Seals,
) -> Route:
    return Route(
        path,
        _AsUpdate(decider, seals),
        read,
        lambda review: review.operation in _NOTHING or review.subresource not in ("", STATUS),
        seconds,
        denied,
        preprocess=lambda review: review if review.subresource else proven(review, seals),
    )


def system_routes(
    system: System,
    decider: SystemDecider,
    denied: OnRefusal = nobody,
    checking: SystemDecider | None = None,
) -> tuple[Route, Route]:
    """Return the two routes of a built-in system.

    `checking` decides on the validating one, if its decision is another one.
    """
    seconds = {o: metrics.admission_system_seconds.labels(system.name, o) for o in _OUTCOMES}
    changer, checker = _deciders(system, decider, checking or decider)

    def route(path: str, decider: Decider, *, patches: bool) -> Route:
        return Route(
            path,
            decider,
            partial(ruled, kind=system.kind, patches=patches),
            partial(_passes, system),
            seconds,
            denied,
            {"system": system.name},
            as_update if system.by_namespace else _as_sent,
        )

    return (
        route(admit_path(system), changer, patches=True),
        route(validate_path(system), checker, patches=False),
    )


def _deciders(
    system: System, decider: SystemDecider, checking: SystemDecider
) -> tuple[Decider, Decider]:
    if not system.by_spec:  # a verdict on one spec does not hold for the next
        return _OwnPoliciesAlways(decider, system), _OwnPoliciesAlways(checking, system)
    memo, shared = Memo(), InFlight(_OwnPoliciesAlways(decider, system))
    return _Changing(shared, memo), _Checking(shared, memo)


def _passes(system: System, review: Review) -> bool:
    # No namespaced policy is about a scheduler's binding; a status write is an update by now.
    return review.operation in _NOTHING or (system.by_namespace and bool(review.subresource))


def admit_path(system: System) -> str:
    """Return the path of the mutating webhook."""
    return f"/admit/{system.name}"


def validate_path(system: System) -> str:
    """Return the path of the validating webhook."""
    return f"/validate/{system.name}"


def ruling(answer: bytes, *, explains: bool = False) -> Admitted | Denied:
    """Parse the decision of a built-in system, which may give reasons to admit if it `explains`.

    Raises Undecided.
    """
    found = parse_ruling(answer, explains=explains)
    if not found.allowed:
        return Denied(found.reasons)
    return Admitted(Decision(), patch=found.patch, ruled=True, reasons=found.reasons)


class _AsUpdate:
    """Asks about a status write as about the update that is left when placement is restored.

    The policy may deny what its other labels and annotations become: else an owner could exempt an
    object from decisions, and so keep it where it is for ever.
    """

    def __init__(self, decider: Decider, seals: Seals) -> None:
        self._decider = decider
        self._seals = seals

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        try:
            if review.subresource:
                review = proven(as_update(restored(review)), self._seals)
        except Malformed as error:
            return Undecidable(str(error), "malformed", DecisionReference(review.uid))
        return await self._decider.verdict(review, seconds)


class _Sealed:
    """Asks only about objects without a valid seal of their stored state."""

    def __init__(self, decider: Decider, may_exist: Callable[[], bool], seals: Seals) -> None:
        self._decider = decider
        self._may_exist = may_exist
        self._seals = seals

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        sealed = self._seals.is_required and self._seals.has_valid_seal(
            review.annotations or {}, review.place
        )
        if sealed or not self._may_exist():
            return Admitted(Decision(), DecisionReference(review.uid), ruled=True)
        return await self._decider.verdict(review, seconds)


class _Changing:
    """Remembers the objects that it admits, as they will be."""

    def __init__(self, decider: Decider, memo: Memo) -> None:
        self._decider = decider
        self._memo = memo

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        verdict = await self._decider.verdict(review, seconds)
        if isinstance(verdict, Admitted) and verdict.ruled:
            self._memo.note(review, verdict.patch)
        return verdict


class _Checking:
    """Asks only about objects that differ from what was admitted a moment ago."""

    def __init__(self, decider: Decider, memo: Memo) -> None:
        self._decider = decider
        self._memo = memo

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        if self._memo.contains(review):
            return Admitted(Decision(), DecisionReference(review.uid), ruled=True)
        return await self._decider.verdict(review, seconds)


class _OwnPoliciesAlways:
    """Always decides on the system's own policies, so that the first one is checked too."""

    def __init__(self, decider: SystemDecider, system: System) -> None:
        self._decider = decider
        self._policies = (system.policies.group, system.policies.resource)

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        own = (review.resource.group, review.resource.resource) == self._policies
        return await self._decider.verdict(review, seconds, always=own)
