"""Who else writes a copy. Pure.

A controller of a spoke that puts its own value back after each write would be fought for ever. A
copy that was put right three times within a minute is left to the other one: until another copy is
wanted, or ten minutes are over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kube_sync.objects import ObjectKey

WRITES: Final = 3
_WINDOW: Final = 60.0  # seconds
TRUCE: Final = 600.0  # seconds


@dataclass(frozen=True, slots=True)
class _Record:
    digest: str
    at: tuple[float, ...]


class Rivals:
    """How often the copies of one collection were put right lately."""

    def __init__(self) -> None:
        self._records: dict[ObjectKey, _Record] = {}

    def wrote(self, where: ObjectKey, digest: str, now: float) -> None:
        """Take note that a copy with this digest was put right."""
        known = self._records.get(where)
        before = known.at if known is not None and known.digest == digest else ()
        self._records[where] = _Record(digest, (*before, now)[-WRITES:])

    def truce(self, where: ObjectKey, digest: str, now: float) -> float | None:
        """Return until when a copy is left to the other one, None: it may be written."""
        known = self._records.get(where)
        if known is None or known.digest != digest or len(known.at) < WRITES:
            return None
        if known.at[-1] - known.at[0] > _WINDOW:
            return None
        until = known.at[-1] + TRUCE
        if until <= now:
            del self._records[where]
            return None
        return until

    def forget(self, where: ObjectKey) -> None:
        """Forget a copy that is deleted."""
        self._records.pop(where, None)
