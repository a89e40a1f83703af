"""Choose the number of decisions in one query by the time of the last ones.

OPA runs queries concurrently, but a write that waits for one blocks all clients (one query of 12 s
and one PATCH stalled every client for as long), so a query aims at 20 ms for any size of the fleet.
"""

from __future__ import annotations

from typing import Final

_AIM: Final = 0.020  # seconds
_FIRST: Final = 10
_MOST: Final = 50  # 100 took 4 ms with four clusters, 3 times as much with 100


class Pace:
    """Grows to at most twice the last query, and shrinks at once."""

    def __init__(self) -> None:
        self.size = _FIRST

    def took(self, number: int, seconds: float) -> None:
        """Record the time of a query with so many decisions."""
        fits = int(number * _AIM / seconds) if seconds > 0 else _MOST
        # A fast small query says little about larger ones; a slow one says much.
        if number < self.size and fits >= number:
            return
        self.size = max(1, min(fits, 2 * number, _MOST))
