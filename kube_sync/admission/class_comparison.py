"""Compares the answers of classes with those of OPA, for `admission.classes: verify`.

Invariant: a difference counts only if no change can explain it. OPA has a change before the
replicator has reported it, so OPA may answer by a change that the present revision does not cover.
A difference is therefore settled by a report that was asked for so long after OPA's answer that the
replicator would name another revision, or no current one, if OPA had a change when it answered.
Until then it is not counted; if the revision has changed, the two answers are not compared.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog

from kube_sync.admission.decision_client import Admitted, DecisionReference, Denied
from kube_sync.decisions.basis import Basis
from kube_sync.decisions.unwritten import UNWRITTEN_SECONDS
from kube_sync.observability import metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()

MOST = 1_000  # differences that are not settled

Revision = tuple[str, int]  # of a replicator process


class Reports(Protocol):
    """The reports of the replicator."""

    asked: float  # when the last one was asked for, on the clock

    @property
    def confirmed(self) -> Basis | None:
        """The present basis, None while it is not known to be current."""


@dataclass(frozen=True, slots=True)
class _Difference:
    """Two answers to a class that differ, under one revision."""

    kind: bytes
    revision: Revision
    uid: str
    answered: float  # when OPA had answered


class Comparison:
    """The differences that are not settled yet."""

    def __init__(self, reports: Reports, most: int = MOST) -> None:
        self._reports = reports
        self._most = most
        self._differences: deque[_Difference] = deque()  # the oldest first

    def compare(
        self,
        known: Admitted | Denied,
        verdict: Admitted | Denied,
        kind: bytes,
        revision: Revision,
        uid: str,
        now: float,
    ) -> None:
        """Compare the answer of a class with what OPA answered until `now` to a review of it."""
        self.settle()
        if self._revision() != revision or len(self._differences) >= self._most:
            counted["asked"].inc()  # OPA may have answered by what has changed meanwhile
        elif _bare(known) == _bare(verdict):
            counted["agreed"].inc()
        else:
            self._differences.append(_Difference(kind, revision, uid, now))

    def settle(self) -> None:
        """Count the differences that the last report explains, or proves."""
        revision = self._revision()
        while self._differences and revision is not None:
            first = self._differences[0]
            if revision != first.revision:
                counted["asked"].inc()
            elif self._reports.asked >= first.answered + UNWRITTEN_SECONDS:
                counted["differed"].inc()
                log.error("class_answer_differs", uid=first.uid, object_class=first.kind.hex())
            else:
                return
            self._differences.popleft()

    def _revision(self) -> Revision | None:
        basis = self._reports.confirmed
        return None if basis is None else (basis.instance, basis.revision)


def _bare(verdict: Admitted | Denied) -> Admitted | Denied:
    """Return the verdict without what identifies the query."""
    return msgspec.structs.replace(verdict, asked=DecisionReference())


counted = {
    outcome: metrics.admission_class_answers.labels(outcome)
    for outcome in (
        "reused",
        "asked",
        "elsewhere",
        "unconfirmed",
        "unshared",
        "agreed",
        "differed",
    )
}
