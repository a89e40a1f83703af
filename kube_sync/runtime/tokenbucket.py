"""How often something may happen: in a burst at first, then at a rate."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """`burst` tokens, `rate` more of them a second until it is full again."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._at = clock()

    def has(self) -> bool:
        """Whether there is a token."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return self._tokens >= 1

    def take(self) -> bool:
        """Take a token; false when there is none."""
        if not self.has():
            return False
        self._tokens -= 1
        return True
