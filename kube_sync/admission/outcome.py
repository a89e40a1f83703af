"""Turns the verdict on a review into a response, and into what is logged and recorded. Pure.

One function for placement, one for the built-in policy systems: a system patches at the mutating
webhook (`/admit/…`), and at the validating one (`/validate/…`) denies an object that has lost what
the system had set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from kube_sync.admission.decision_client import Admitted, Denied, Undecidable, Verdict
from kube_sync.admission.requested_values import as_remediated
from kube_sync.admission.response import admit, allow, deny, differing, patch, trespass
from kube_sync.admission.review import Review
from kube_sync.admission.statuswrite import changed
from kube_sync.config import Admission
from kube_sync.decisions.sealing import Seals


class Outcome(msgspec.Struct, frozen=True):
    """The result of a review: its name, the AdmissionReview response, and what to log."""

    name: str
    body: bytes
    refusal: str | None = None  # the message of a denial
    log_fields: Mapping[str, str] = {}  # in the log, beside the name


Read = Callable[[Review, Verdict], Outcome]


def placed(review: Review, verdict: Verdict, settings: Admission, seals: Seals) -> Outcome:
    """Return the outcome of a review by the verdict of the placement policy."""
    match verdict:
        case Admitted() if review.subresource:
            return _status(review, settings)
        case Admitted(decision):
            refusal = trespass(review, decision, settings.remediator)
            if refusal is None or settings.owned == "restore":
                return Outcome("admitted", allow(review, decision, settings.remediator, seals))
            return _refused(review, refusal)
        case Denied(reasons, warnings=warnings):
            reason = "; ".join(reasons)
            body = deny(review, reason, warnings=warnings)
            return Outcome("denied", body, reason, {"reason": reason})
        case Undecidable():
            return _undecided(review, verdict, "there is a placement policy, but no decision of it")


def still_placed(review: Review, verdict: Verdict, settings: Admission, seals: Seals) -> Outcome:
    """Return the outcome for an object at the validating webhook.

    It is denied if another webhook has changed what the mutating webhook, or the stored object
    before a status write, has for its placement.
    """
    match verdict:
        case Admitted() if review.subresource:
            found = [f"annotation {key}" for key in changed(review)]
        case Admitted(ruled=True):
            found = []
        case Admitted(decision):
            found = differing(as_remediated(review), decision, settings.remediator, seals)
        case _:
            return placed(review, verdict, settings, seals)
    if not found:
        return Outcome("admitted", admit(review))
    lost = ", ".join(found)
    return _refused(review, f"{lost}: decided by the placement policy, and changed since")


def _status(review: Review, settings: Admission) -> Outcome:
    """Restore our annotations that a status write changes, or deny it."""
    found = changed(review)
    notices = [f"annotation {key}: no status write changes it, it is kept" for key in found]
    if not found or settings.owned == "restore":
        body = admit(review, patch(review.annotations, found), notices)
        return Outcome("admitted", body, log_fields={"restored": ", ".join(found)} if found else {})
    return _refused(review, "; ".join(notices))


def ruled(review: Review, verdict: Verdict, kind: str, *, patches: bool) -> Outcome:
    """Return the outcome of a review by the verdict of a system with policies of this `kind`."""
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
    log_fields = {"reason": verdict.reason, "why": verdict.why}
    reason = f"{what}: {verdict.reason}"
    return Outcome("undecidable", deny(review, reason, 503), reason, log_fields)
