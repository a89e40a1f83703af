"""Signs of life of long work, for a person who waits; never part of the output.

Keeps true: nothing is said of work that takes less than two seconds, and at most one line in two.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SECONDS = 2.0


class Progress:
    """Says what is being done, by handing lines to `say`."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._due = clock() + _SECONDS

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Say `what` if the block takes long; it has to let the event loop run."""
        timer = asyncio.get_running_loop().call_later(_SECONDS, self._say, f"{what} …")
        try:
            yield
        finally:
            timer.cancel()

    def reached(self, what: str) -> None:
        """Say how far it is, if nothing was said for a while."""
        if self._clock() >= self._due:
            self._say(what)
            self._due = self._clock() + _SECONDS
