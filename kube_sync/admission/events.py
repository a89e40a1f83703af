"""Tell of denials by Events.

A dry run leaves no trace, as the registration promises (`sideEffects: NoneOnDryRun`).
"""

from __future__ import annotations

from kube_sync.admission.regarding import occurrence
from kube_sync.admission.review import Review
from kube_sync.kube.eventrecorder import EventRecorder

CONTROLLER = "kube-sync.io/admission"


class Denials:
    """Whoever denies tells it here."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def denied(self, review: Review, outcome: str, reason: str) -> None:
        """Note that a request was refused, and why; never waits, never raises."""
        if not review.dry_run:
            self._recorder.occurred(occurrence(review, outcome, reason), review.namespace)
