"""The sink that nominates worker clusters for Workloads of MultiKueue: an external dispatcher.

It follows the annotations of the Workload: what holds the placement back holds back the nomination.
What is nominated is compared with what the placement and the state of the clusters come to
(`nomination`). Unlike other sinks it has limits of time: the next cluster is due after a while, and
another writer that keeps changing the nominations back is left alone for a while. Since when the
clusters are nominated is on the Workload, so a restart does not begin that anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import structlog

from kube_sync.decisions.decision import PLACEMENT
from kube_sync.errors import SyncError
from kube_sync.guard.rivals import Rivals
from kube_sync.kube.cache import Cache, Changes
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.kueue import WORKLOADS, Workload, workload_of
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Decided, Nothing, Publish, Step, Unusable, Write
from kube_sync.remediation.sinks.nomination import (
    Nomination,
    Permitted,
    check_of,
    nominate,
    permitted,
)
from kube_sync.remediation.sinks.placement import kept
from kube_sync.remediation.sinks.sink import Changed
from kube_sync.remediation.sinks.workers import Workers

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_UNDECIDED_SECONDS = 3.0
_UNDECIDED = Unusable("undecided", "no policy decides on it")
_RIVAL = Unusable("rival", "another writer keeps changing the nominated clusters back")
_QUIET = ("not_applied",)  # over in a moment, or told of the placement itself


class Api(Protocol):
    """Reads and nominates; each method raises SyncError."""

    async def read(self, key: ObjectKey, uid: str) -> tuple[Workload, dict[str, Any]]:
        """Return a Workload as it is now, and its document."""

    async def nominate(
        self, key: ObjectKey, document: dict[str, Any], clusters: tuple[str, ...]
    ) -> None:
        """Set the nominated clusters of the Workload in the state that was read."""


class Witness(Protocol):
    """Tells people and the ledger what happens to the Workload with a key and a uid."""

    async def intend(self, key: ObjectKey, found: Workload, wanted: Nomination) -> str:
        """Record a write that is about to be sent, in bounded time; return a name for it."""

    def ended(self, name: str, key: ObjectKey, uid: str, reason: str) -> None:
        """Record a nomination that was written."""

    def failed(self, name: str, key: ObjectKey, uid: str, error: SyncError) -> None:
        """Record a nomination that was not written, or of which that is not known."""

    def held(self, key: ObjectKey, uid: str, hold: Unusable) -> None:
        """Record that no cluster can be nominated."""


class MultiKueueSink:
    """Nominates the clusters that decisions permit."""

    name = "multikueue"

    def __init__(
        self,
        api: Api,
        fenced: FencedWriter,
        witness: Witness,
        clock: Callable[[], float],
        *,
        seconds: float,
    ) -> None:
        """`clock` returns Unix seconds; `seconds`: until the next cluster is nominated."""
        self._api = api
        self._fenced = fenced
        self._witness = witness
        self._clock = clock
        self._seconds = seconds
        self._subscribers: list[Changed] = []
        self._held: dict[ObjectKey, Unusable] = {}
        self._rivals = Rivals()
        self.workloads = Cache[Workload](workload_of, self._differ, self._notify)
        self.workers = Workers(self._notify)

    @property
    def unknown(self) -> str:
        """What has not been listed yet."""
        known = self.workloads.served and self.workers.fleet is not None
        return "" if known else "clusters of MultiKueue"

    def subscribe(self, changed: Changed) -> None:
        """Call `changed` with Workloads that differ, and with all if the clusters do."""
        self._subscribers.append(changed)

    def keys(self) -> list[Key]:
        """Return all Workloads, since one without a decision has to be told of."""
        return [(WORKLOADS, key) for key in self.workloads.objects]

    def read(self, key: Key, target: Current) -> Current:
        """Return the Workload with its nominated clusters as its placement."""
        found = self.workloads.get(key[1])
        clusters = () if found is None or found.uid != target.uid else found.nominated
        return kept(target, clusters or None, version=target.version)

    def plan(self, key: Key, wanted: Decided, current: Current | None) -> Step:
        """Return the nomination to write, or tell once why there can be none.

        The content of the step is what the decision permits.
        """
        found = self.workloads.get(key[1])
        if current is None or found is None or found.uid != current.uid:
            return Nothing()
        step = self._plan(key[1], found, wanted)
        self._tell(key[1], found, step)
        return step

    def _plan(self, key: ObjectKey, found: Workload, wanted: Decided) -> Step:
        fleet, now = self.workers.fleet, self._clock()
        if fleet is None or check_of(found, fleet) is None:
            return Nothing()
        policy = self._permitted(found, wanted, now)
        if not isinstance(policy, Permitted):
            return policy
        if (nomination := nominate(found, policy, fleet, now)) is None:
            return Nothing()
        if nomination.clusters == found.nominated:
            return nomination.hold or Nothing(nomination.seconds)
        if (truce := self._rivals.truce(key, _about(found, nomination), now)) is not None:
            return replace(_RIVAL, again=max(0.0, truce - now))
        names = ",".join(nomination.clusters)
        return Publish(found.uid, {PLACEMENT: names or None}, content=policy)

    def _permitted(
        self, found: Workload, wanted: Decided, now: float
    ) -> Permitted | Unusable | Nothing:
        if isinstance(wanted, Unusable):
            return wanted
        if wanted is not None:
            return permitted(wanted, self._seconds)
        # The decision on a new Workload arrives after the Workload.
        left = found.created_at + _UNDECIDED_SECONDS - now
        return Nothing(left) if left > 0 else _UNDECIDED

    async def write(self, key: Key, step: Write) -> None:
        """Nominate in the state that the Workload has now, which may be a later one.

        Raises SyncError.
        """
        if not (isinstance(step, Publish) and isinstance(step.content, Permitted)):
            msg = f"not a step of {self.name}: {step}"
            raise TypeError(msg)
        place, name = key[1], ""
        try:
            found, document = await self._api.read(place, step.uid)
            fleet, now = self.workers.fleet, self._clock()
            wanted = None if fleet is None else nominate(found, step.content, fleet, now)
            if wanted is None or wanted.clusters == found.nominated:
                return  # the watch brings the later state
            name = await self._witness.intend(place, found, wanted)
            send = partial(self._api.nominate, place, document, wanted.clusters)
            await self._fenced.send("nominate", send)
        except SyncError as error:
            self._witness.failed(name, place, step.uid, error)
            raise
        metrics.placement_decision_writes.labels(self.name, "applied").inc()
        log.info("nominated", key=str(place), clusters=wanted.clusters, reason=wanted.reason)
        self._witness.ended(name, place, step.uid, wanted.reason)
        self._rivals.wrote(place, _about(found, wanted), self._clock())

    def _tell(self, key: ObjectKey, found: Workload, step: Step) -> None:
        """Tell why no cluster can be nominated, once."""
        if not isinstance(step, Unusable):
            self._held.pop(key, None)
        elif self._held.get(key) != step:
            self._held[key] = step
            if step.kind not in _QUIET:
                self._witness.held(key, found.uid, step)

    def _differ(self, changes: Changes[Workload]) -> None:
        for key, (_, now) in changes.items():
            if now is None:
                self._held.pop(key, None)
                self._rivals.forget(key)
        keys = [(WORKLOADS, key) for key in changes]
        for changed in self._subscribers:
            changed(keys)

    def _notify(self) -> None:
        for changed in self._subscribers:
            changed(None)


def _about(found: Workload, wanted: Nomination) -> tuple[str, tuple[str, ...]]:
    # With the uid: a new Workload of the same name has no rivals yet.
    return found.uid, wanted.clusters
