"""Which denials had a cause: OPA or the webhook was lost while they were under way. Pure.

A window begins with the fault and ends when the policies answer again. Times are seconds since the
run began.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

GRACE = 1.0  # seconds that what was down may go unnoticed after it is back

Outcome = Literal[
    "made", "denied", "denied wrongly", "let through", "gone", "conflict", "refused", "unanswered"
]


@dataclass(slots=True)
class Window:
    """The time in which OPA or the webhook is lost."""

    kind: str
    begun: float
    ended: float = math.inf


@dataclass(frozen=True, slots=True)
class Denial:
    """A request that the webhook, or the API server for want of it, did not let pass."""

    what: str
    begun: float
    ended: float
    message: str


def disturbed(denial: Denial, windows: Iterable[Window]) -> bool:
    """Tell whether OPA or the webhook was lost at some time while the request was under way."""
    return any(denial.begun < w.ended + GRACE and denial.ended > w.begun for w in windows)


def outside(denials: Iterable[Denial], windows: Sequence[Window]) -> list[Denial]:
    """Return the denials that nothing explains."""
    return [denial for denial in denials if not disturbed(denial, windows)]


def outcome(status: int, text: str, *, possible: bool) -> Outcome:
    """Return what an answer of the API server means; `status` 0: there was none.

    `possible` tells whether the policy lets the request pass.
    """
    if status == 0:
        return "unanswered"
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return "made" if possible else "let through"
    # An API server that starts refuses too, by itself and without having asked.
    if "admission webhook" in text or "calling webhook" in text:
        return "denied wrongly" if possible else "denied"
    if status == HTTPStatus.NOT_FOUND:
        return "gone"
    return "conflict" if status == HTTPStatus.CONFLICT else "refused"
