"""A circuit breaker: whoever asks an engine that is known to be down is told so at once.

It opens when several attempts in a row got no answer, for at least a second: requests that fail
together within one restart of the engine prove nothing, and their retries outlast it. While it is
open one question at a time goes through, and the first that is answered closes it. It asks about
nothing: what a policy takes long for is one object, of whoever sent that, and no engine that is
down. Who comes meanwhile waits for its outcome, half a second at most: an engine that is back has
answered by then, one that hangs is not waited for by every review. There is no rest between
questions: a refused connection costs nothing, and in a rest whoever is back goes unnoticed.

Any answer is an answer: a policy that fails on its input says that the engine lives. It is asked
now and then, so that its state is known before the first review finds out, and often while it is
down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn, Protocol, TypeVar

import structlog
from prometheus_client import Gauge

from kube_sync.admission.failures import Failed, NoAnswer, Why
from kube_sync.errors import SyncError
from kube_sync.observability import metrics
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

T = TypeVar("T")

_FAILURES = 5
_SILENCE = 1.0  # seconds
_PATIENCE = 0.5  # seconds
# The attempt that was under way when a review came may have begun before the engine was back, so
# its failure alone does not deny; that of the next one does.
_WAITS = 2


class Breaker:
    """What is known of one engine's being there."""

    def __init__(
        self,
        where: str,
        clock: Callable[[], float] = time.monotonic,
        down: Gauge = metrics.admission_engine_down,
    ) -> None:
        """`where` names the engine for whoever is denied; `down` is 1 while it is down."""
        self._down_gauge = down
        self._where = where
        self._clock = clock
        self._failures = 0  # since the last answer
        self._since = 0.0  # the first of them was noticed
        self._last: tuple[Why, str] = ("unreachable", where)
        self._trial: asyncio.Future[None] | None = None
        self.is_open = False

    async def run(
        self,
        attempt: Callable[[], Awaitable[T]],
        probe: Callable[[], Awaitable[object]] | None = None,
    ) -> T:
        """Make the attempt, or raise Failed at once where the engine is known to be down.

        `probe` finds out whether it still is, None: the attempt does. Raises what `attempt` raises.
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
        """Raise Failed where nobody answers; what else is wrong, the attempt itself is told."""
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
            # The review's own time was up: however long that was, there was no answer in it.
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
    """Whatever can tell whether its engine answers."""

    @property
    def engine_is_down(self) -> bool:
        """Whether it is known to be down."""
        ...

    async def probe(self) -> None:
        """Ask it. Raises SyncError."""
        ...


async def probing(
    judge: Probed,
    report: Callable[[str | None], None],
    backoff: Callable[[float, float], Backoff] = Backoff,
) -> NoReturn:
    """Tell `report` for ever why the engine gives no answers, or None while it does."""
    usual, down = (backoff(seconds, seconds) for seconds in (_USUAL_SECONDS, _DOWN_SECONDS))
    while True:
        try:
            await judge.probe()
            report(None)
        except SyncError as error:
            report(str(error))
        await (down if judge.engine_is_down else usual).wait()
