"""How long to wait between two looks at what another process brings about.

A look costs both sides some milliseconds of CPU, which everybody who is waited for needs too: the
longer it takes, the more seldom somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterator

_FIRST, _LONGER, _LONGEST = 0.02, 1.1, 0.2  # seconds, each time by so much, at the most


def pauses() -> Iterator[float]:
    """Yield seconds, without end: about a tenth of the time that has passed."""
    pause = _FIRST
    while True:
        yield pause
        pause = min(_LONGEST, pause * _LONGER)
