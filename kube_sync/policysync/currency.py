"""Which sources of what the hub has are not current, and since when.

A source that is current again has still to tell what it missed: it counts as late for a moment
more, and one that is late again by then was late all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kube_sync.safety import Stale

_STEADY_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Late:
    since: float
    reason: str
    ended: float | None = None


class Currency:
    """What is late."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` never goes back (seconds)."""
        self._clock = clock
        self._late: dict[str, _Late] = {}

    def reporter(self, source: str) -> Callable[[str | None], None]:
        """Return a function that takes why a source is not current, None: it is."""

        def report(reason: str | None) -> None:
            now, late = self._clock(), self._late.get(source)
            if reason is None:
                if late is not None and late.ended is None:
                    late.ended = now
            elif late is None or _is_over(late, now):
                self._late[source] = _Late(now, reason)
            else:
                late.reason, late.ended = reason, None

        return report

    def stale(self) -> list[Stale]:
        """Return what is late, each for how many seconds."""
        now = self._clock()
        self._late = {name: one for name, one in self._late.items() if not _is_over(one, now)}
        return [Stale(name, now - one.since, one.reason) for name, one in self._late.items()]


def _is_over(late: _Late, now: float) -> bool:
    return late.ended is not None and now - late.ended > _STEADY_SECONDS
