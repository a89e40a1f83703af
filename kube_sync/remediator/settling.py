"""When the decisions that have come are all that there are for now. Pure.

A change of one object ends with its bookmark. What changes the fleet or the policies may change
the decisions on thousands of objects, in many batches with a bookmark after each; all of them have
to be known before the first object is moved, so such a change ends with a pause.
"""

from __future__ import annotations

_PAUSE = 0.2  # seconds without a decision
_LONGEST = 2.0  # seconds; a fleet that never rests is acted on nevertheless


class Settling:
    """What has come since the decisions were last taken to be complete."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._whole = True
        self._alone = True

    def decided(self, cause: str, now: float) -> None:
        """Take note of a decision, made because of `cause`."""
        self._first = now if self._first is None else self._first
        self._last = now
        self._whole = False
        self._alone &= cause == "object"

    def bookmark(self) -> None:
        """Take note that a batch is complete."""
        self._whole = True

    def wait(self, now: float) -> float:
        """Return for how many seconds more to wait; 0: what has come is complete."""
        if self._first is None or (self._whole and self._alone):
            return 0.0
        return max(0.0, min(self._last + _PAUSE, self._first + _LONGEST) - now)

    def begin(self) -> None:
        """Begin anew: what has come is acted on."""
        self._first, self._alone = None, True
