"""The last placements of an object, stored in an annotation on it, so that they survive restarts.

The annotation `kube-sync.io/moves` is JSON: a list of at most four `[seconds, placement, left,
approval, passing]`, oldest first: the time of the write (Unix seconds, rounded up; 0: before any
known time), a digest of the placement, the clusters that it left, the approval that allowed it, and
whether a move only passes through it (`add_first`): such an entry is replaced by the next one, so
that what goes back and forth is seen as without it. Trailing empty members are left out. The same
PATCH writes it and the placement, so neither exists without the other.

Everybody with write access to the object can write this annotation. A malformed history, or one
with a time in the future, counts as empty: at worst, an owner avoids dwell, cool-down and freeze of
their own object, as is possible by writing the placement itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec

from kube_sync.errors import NO_JSON

HISTORY = "kube-sync.io/moves"
LENGTH = 4  # an oscillation is three placements and the next one

_CLOCKS_DIFFER_SECONDS = 5
_LONGEST = 65_536  # characters: a fourth of the size limit of all annotations of an object


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One placement: its time, its digest, the clusters that it left, and its approval.

    `passing`: a move only passes through it.
    """

    at: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
    placement: str
    left: tuple[str, ...] = ()
    approval: str = ""
    passing: bool = False


History = tuple[Entry, ...]
_entries = msgspec.json.Decoder(History)


def read_history(annotations: Mapping[str, str], now: float) -> History:
    """Return the placements recorded on an object, oldest first; none if they are malformed."""
    text = annotations.get(HISTORY, "")
    if len(text) > _LONGEST:
        return ()
    try:
        entries = _entries.decode(text)[-LENGTH:]
    except NO_JSON:
        return ()
    if any(entry.at > now + _CLOCKS_DIFFER_SECONDS for entry in entries):
        return ()
    return entries


def write_history(history: History) -> str:
    """Return the annotation's value."""
    return msgspec.json.encode([_trimmed(entry) for entry in history]).decode()


def caught_up(history: History, before: str) -> History:
    """Return `history` with the present placement of the object appended, if it is another one.

    The time of a write by somebody else is not known, only that it is not before the last entry.
    """
    if history and history[-1].placement == before:
        return history
    at = history[-1].at if history else 0
    return (*history, Entry(at, before))


def settled(history: History) -> History:
    """Return the placements without those that a move only passed through."""
    return tuple(entry for entry in history if not entry.passing)


def extended(history: History, entry: Entry) -> History:
    """Return the last placements with one more, unless it is the last one again, without a move."""
    before = settled(history)
    came_back = before and before[-1].placement == entry.placement and not entry.left
    if came_back and not entry.passing:
        return before
    return (*before, entry)[-LENGTH:]


def oscillates_until(history: History, after: str, window: float) -> float | None:
    """Return when the oscillation A→B→A→B that `after` would complete ends, None if it is none.

    It is one while less than `window` seconds have passed since the first B.
    """
    match settled(history)[-3:]:
        # Times are rounded up: with a window of 0 there must be no wait at all.
        case (first, second, third) if window and (
            first.placement == third.placement != second.placement == after
        ):
            return second.at + window
    return None


def settles_at(history: History, dwell: float, cooldown: float) -> tuple[float, float]:
    """Return when the dwell after the last placement and the cool-down after the last move end."""
    placed = max((entry.at for entry in history), default=0)
    moved = max((entry.at for entry in history if entry.left), default=0)
    # Times are rounded up: with 0 seconds there must be no wait at all.
    return placed + dwell if placed and dwell else 0, moved + cooldown if moved and cooldown else 0


def stamp(now: float) -> int:
    """Return `now` for an Entry, rounded up so that no token is refilled too early."""
    return math.ceil(now)


def _trimmed(entry: Entry) -> list[object]:
    whole: list[object] = [entry.at, entry.placement, entry.left, entry.approval, entry.passing]
    while len(whole) > 2 and not whole[-1]:  # noqa: PLR2004 - these two are always there
        whole.pop()
    return whole
