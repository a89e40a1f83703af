"""Rate limiting by a token bucket."""

from __future__ import annotations

import time
from collections.abc import Callable


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
