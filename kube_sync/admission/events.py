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

    def __init__(self, recorder: EventRecorder, about: str = "Placement") -> None:
        """`about` is what is denied, as the first word of the Events' reasons."""
        self._about = about
        self._recorder = recorder

    def denied(self, review: Review, outcome: str, reason: str) -> None:
        """Note that a request was refused, and why; never waits, never raises."""
        if not review.dry_run:
            found = occurrence(review, outcome, reason, self._about)
            self._recorder.occurred(found, review.namespace)
