"""When everything is looked at although nothing has happened.

Keeps true: something that is to be tried again is, and whatever else was spoiled or missed, such as
a picture that somebody deleted, is put right within `every` seconds. It ends by cancellation alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NoReturn

_EVERY: Final = 300.0  # seconds
_LEAST: Final = 1.0  # seconds


class ResyncLoop:
    """One look after the other."""

    def __init__(
        self,
        *,
        every: float = _EVERY,
        least: float = _LEAST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`every` and `least` are the seconds between two looks, at most and at least."""
        self._every = every
        self._least = least
        self._clock = clock
        self._due = clock() + every
        self._changed = asyncio.Event()

    @property
    def due(self) -> float:
        """When the next look is, on the clock that it was given."""
        return self._due

    def looked(self, again: float | None) -> None:
        """Take note of a look; `again` is when something is to be tried again, None: nothing is."""
        now = self._clock()
        latest = now + self._every
        self._due = latest if again is None else min(latest, max(again, now + self._least))
        self._changed.set()

    async def run(self, wake: Callable[[], None]) -> NoReturn:
        """Call `wake` whenever a look is due."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.0, self._due - self._clock())):
                    await self._changed.wait()
            except TimeoutError:
                # Who is woken may not be who writes, and then tells of no look.
                self.looked(None)
                wake()
