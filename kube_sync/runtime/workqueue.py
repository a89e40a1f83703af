"""A queue of keys to reconcile, after client-go's workqueue.

Invariant: a key is processed at most once at a time; a key added while it is processed runs once
more afterwards; a key added several times before its turn runs once. It holds keys, never events. A
failed key is added again after a delay that grows with each failure of that key (client-go's
rate-limited requeue). `runtime.controller` is the loop that takes keys from it.

Groups of keys take turns (round robin), each in the order of its keys: one with thousands of keys
delays the next key of each other group by one key. client-go's queue has such an order as a part
that can be replaced (`workqueue.Queue`); multicluster-runtime puts in one that is fair to clusters.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

from kube_sync.observability import metrics
from kube_sync.runtime.backoff import Backoff

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """A queue of distinct keys with the metrics of client-go's; first in first out by group."""

    def __init__(
        self,
        name: str,
        backoff: Callable[[], Backoff] = Backoff,
        *,
        clock: Callable[[], float] = time.monotonic,
        group: Callable[[K], Hashable] = lambda _key: None,
    ) -> None:
        """`name` is the label of the metrics; `backoff` makes the back-off of a failing key.

        `group` returns the group of a key; all are in one by default.
        """
        self._waiting = _FairOrder(group)
        self._in_work: dict[K, float] = {}  # since when, as in the next
        self._again: dict[K, float] = {}
        self._claimed = 0  # keys that a worker takes as soon as it has a turn
        self._idle: deque[asyncio.Future[None]] = deque()  # workers that wait for a key
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

    @property
    def idle(self) -> bool:
        """Whether no key waits or is in processing; delayed ones do not count."""
        return len(self._waiting) == 0 and not self._in_work

    def __contains__(self, key: K) -> bool:
        """Whether `key` waits, is delayed or in processing, or failed last time."""
        known = (self._in_work, self._timers, self._failing, self._waiting)
        return any(key in keys for keys in known)

    def add(self, key: K) -> None:
        """Add `key`, to be reconciled as soon as possible."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if key in self._in_work:
            if key in self._again:
                return
            self._again[key] = self._clock()
        elif not self._wait(key, self._clock()):
            return
        self._adds.inc()

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

    async def get(self, turn: Callable[[], Awaitable[None]] | None = None) -> K:
        """Wait for a key; the caller has to call `done` once afterwards.

        `turn` is awaited when there is a key, before one is chosen: until then it waits in order.
        """
        while len(self._waiting) <= self._claimed:
            await self._news()
        if turn is not None:
            self._claimed += 1
            try:
                await turn()
            except BaseException:
                self._wake()  # another worker
                raise
            finally:
                self._claimed -= 1
        key, added = self._waiting.pop()
        now = self._in_work[key] = self._clock()
        self._queue_seconds.observe(now - added)
        return key

    def done(self, key: K) -> None:
        """Mark `key` as processed; if it was added meanwhile, it is queued again."""
        self._work_seconds.observe(self._clock() - self._in_work.pop(key))
        if (added := self._again.pop(key, None)) is not None:
            self._wait(key, added)

    def close(self) -> None:
        """Cancel all delayed adds."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def ages(self) -> list[float]:
        """Return for how many seconds each key has been in processing."""
        now = self._clock()
        return [now - since for since in self._in_work.values()]

    def _wait(self, key: K, since: float) -> bool:
        """Let a key wait; return whether it did not yet."""
        if added := self._waiting.add(key, since):
            self._wake()
        return added

    async def _news(self) -> None:
        """Wait until a key is added, as asyncio.Queue does: each wakes one worker."""
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        try:
            await idle
        except asyncio.CancelledError:
            if not idle.cancelled():
                self._wake()  # woken at the moment of the cancellation: another worker
            raise

    def _wake(self) -> None:
        while self._idle:
            if not (idle := self._idle.popleft()).done():  # else its worker was cancelled
                idle.set_result(None)
                return

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)


class _FairOrder(Generic[K]):
    """Waiting keys, each with the time since when; their groups take turns."""

    def __init__(self, group: Callable[[K], Hashable]) -> None:
        self._group = group
        # Not dicts: finding the first key would skip every key that was removed before it.
        self._groups: OrderedDict[Hashable, OrderedDict[K, float]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: K) -> bool:
        return key in self._groups.get(self._group(key), ())

    def add(self, key: K, since: float) -> bool:
        """Add a key as the last of its group; return False if it is there."""
        keys = self._groups.setdefault(self._group(key), OrderedDict())
        if key in keys:
            return False
        keys[key] = since
        self._count += 1
        return True

    def pop(self) -> tuple[K, float]:
        """Remove the first key of the group whose turn it is; the next one is the next group's."""
        group, keys = next(iter(self._groups.items()))
        found = keys.popitem(last=False)
        self._count -= 1
        if keys:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        return found


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
