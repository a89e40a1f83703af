"""Graceful shutdown of a server: first unready, then no new connections, then closed.

Kubernetes removes a terminating pod from its Service only a moment after it signals the
pod, and a client that keeps connections does not repeat a POST when one closes under it. So the
process becomes unready and continues to serve for a moment, each answer asking for a new
connection (`Connection: close`); then it accepts nothing new; then the requests in progress end.
It does not know its clients: a connection that was idle all the while may be used in the
very moment in which it is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log: structlog.stdlib.BoundLogger = structlog.get_logger()

CONDITION = "serving"
_NOTICE_SECONDS = 3.0  # until clients have noticed that this process is terminating
_LATE_SECONDS = 0.25  # for connections that were accepted last, and have not sent their request yet

Stop = Callable[[], Awaitable[object]]


class Drain:
    """The shutdown of one process' server: its requests in progress, and the order of closing."""

    def __init__(
        self,
        seconds: float,
        waiting: Callable[[str, str], None],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Wait at most `seconds` for answers; `waiting` takes a condition of readiness and why."""
        self._seconds = seconds
        self._waiting = waiting
        self._sleep = sleep
        self._stop: Stop | None = None
        self._in_progress = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    def shuts(self, stop: Stop) -> None:
        """Set the function that stops accepting; without it there is nothing to drain."""
        self._stop = stop

    def began(self) -> None:
        """Count a request that has arrived."""
        self._in_progress += 1
        self._idle.clear()

    def ended(self) -> None:
        """Count a request that is answered."""
        self._in_progress -= 1
        if not self._in_progress:
            self._idle.set()

    async def run(self) -> None:
        """Return when all requests are answered, or the time for that is over."""
        if self._stop is None:
            return
        self.draining = True
        self._waiting(CONDITION, "stopping")
        await self._sleep(min(self._seconds, _NOTICE_SECONDS))
        await self._stop()
        await self._sleep(_LATE_SECONDS)
        try:
            async with asyncio.timeout(self._seconds):
                await self._idle.wait()
        except TimeoutError:
            log.warning("requests_cut_off", requests=self._in_progress, after=self._seconds)
        else:
            log.info("drained")


def undrained() -> Drain:
    """Return a drain for a server that ends without notice."""
    return Drain(0.0, lambda _condition, _reason: None)
