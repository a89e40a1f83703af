"""Records Kubernetes Events in the background, after client-go's EventRecorder.

Invariant: `occurred` only enqueues and never blocks, all memory is bounded, and each dropped Event
is counted. A repeated occurrence raises the count of the existing Event, written every few seconds
at most. New Events and counts are rate-limited for each object and each namespace, so that one
cannot use up the share of others. What is queued when the process ends is lost: an Event is a
notification, not a record.
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
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_OVER_SECONDS = 360.0  # without a repetition end a series, as in client-go
_COUNT_SECONDS = 5.0  # between two writes of one series
_KNOWN = 1000  # series, the latest; also namespaces and objects
_WAITING = 500  # series that wait to be written
_ALL = (10.0, 100.0)  # new Events of all: per second, and burst
_ONE = (1.0, 25.0)  # the same for one namespace; 25 as in client-go's spam filter
_OBJECT = (1 / 60, 10.0)  # the same for one object; client-go aggregates more than 10
_COUNTS = (1.0, 5.0)  # count updates of one namespace
_WRITE_SECONDS = 5.0
_TRIES = 4
_AGAIN_SECONDS = 2.0


class TokenBucket:
    """A bucket of `burst` tokens, refilled at `rate` tokens a second."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._at = clock()

    def has(self) -> bool:
        """Whether a token is available."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return self._tokens >= 1

    def take(self) -> bool:
        """Take a token; return false when there is none."""
        if not self.has():
            return False
        self._tokens -= 1
        return True


K = TypeVar("K")


class _Shares(Generic[K]):
    """One token bucket for each key; the least recently used are dropped."""

    def __init__(self, share: tuple[float, float], clock: Callable[[], float]) -> None:
        self._share = share
        self._clock = clock
        self._each: OrderedDict[K, TokenBucket] = OrderedDict()

    def of(self, key: K) -> TokenBucket:
        """Return the token bucket of a key."""
        bucket = self._each.setdefault(key, TokenBucket(*self._share, self._clock))
        self._each.move_to_end(key)
        if len(self._each) > _KNOWN:
            self._each.popitem(last=False)
        return bucket


@dataclass(slots=True)
class _Series:
    """The wanted state of one Event, and how much of it has been written."""

    namespace: str  # the namespace whose rate limit it uses
    first: datetime
    last: datetime
    at: float  # as `last`, on the monotonic clock
    name: str = ""
    count: int = 1
    written: int = 0


class EventRecorder:
    """Queues occurrences and writes them as Events, within the rate limits."""

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
        """`counter` counts Events by outcome."""
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
        """Enqueue an occurrence in a namespace; never blocks, never raises."""
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
        """Write queued Events until cancelled."""
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
        """Take a token of the object, of the namespace and of the total."""
        # An object that was to be created is reported on a related object, which others report on
        # too.
        about = self._objects.of(what.related or what.regarding)
        one = self._each.of(namespace)
        if not (self._all.has() and one.has() and about.has()):
            return False
        return about.take() and one.take() and self._all.take()

    def _may_count(self, namespace: str) -> bool:
        """Take a token for a count update, so that endless series leave tokens for new ones."""
        return self._all.has() and self._counts.of(namespace).take() and self._all.take()

    async def _reconcile(self, what: Occurrence) -> Result:
        series = self._series.get(what)
        if series is None or series.written >= series.count:  # dropped, or already written
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
            self._failed(what, _outcome(error), str(error))
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

    def _failed(self, what: Occurrence, outcome: str, reason: str) -> None:
        """Drop one series; the next occurrence starts a new one."""
        self._series.pop(what, None)
        self._counter.labels(outcome).inc()
        if outcome not in self._complained:
            self._complained.add(outcome)
            log.warning("event_not_written", outcome=outcome, reason=reason)


def _constant() -> Backoff:
    return Backoff(_AGAIN_SECONDS, _AGAIN_SECONDS, jitter=lambda: 1.0)


def _outcome(error: SyncError) -> str:
    match error:
        case Refused():
            # The API server's message for a namespace that is being deleted.
            return "terminating" if "being terminated" in str(error) else "refused"
        case NotFound():
            return "no_namespace"
        case _:
            return "invalid"
