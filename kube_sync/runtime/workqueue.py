"""A queue of keys to reconcile, after client-go's workqueue.

Invariant: a key is processed at most once at a time; a key added while it is processed runs once
more afterwards; a key added several times before its turn runs once. It holds keys, never events. A
failed key is added again after a delay that grows with each failure of that key (client-go's
rate-limited requeue). `runtime.controller` is the loop that takes keys from it.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from kube_sync.observability import metrics
from kube_sync.runtime.backoff import Backoff

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """A first-in first-out queue of distinct keys, with the metrics of client-go's workqueue."""

    def __init__(
        self,
        name: str,
        backoff: Callable[[], Backoff] = Backoff,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name` is the label of the metrics; `backoff` makes the back-off of a failing key."""
        # Not a dict: finding its first key would skip every key that was removed before it.
        self._waiting: OrderedDict[K, float] = OrderedDict()  # since when, as in the next two
        self._in_work: dict[K, float] = {}
        self._again: dict[K, float] = {}
        self._changed = asyncio.Event()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failing: dict[K, Backoff] = {}
        self._backoff = backoff
        self._clock = clock
        # Resolved once: labels() takes longer than everything else that the queue does with a key.
        self._adds = metrics.workqueue_adds.labels(name)
        self._retries = metrics.workqueue_retries.labels(name)
        self._queue_seconds = metrics.workqueue_queue_duration_seconds.labels(name)
        self._work_seconds = metrics.workqueue_work_duration_seconds.labels(name)
        _set_gauges(name, self)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Add `key`, to be reconciled as soon as possible."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        waiting = self._again if key in self._in_work else self._waiting
        if key in waiting:
            return
        waiting[key] = self._clock()
        self._adds.inc()
        self._changed.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Add `key` after a delay; of several the shortest counts, and an `add` replaces it."""
        if key in self._waiting:
            return
        loop, known = asyncio.get_running_loop(), self._timers.get(key)
        if known is not None:
            if known.when() <= loop.time() + seconds:
                return
            known.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def add_rate_limited(self, key: K, at_least: float | None = None) -> None:
        """Add `key` after its next back-off; `at_least` is the server's minimum, in seconds."""
        self._retries.inc()
        if (backoff := self._failing.get(key)) is None:
            backoff = self._failing[key] = self._backoff()
        self.add_after(key, max(backoff.next_delay(), at_least or 0.0))

    def forget(self, key: K) -> None:
        """Reset the back-off of `key`."""
        self._failing.pop(key, None)

    def num_requeues(self, key: K) -> int:
        """Return how often `key` was added rate-limited since it was last forgotten."""
        backoff = self._failing.get(key)
        return 0 if backoff is None else backoff.failures

    async def get(self) -> K:
        """Wait for a key; the caller has to call `done` once afterwards."""
        while not self._waiting:
            self._changed.clear()
            await self._changed.wait()
        key, added = self._waiting.popitem(last=False)
        now = self._in_work[key] = self._clock()
        self._queue_seconds.observe(now - added)
        return key

    def done(self, key: K) -> None:
        """Mark `key` as processed; if it was added meanwhile, it is queued again."""
        self._work_seconds.observe(self._clock() - self._in_work.pop(key))
        if (added := self._again.pop(key, None)) is not None:
            self._waiting[key] = added
            self._changed.set()

    def close(self) -> None:
        """Cancel all delayed adds."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def ages(self) -> list[float]:
        """Return for how many seconds each key has been in processing."""
        now = self._clock()
        return [now - since for since in self._in_work.values()]

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)


def _set_gauges(name: str, queue: WorkQueue[Any]) -> None:
    """Make gauges read the queue when they are scraped, so that they cost nothing before.

    Of several queues of one name, each replacing the one before, the last one is read.
    """
    known = weakref.ref(queue)

    def read(of: Callable[[WorkQueue[Any]], float]) -> Callable[[], float]:
        return lambda: 0.0 if (found := known()) is None else of(found)

    metrics.workqueue_depth.labels(name).set_function(read(len))
    metrics.workqueue_unfinished_work_seconds.labels(name).set_function(
        read(lambda found: sum(found.ages()))
    )
    metrics.workqueue_longest_running_processor_seconds.labels(name).set_function(
        read(lambda found: max(found.ages(), default=0.0))
    )
