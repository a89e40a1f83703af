"""How many decisions to ask for in one query, by how long the last ones took.

OPA answers others beside a query, but a write that waits for it holds up everybody (one query of
12 s and one PATCH stalled every client for as long), so a query aims at 20 ms however large the
fleet is.
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
        """Take note that a query for so many took so long."""
        fits = int(number * _AIM / seconds) if seconds > 0 else _MOST
        # A small query says little of larger ones, but that it was slow says much.
        if number < self.size and fits >= number:
            return
        self.size = max(1, min(fits, 2 * number, _MOST))
