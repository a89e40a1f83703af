"""The time of day for whoever measures with it."""

from __future__ import annotations

import time
from collections.abc import Callable


def unix_clock() -> Callable[[], float]:
    """Return Unix seconds that never go back: the wall clock counts once."""
    start = time.time() - time.monotonic()
    return lambda: start + time.monotonic()
