"""Periodic resync of the statuses, also without an event.

Invariant: what has to be retried is, and any other change or loss, such as a deleted picture, is
repaired within `every` seconds. It runs until cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NoReturn

_EVERY: Final = 300.0  # seconds
_LEAST: Final = 1.0  # seconds


class ResyncLoop:
    """Schedules one resync after the other."""

    def __init__(
        self,
        *,
        every: float = _EVERY,
        least: float = _LEAST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`every` and `least` are the most and the fewest seconds between two resyncs."""
        self._every = every
        self._least = least
        self._clock = clock
        self.due = clock() + every  # the time of the next resync
        self._changed = asyncio.Event()

    def schedule(self, retry_at: float | None) -> None:
        """Schedule the next resync; `retry_at` is the time of the next retry, None if none."""
        now = self._clock()
        latest = now + self._every
        self.due = latest if retry_at is None else min(latest, max(retry_at, now + self._least))
        self._changed.set()

    async def run(self, on_due: Callable[[], None]) -> NoReturn:
        """Call `on_due` whenever a resync is due."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.0, self.due - self._clock())):
                    await self._changed.wait()
            except TimeoutError:
                # A replica that is not the leader reconciles nothing, and never calls `schedule`.
                self.schedule(None)
                on_due()
