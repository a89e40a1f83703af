"""Exponential back-off with jitter.

Each delay is random between half and the whole of its step, so that many clients do not
come back at once. `wait()` always waits: no caller can spin on it.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable

Sleep = Callable[[float], Awaitable[object]]


class Backoff:
    """Delays that grow from `first` to `longest` seconds until `progressed()` resets them."""

    def __init__(
        self,
        first: float = 0.1,
        longest: float = 30.0,
        *,
        sleep: Sleep = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._first = first
        self._longest = longest
        self._sleep = sleep
        self._jitter = jitter
        self._failures = 0

    @property
    def failures(self) -> int:
        """The number of failures since the last progress."""
        return self._failures

    def progressed(self) -> None:
        """Reset the back-off: the next delay is the first one again."""
        self._failures = 0

    def next_delay(self) -> float:
        """Return the next delay in seconds, and count one more failure."""
        # 2**30 is past any ceiling; without the bound the float overflows after a day of failures.
        step: float = min(self._longest, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return step * (0.5 + self._jitter() / 2)

    async def wait(self, at_least: float | None = None, at_most: float = math.inf) -> None:
        """Sleep; `at_least` is the delay that a server asked for, in seconds (Retry-After).

        After `at_most` seconds something is due in any case.
        """
        await self._sleep(min(max(self.next_delay(), at_least or 0.0), at_most))
