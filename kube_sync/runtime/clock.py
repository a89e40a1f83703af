"""A monotonic clock of Unix time."""

from __future__ import annotations

import time
from collections.abc import Callable


def unix_clock() -> Callable[[], float]:
    """Return a clock of Unix seconds that never goes back: it reads the wall clock once."""
    start = time.time() - time.monotonic()
    return lambda: start + time.monotonic()
