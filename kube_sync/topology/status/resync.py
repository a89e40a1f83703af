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
        self._due = clock() + every
        self._changed = asyncio.Event()

    @property
    def due(self) -> float:
        """The time of the next resync, on the given clock."""
        return self._due

    def looked(self, again: float | None) -> None:
        """Schedule the next resync; `again` is the time of the next retry, None: there is none."""
        now = self._clock()
        latest = now + self._every
        self._due = latest if again is None else min(latest, max(again, now + self._least))
        self._changed.set()

    async def run(self, wake: Callable[[], None]) -> NoReturn:
        """Call `wake` whenever a resync is due."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.0, self._due - self._clock())):
                    await self._changed.wait()
            except TimeoutError:
                # A replica that is not the leader reconciles nothing, and so never calls `looked`.
                self.looked(None)
                wake()
