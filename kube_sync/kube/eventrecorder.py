"""Tell of what happened by Events, beside what they are about.

Keeps true: telling takes nobody's time (`occurred` only notes it), nothing here grows without
bound, and what is not told is counted. The same again is no Event more but a higher count in the
one that there is, written every few seconds at most. Nobody who has one object, or one namespace,
takes the Events of others: both have a share, of new ones and of what is counted. What is noted
when the process ends is lost: an Event is news, not a record.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, NoReturn, TypeVar

import structlog
from prometheus_client import Counter

from kube_sync.errors import Conflict, NotFound, Refused, Retriable, SyncError
from kube_sync.kube.client import KubeClient
from kube_sync.kube.events import (
    Occurrence,
    Reference,
    Reporter,
    count_event,
    create_event,
    event_name,
)
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.tokenbucket import TokenBucket
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_OVER_SECONDS = 360.0  # of silence end a series, as in client-go
_COUNT_SECONDS = 5.0  # between two writes of one series
_KNOWN = 1000  # series, the latest; also namespaces and objects
_WAITING = 500  # series that are to be written
_ALL = (10.0, 100.0)  # new Events: a second, and at once
_ONE = (1.0, 25.0)  # likewise in one namespace; 25 as in client-go's spam filter
_OBJECT = (1 / 60, 10.0)  # likewise about one object; client-go combines what is more than 10
_COUNTS = (1.0, 5.0)  # counts that are written, of one namespace
_WRITE_SECONDS = 5.0
_TRIES = 4
_AGAIN_SECONDS = 2.0


K = TypeVar("K")


class _Shares(Generic[K]):
    """A bucket for each, of the latest that took from theirs."""

    def __init__(self, share: tuple[float, float], clock: Callable[[], float]) -> None:
        self._share = share
        self._clock = clock
        self._each: OrderedDict[K, TokenBucket] = OrderedDict()

    def of(self, key: K) -> TokenBucket:
        """Return the bucket of one."""
        bucket = self._each.setdefault(key, TokenBucket(*self._share, self._clock))
        self._each.move_to_end(key)
        if len(self._each) > _KNOWN:
            self._each.popitem(last=False)
        return bucket


@dataclass(slots=True)
class _Series:
    """One Event as it should be, and how much of that the API server holds."""

    namespace: str  # whose share it takes
    first: datetime
    last: datetime
    at: float  # as `last`, on the monotonic clock
    name: str = ""
    count: int = 1
    written: int = 0


class EventRecorder:
    """Whoever has something to tell tells it here; it writes when it may."""

    def __init__(
        self,
        client: KubeClient,
        reporter: Reporter,
        counter: Counter,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        nanoseconds: Callable[[], int] = time.time_ns,
    ) -> None:
        """`counter` counts by outcome what becomes of the Events."""
        self._client = client
        self._reporter = reporter
        self._counter = counter
        self._clock = clock
        self._now = now
        self._nanoseconds = nanoseconds
        self._series: OrderedDict[Occurrence, _Series] = OrderedDict()
        who = reporter.controller.rpartition("/")[2]
        self._queue = WorkQueue[Occurrence](f"{who}_events", _constant)
        self._all = TokenBucket(*_ALL, clock)
        self._each = _Shares[str](_ONE, clock)
        self._objects = _Shares[Reference](_OBJECT, clock)
        self._counts = _Shares[str](_COUNTS, clock)
        self._complained: set[str] = set()

    def occurred(self, what: Occurrence, namespace: str) -> None:
        """Note that something happened in a namespace; never waits, never raises."""
        at = self._clock()
        series = self._series.get(what)
        if series is not None and at - series.at <= _OVER_SECONDS:
            series.count, series.last, series.at = series.count + 1, self._now(), at
            self._series.move_to_end(what)
            self._queue.add_after(what, _COUNT_SECONDS)
        elif not self._may(what, namespace):
            self._counter.labels("dropped_rate").inc()
        elif len(self._queue) >= _WAITING:
            self._counter.labels("dropped_queue").inc()
        else:
            self._begin(what, namespace, at)

    async def run(self) -> NoReturn:
        """Write what was noted, until cancelled."""
        await work(self._queue, self._reconcile)

    def _begin(self, what: Occurrence, namespace: str, at: float) -> None:
        moment = self._now()
        name = event_name(what, self._nanoseconds())
        self._series[what] = _Series(namespace, moment, moment, at, name)
        self._series.move_to_end(what)
        if len(self._series) > _KNOWN:
            self._series.popitem(last=False)
        self._queue.add(what)

    def _may(self, what: Occurrence, namespace: str) -> bool:
        """Take a token of the object, one of the namespace and one of all."""
        # What was to be created is told about an object that others are told about, too.
        about = self._objects.of(what.related or what.regarding)
        one = self._each.of(namespace)
        if not (self._all.has() and one.has() and about.has()):
            return False
        return about.take() and one.take() and self._all.take()

    def _may_count(self, namespace: str) -> bool:
        """Take a token for a count: series that never end leave new ones of others theirs."""
        return self._all.has() and self._counts.of(namespace).take() and self._all.take()

    async def _reconcile(self, what: Occurrence) -> Result:
        series = self._series.get(what)
        if series is None or series.written >= series.count:  # forgotten, or told already
            return Result()
        if series.written and not self._may_count(series.namespace):
            return Result(_COUNT_SECONDS)
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await self._write(what, series)
        except (Retriable, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            if self._queue.num_requeues(what) + 1 < _TRIES:
                raise Retriable(reason) from error
            self._failed(what, "unavailable", reason)
        except SyncError as error:
            self._failed(what, _word(error), str(error))
        return Result()

    async def _write(self, what: Occurrence, series: _Series) -> None:
        count, outcome = series.count, "counted" if series.written else "created"
        if series.written:
            try:
                await count_event(self._client, series.name, what, series.last, count)
            except NotFound:  # Events expire, after an hour as a rule
                series.name, outcome = event_name(what, self._nanoseconds()), "created"
                await self._create(what, series, count)
        else:
            await self._create(what, series, count)
        series.written = count
        self._counter.labels(outcome).inc()

    async def _create(self, what: Occurrence, series: _Series, count: int) -> None:
        try:
            await create_event(
                self._client,
                series.name,
                what,
                self._reporter,
                first=series.first,
                last=series.last,
                count=count,
            )
        except Conflict:
            # Ours: nobody else has this name. The answer to an earlier try was lost.
            log.debug("event_was_there", name=series.name)

    def _failed(self, what: Occurrence, word: str, reason: str) -> None:
        """Give one series up; what happens after this begins anew."""
        self._series.pop(what, None)
        self._counter.labels(word).inc()
        if word not in self._complained:
            self._complained.add(word)
            log.warning("event_not_written", outcome=word, reason=reason)


def _constant() -> Backoff:
    return Backoff(_AGAIN_SECONDS, _AGAIN_SECONDS, jitter=lambda: 1.0)


def _word(error: SyncError) -> str:
    match error:
        case Refused():
            # The API server's own words, for a namespace that is on its way out.
            return "terminating" if "being terminated" in str(error) else "refused"
        case NotFound():
            return "no_namespace"
        case _:
            return "invalid"
