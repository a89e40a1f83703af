"""Circuit breaker for a policy engine: while the engine is down, requests fail at once.

It opens after several failed attempts in a row, for at least a second: requests that fail together
within one restart of the engine prove nothing, and their retries outlast it. While it is open, one
probe at a time is sent, and the first answer closes it. A probe has an empty input, since a review
that takes a policy long depends on its object and does not show that the engine is down. Reviews
that arrive meanwhile wait for the probe, half a second at most: an engine that is back answers
within that, and one that hangs does not delay every review. There is no pause between probes: a
refused connection is cheap, and a pause would delay the recovery.

Any answer closes it, also an evaluation error. The engine is probed periodically, so that its state
is known before the first review, and more often while it is down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn, Protocol, TypeVar

import structlog
from prometheus_client import Gauge

from kube_sync.admission.engine_errors import Failed, NoAnswer, Why
from kube_sync.errors import SyncError
from kube_sync.observability import metrics
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

T = TypeVar("T")

_FAILURES = 5
_SILENCE = 1.0  # seconds
_PATIENCE = 0.5  # seconds
# A probe that was under way when a review arrived may have begun before the engine was back, so its
# failure alone does not deny the review; that of the next one does.
_WAITS = 2


class Breaker:
    """Whether one engine is down."""

    def __init__(
        self,
        where: str,
        clock: Callable[[], float] = time.monotonic,
        down: Gauge = metrics.admission_engine_down,
    ) -> None:
        """`where` names the engine in denials; the gauge `down` is 1 while it is down."""
        self._down_gauge = down
        self._where = where
        self._clock = clock
        self._failures = 0  # since the last answer
        self._since = 0.0  # time of the first failure
        self._last: tuple[Why, str] = ("unreachable", where)
        self._trial: asyncio.Future[None] | None = None
        self.is_open = False

    async def run(
        self,
        attempt: Callable[[], Awaitable[T]],
        probe: Callable[[], Awaitable[object]] | None = None,
    ) -> T:
        """Run the attempt; raise Failed at once while the engine is down.

        `probe` tests whether it still is, None: the attempt does. Raises what `attempt` raises.
        """
        now, waits = asyncio.get_running_loop().time, 0
        end = now() + _PATIENCE
        while self.is_open:
            if waits == _WAITS:
                raise self._down()
            if self._trial is None:
                if probe is None:
                    return await self._try(attempt)
                await self._find_out(probe)
                break
            done, _ = await asyncio.wait([self._trial], timeout=end - now())
            if not done:
                raise self._down()
            waits += 1
        return await self._watched(attempt)

    async def _find_out(self, probe: Callable[[], Awaitable[object]]) -> None:
        """Raise Failed if there is no answer; other errors are left to the attempt itself."""
        try:
            await self._try(probe)
        except SyncError:
            if self.is_open:
                raise

    async def _try(self, attempt: Callable[[], Awaitable[T]]) -> T:
        self._trial = trial = asyncio.get_running_loop().create_future()
        try:
            return await self._watched(attempt)
        except NoAnswer as error:
            raise self._down() from error
        finally:
            self._trial = None
            trial.set_result(None)

    async def _watched(self, attempt: Callable[[], Awaitable[T]]) -> T:
        try:
            result = await attempt()
        except NoAnswer as error:
            self._failed(error.why, str(error))
            raise
        except asyncio.CancelledError:
            # The review's time-out: whatever its length, the engine did not answer within it.
            self._failed("timeout", f"{self._where}: no answer in time")
            raise
        except SyncError:
            self._answered()
            raise
        self._answered()
        return result

    def _failed(self, why: Why, reason: str) -> None:
        now = self._clock()
        if self._failures == 0:
            self._since = now
        self._failures += 1
        self._last = (why, reason)
        if not self.is_open and self._failures >= _FAILURES and now - self._since >= _SILENCE:
            self.is_open = True
            self._down_gauge.set(1)
            log.warning("engine_down", reason=reason, failures=self._failures)

    def _answered(self) -> None:
        self._failures = 0
        if self.is_open:
            self.is_open = False
            self._down_gauge.set(0)
            log.info("engine_answers_again")

    def _down(self) -> Failed:
        why, reason = self._last
        msg = f"{reason}; known to be down ({self._failures} attempts without an answer)"
        return Failed(msg, why)


_USUAL_SECONDS = 5.0
_DOWN_SECONDS = 0.5


class Probed(Protocol):
    """A client that can probe its engine."""

    @property
    def engine_is_down(self) -> bool:
        """Whether the engine is known to be down."""

    async def probe(self) -> None:
        """Probe it. Raises SyncError."""


async def probing(
    judge: Probed,
    report: Callable[[str | None], None],
    backoff: Callable[[float, float], Backoff] = Backoff,
) -> NoReturn:
    """Probe for ever; call `report` with the reason of each failure, or None on success."""
    usual, down = (backoff(seconds, seconds) for seconds in (_USUAL_SECONDS, _DOWN_SECONDS))
    while True:
        try:
            await judge.probe()
            report(None)
        except SyncError as error:
            report(str(error))
        await (down if judge.engine_is_down else usual).wait()
