"""Controller that nominates worker clusters for Workloads of MultiKueue: an external dispatcher.

Level-based, with its own queue and watches: a reconcile compares what is nominated with what the
placement of the Workload and the state of the clusters come to (`nomination`), and writes the
difference. As the other sinks it follows the placement that the Workload has, once that is the
decided one: what holds the placement back (the guard, a missing approval, a mode) holds back the
nomination. It writes nothing while decisions are held, before everything that is compared has been
listed, or without the Lease. Runs until cancelled.

Since when a cluster is nominated is kept in memory: after a restart each has its whole time again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn, Protocol

import structlog

from kube_sync.errors import SyncError, Terminal
from kube_sync.guard.rivals import Rivals
from kube_sync.kube.cache import Cache, Changes
from kube_sync.kube.fencedwriter import Fenced, FencedWriter
from kube_sync.kube.kueue import WORKLOADS, Workload, workload_of
from kube_sync.kube.reflector import Store
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.remediation.decision_cache import DecisionCache, Key
from kube_sync.remediation.sinks.nomination import (
    Fleet,
    Hold,
    Nomination,
    Round,
    check_of,
    nominate,
    permitted,
    seconds_of,
)
from kube_sync.remediation.sinks.workers import Workers
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_RETRY_SECONDS = 0.1  # Kueue writes the same status, most often right before
_UNDECIDED_SECONDS = 3.0
_WRITES = ("enforce", "manual")
_RIVAL = Hold("rival", "another writer keeps changing the nominated clusters back")
_QUIET = ("not_applied",)  # over in a moment, or told of the placement itself


class Api(Protocol):
    """Reads and nominates; each method raises SyncError."""

    async def read(self, key: ObjectKey, uid: str) -> tuple[Workload, dict[str, Any]]:
        """Return a Workload as it is now, and its document."""
        ...

    async def nominate(
        self, key: ObjectKey, document: dict[str, Any], clusters: tuple[str, ...]
    ) -> None:
        """Set the nominated clusters of the Workload in the state that was read."""
        ...


class Witness(Protocol):
    """Tells people and the ledger what happens."""

    async def intend(self, key: ObjectKey, found: Workload, wanted: Nomination) -> str:
        """Record a write that is about to be sent, in bounded time; return a name for it."""
        ...

    def ended(self, name: str, key: ObjectKey, found: Workload, wanted: Nomination) -> None:
        """Record a nomination that was written."""
        ...

    def failed(self, name: str, key: ObjectKey, found: Workload, error: SyncError) -> None:
        """Record a nomination that was not written, or of which that is not known."""
        ...

    def held(self, key: ObjectKey, found: Workload, hold: Hold) -> None:
        """Record that no cluster can be nominated."""
        ...


class MultiKueueSink:
    """Reconciles the nominated clusters of Workloads with their placements."""

    def __init__(
        self,
        api: Api,
        decisions: DecisionCache,
        mode: Callable[[str], str],
        fenced: FencedWriter,
        witness: Witness,
        clock: Callable[[], float],
        *,
        seconds: float,
    ) -> None:
        """Take the mode of a namespace from `mode`; `seconds` until the next cluster is nominated.

        The caller wakes the sink when `fenced` may write again.
        """
        self._api = api
        self._decisions = decisions
        self._mode = mode
        self._fenced = fenced
        self._witness = witness
        self._clock = clock
        self._seconds = seconds
        self._queue = WorkQueue[ObjectKey]("multikueue", lambda: Backoff(_RETRY_SECONDS))
        self._rounds: dict[ObjectKey, Round] = {}
        self._undecided: dict[ObjectKey, float] = {}  # since when there is no decision
        self._held: dict[ObjectKey, Hold] = {}
        self._rivals = Rivals()
        self._workloads = Cache[Workload](workload_of, self._changed, self.wake)
        self.workers = Workers(self.wake)
        decisions.subscribe(self._decided, self.wake)

    @property
    def workloads(self) -> Store:
        """The Store for Workloads."""
        return self._workloads

    @property
    def held(self) -> Mapping[ObjectKey, Hold]:
        """The Workloads that no cluster can be nominated for, and why."""
        return self._held

    def wake(self) -> None:
        """Enqueue every Workload: a hold has ended, or this process may write now."""
        for key in self._workloads.objects:
            self._queue.add(key)

    async def run(self) -> NoReturn:
        """Reconcile until cancelled; several of these may run concurrently."""
        await work(self._queue, self._process)

    def _decided(self, keys: Iterable[Key]) -> None:
        for gvr, key in keys:
            if gvr == WORKLOADS:
                self._queue.add(key)

    def _changed(self, changes: Changes[Workload]) -> None:
        for key, (_, now) in changes.items():
            if now is None:
                self._forget(key)
                self._rivals.forget(key)
            else:
                self._queue.add(key)

    async def _process(self, key: ObjectKey) -> Result:
        """Reconcile one Workload; the end of whatever stops it here enqueues it again."""
        found, fleet = self._workloads.get(key), self.workers.fleet
        if found is None or fleet is None or not self._may_act(key):
            return Result()
        mode = self._mode(key.namespace)
        wanted = None if mode == "off" else self._plan(key, found, fleet)
        if wanted is None:
            self._forget(key)
            return Result()
        differs, truce = wanted.clusters != found.nominated, None
        if differs:
            truce = self._rivals.truce(key, _about(found, wanted), self._clock())
        self._set_hold(key, found, wanted.hold if truce is None else _RIVAL)
        if truce is not None:
            return Result(max(0.0, truce - self._clock()))
        if not differs:
            return self._await_next(key, found, wanted)
        if mode in _WRITES:
            return await self._write(key, found, fleet)
        metrics.multikueue_nominations.labels(mode).inc()
        log.info("not_nominated", key=str(key), clusters=wanted.clusters, mode=mode)
        return Result()

    def _may_act(self, key: ObjectKey) -> bool:
        decided = self._decisions.may_act((WORKLOADS, key))
        return self._workloads.served and decided and self._fenced.may_write

    def _plan(self, key: ObjectKey, found: Workload, fleet: Fleet) -> Nomination | None:
        if check_of(found, fleet) is None:
            return None
        order = permitted(self._decisions.get((WORKLOADS, key)), found)
        if order is None:
            return self._without_decision(key, found)
        self._undecided.pop(key, None)
        if isinstance(order, Hold):
            return Nomination(found.nominated, hold=order)
        seconds = seconds_of(found, self._seconds)
        return nominate(found, order, fleet, seconds, self._rounds.get(key), self._clock())

    def _without_decision(self, key: ObjectKey, found: Workload) -> Nomination:
        """Wait a little: the decision on a new Workload arrives after the Workload."""
        since = self._undecided.setdefault(key, self._clock())
        if (left := since + _UNDECIDED_SECONDS - self._clock()) > 0:
            return Nomination(found.nominated, seconds=left)
        return Nomination(found.nominated, hold=Hold("undecided", "no policy decides on it"))

    def _await_next(self, key: ObjectKey, found: Workload, wanted: Nomination) -> Result:
        """Note since when the last cluster is nominated; return when the next one is due."""
        if wanted.clusters:
            last, latest = wanted.clusters[-1], self._rounds.get(key)
            if latest is None or (latest.uid, latest.last) != (found.uid, last):
                self._rounds[key] = Round(found.uid, last, self._clock())
        return Result(wanted.seconds)

    async def _write(self, key: ObjectKey, found: Workload, fleet: Fleet) -> Result:
        """Nominate in the state that the Workload has now, which may be a later one."""
        name = ""
        try:
            found, document = await self._api.read(key, found.uid)
            wanted = self._plan(key, found, fleet)
            if wanted is None or wanted.clusters == found.nominated:
                return Result()  # the watch brings the later state
            name = await self._witness.intend(key, found, wanted)
            send = partial(self._api.nominate, key, document, wanted.clusters)
            await self._fenced.send("nominate", send)
        except SyncError as error:
            self._witness.failed(name, key, found, error)
            return self._failed(key, error)
        metrics.multikueue_nominations.labels("applied").inc()
        log.info("nominated", key=str(key), clusters=wanted.clusters, reason=wanted.reason)
        self._witness.ended(name, key, found, wanted)
        self._rivals.wrote(key, _about(found, wanted), self._clock())
        return self._await_next(key, found, wanted)

    @staticmethod
    def _failed(key: ObjectKey, error: SyncError) -> Result:
        """Count a failed write. Raises the error if a retry can help."""
        outcome = "retried"
        if isinstance(error, Fenced):
            outcome = "fenced"
        elif isinstance(error, Terminal):
            outcome = "refused"
        metrics.multikueue_nominations.labels(outcome).inc()
        log.warning("nomination_failed", key=str(key), outcome=outcome, error=str(error))
        if outcome == "refused":
            return Result()
        raise error

    def _set_hold(self, key: ObjectKey, found: Workload, hold: Hold | None) -> None:
        before = self._held.get(key)
        if before == hold:
            return
        if before is not None:
            del self._held[key]
            metrics.multikueue_held.labels(before.code).dec()
        if hold is not None:
            self._held[key] = hold
            metrics.multikueue_held.labels(hold.code).inc()
            log.info("nomination_held", key=str(key), code=hold.code, reason=hold.reason)
            if hold.code not in _QUIET:
                self._witness.held(key, found, hold)

    def _forget(self, key: ObjectKey) -> None:
        """Forget a Workload that needs no nomination."""
        self._rounds.pop(key, None)
        self._undecided.pop(key, None)
        if (hold := self._held.pop(key, None)) is not None:
            metrics.multikueue_held.labels(hold.code).dec()


def _about(found: Workload, wanted: Nomination) -> tuple[str, tuple[str, ...]]:
    # With the uid: a new Workload of the same name has no rivals yet.
    return found.uid, wanted.clusters
