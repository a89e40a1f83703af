"""Admits as many concurrent requests to a server as its limit allows; the others wait in order.

Invariant: no more are in flight than the limit at the moment when one begins, and none begins while
the server's Retry-After lasts. Those that wait are admitted first come, first served. A cancelled
one that was just admitted passes its turn on.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from prometheus_client import Gauge

from kube_sync.runtime.aimd import HIGHEST, LOWEST, Aimd

# No server delays all requests for longer by one answer; the refused one waits as long as asked.
_LONGEST_PAUSE_SECONDS = 30.0


class Concurrency:
    """The requests to one server that are in flight, and those that wait for their turn."""

    def __init__(
        self,
        fixed: int | None = None,
        shown: Gauge | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Allow `fixed` concurrent requests; None: as many as `Aimd` finds. `shown` is the limit.

        `clock` is monotonic, in seconds.
        """
        self.highest = HIGHEST if fixed is None else fixed
        self._aimd = Aimd(LOWEST if fixed is None else fixed, self.highest)
        self._shown = shown
        self._clock = clock
        self._in_flight = 0
        self._paused_until = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._show()

    @property
    def limit(self) -> int:
        """The number of requests that may be in flight."""
        return self._aimd.limit

    @property
    def in_flight(self) -> int:
        """The number of requests that are in flight."""
        return self._in_flight

    def now(self) -> float:
        """Return the present time, to report when a request started."""
        return self._clock()

    async def acquire(self) -> None:
        """Wait for a turn; the caller has to call `release` once afterwards."""
        if not self._waiters and self._is_free():
            self._in_flight += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # admitted at the moment of the cancellation
            else:
                with suppress(ValueError):
                    self._waiters.remove(turn)
            raise

    def release(self) -> None:
        """End a turn."""
        self._in_flight -= 1
        self._admit()

    def answered(self, started: float) -> None:
        """Record a success of the request that started then."""
        self._aimd.answered(started, self._clock(), self._in_flight)
        self._show()

    def overloaded(self, started: float, retry_after: float | None = None) -> None:
        """Record that the server refused a request because of its load, or did not answer it.

        `retry_after`: it wants no request for so many seconds.
        """
        now = self._clock()
        self._aimd.overloaded(started, now)
        self._show()
        if retry_after:
            self._pause(now + min(retry_after, _LONGEST_PAUSE_SECONDS))

    def close(self) -> None:
        """Cancel the timer of a pause."""
        if self._timer is not None:
            self._timer.cancel()

    def _pause(self, until: float) -> None:
        if until > self._paused_until:
            self.close()
            self._paused_until = until
            seconds = until - self._clock()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._resume, until)

    def _resume(self, until: float) -> None:
        if until == self._paused_until:
            self._paused_until = -math.inf  # by the loop's timer: the clocks differ by a moment
        self._admit()

    def _is_free(self) -> bool:
        return self._in_flight < self.limit and self._paused_until == -math.inf

    def _admit(self) -> None:
        while self._waiters and self._is_free():
            turn = self._waiters.popleft()
            if not turn.done():
                self._in_flight += 1
                turn.set_result(None)

    def _show(self) -> None:
        if self._shown is not None:
            self._shown.set(self.limit)
