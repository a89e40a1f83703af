"""Progress messages of long work, for a person who waits; never part of the output.

Invariant: work of less than two seconds prints nothing, and longer work one line in two seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SECONDS = 2.0


class Progress:
    """Passes progress messages to `print_line`."""

    def __init__(
        self, print_line: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._print_line = print_line
        self._clock = clock
        self._due = clock() + _SECONDS

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Print `what` if the block takes long; it has to let the event loop run."""
        timer = asyncio.get_running_loop().call_later(_SECONDS, self._print_line, f"{what} …")
        try:
            yield
        finally:
            timer.cancel()

    def report(self, what: str) -> None:
        """Print the progress, if nothing was printed for a while."""
        if self._clock() >= self._due:
            self._print_line(what)
            self._due = self._clock() + _SECONDS
