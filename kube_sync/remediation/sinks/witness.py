"""Tell of nominations: Events on the Workload, and reports to the ledger, which `why` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kube_sync.decisions.records import Target
from kube_sync.errors import Refused, SyncError, Terminal
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import Occurrence, Reference, cut
from kube_sync.kube.kueue import WORKLOADS, Workload
from kube_sync.ledger.reports import Report, Values, shortened
from kube_sync.objects import ObjectKey
from kube_sync.remediation.audit_log import Reports
from kube_sync.remediation.plan import Unusable
from kube_sync.remediation.sinks.nomination import Nomination

FIELD: Final = "status.nominatedClusterNames"


class NominationWitness:
    """Writes Events, and reports each write before and after it."""

    def __init__(self, recorder: EventRecorder, reports: Reports) -> None:
        self._recorder = recorder
        self._reports = reports

    async def intend(self, key: ObjectKey, found: Workload, wanted: Nomination) -> str:
        """Report a write that is about to be sent, in bounded time; return a name for it."""
        name = self._reports.new_id()
        old, new = _values(found.nominated), _values(wanted.clusters)
        target = Target.of(WORKLOADS, key)
        await self._reports.deliver(Report(name, "intent", target, found.uid, old, new))
        return name

    def ended(self, name: str, key: ObjectKey, uid: str, reason: str) -> None:
        """Report a nomination that was written."""
        self._outcome(name, key, uid, "applied", reason)
        self._tell(key, uid, "Nominated", reason, warns=False)

    def failed(self, name: str, key: ObjectKey, uid: str, error: SyncError) -> None:
        """Report a nomination that was not written; tell of it what no retry helps soon."""
        if name:
            self._outcome(name, key, uid, "failed", str(error))
        if isinstance(error, Terminal | Refused):
            self._tell(key, uid, "NotNominated", str(error))

    def held(self, key: ObjectKey, uid: str, hold: Unusable) -> None:
        """Tell that no cluster can be nominated."""
        target, note = Target.of(WORKLOADS, key), shortened(hold.reason)
        name = self._reports.new_id()
        self._reports.enqueue(Report(name, "held", target, uid, status=hold.kind, note=note))
        self._tell(key, uid, "NotNominated", hold.reason)

    def _outcome(self, name: str, key: ObjectKey, uid: str, status: str, note: str) -> None:
        target, note = Target.of(WORKLOADS, key), shortened(note)
        self._reports.enqueue(Report(name, "outcome", target, uid, status=status, note=note))

    def _tell(self, key: ObjectKey, uid: str, what: str, note: str, *, warns: bool = True) -> None:
        regarding = Reference(WORKLOADS.api_version, "Workload", key.namespace, key.name, uid)
        reason = f"Remediation{what}"
        occurrence = Occurrence(regarding, None, reason, "Nominate", cut(note), warns)
        self._recorder.occurred(occurrence, key.namespace)


def _values(clusters: Sequence[str]) -> Values:
    return {FIELD: ",".join(clusters) or None}
