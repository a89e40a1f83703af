"""What became of a review, as what the API server is told and what is told of it. Pure.

One function for placement, one for the built-in policy systems: a system patches while an object
is changed (`/admit/…`), and where it is checked afterwards (`/validate/…`) refuses one that has
lost what the system had put in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kube_sync.admission.answer import admit, allow, deny, trespass
from kube_sync.admission.judge import Admitted, Denied, Undecidable, Verdict
from kube_sync.admission.review import Review
from kube_sync.settings import Admission


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a review, and the AdmissionReview that says so."""

    name: str
    body: bytes
    refusal: str | None = None  # what whoever is refused reads
    told: Mapping[str, str] = field(default_factory=dict)  # in the log, beside the name


Read = Callable[[Review, Verdict], Outcome]


def placed(review: Review, verdict: Verdict, settings: Admission) -> Outcome:
    """Return what becomes of a review by what the placement policy says."""
    match verdict:
        case Admitted(decision):
            refusal = trespass(review, decision, settings.remediator)
            if refusal is None or settings.owned == "restore":
                return Outcome("admitted", allow(review, decision, settings.remediator))
            return Outcome("denied", deny(review, refusal), refusal, {"reason": refusal})
        case Denied(reasons, warnings=warnings):
            reason = "; ".join(reasons)
            body = deny(review, reason, warnings=warnings)
            return Outcome("denied", body, reason, {"reason": reason})
        case Undecidable():
            return _undecided(review, verdict, "there is a placement policy, but no decision of it")


def ruled(review: Review, verdict: Verdict, kind: str, *, patches: bool) -> Outcome:
    """Return what becomes of a review by what a system says whose policies are of this `kind`."""
    match verdict:
        case Admitted(patch=patch) if patches or not patch:
            return Outcome("admitted", admit(review, patch))
        case Admitted(patch=patch):
            lost = ", ".join(operation.path for operation in patch)
            reason = f"{lost}: set by a {kind}, and changed by another webhook since"
            return _refused(review, reason)
        case Denied(reasons):
            return _refused(review, "; ".join(reasons))
        case Undecidable():
            return _undecided(review, verdict, f"there is a {kind}, but no decision")


def _refused(review: Review, reason: str) -> Outcome:
    return Outcome("denied", deny(review, reason), reason, {"reason": reason})


def _undecided(review: Review, verdict: Undecidable, what: str) -> Outcome:
    told = {"reason": verdict.reason, "why": verdict.why}
    reason = f"{what}: {verdict.reason}"
    return Outcome("undecidable", deny(review, reason, 503), reason, told)
