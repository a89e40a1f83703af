"""The metrics of decision classes, and the log line about objects that share no decision."""

from __future__ import annotations

import structlog

from kube_sync.decisions.classes import Objects
from kube_sync.observability import metrics
from kube_sync.opa.analysis.result import Reads

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class ClassMetrics:
    """The metrics of all collections whose objects are decided on."""

    def __init__(self) -> None:
        self._unshared: set[str] = set()

    def update(
        self, collection: Objects, reads: Reads | None, *, may_share: bool, is_deciding: bool
    ) -> None:
        """Update the metrics of a collection, and log if no objects share a decision."""
        members, count = collection.members, collection.object_count
        all_differ = members.known == members.classes == count
        is_unshared = (
            is_deciding
            and count > 1
            and (all_differ or not may_share or not members.is_classifying)
        )
        classes = members.classes + count - members.known if may_share else count
        metrics.decision_classes.labels(collection.name).set(classes)
        metrics.decision_unshared.labels(collection.name).set(is_unshared)
        if is_unshared and collection.name not in self._unshared:
            log.info("decisions_unshared", resource=collection.name, reason=_unshared_reason(reads))
        (self._unshared.add if is_unshared else self._unshared.discard)(collection.name)

    def forget(self, name: str) -> None:
        """Remove the metrics of a collection."""
        self._unshared.discard(name)
        for metric in (metrics.decision_classes, metrics.decision_unshared):
            metric.remove(name)


def _unshared_reason(reads: Reads | None) -> str:
    if reads is None or reads.gave_up is not None:
        return "the policies could not be analysed"
    if reads.impure:
        return f"decided by {', '.join(reads.impure)}"
    return "the objects differ in what is read of them"
