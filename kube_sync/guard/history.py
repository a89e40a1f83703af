"""The last placements of an object, kept on the object itself so that they outlive every process.

The annotation `kube-sync.io/moves` is JSON: a list of at most four `[seconds, placement, left,
approval]`, oldest first: when it was written (Unix seconds, rounded up; 0: before anything is
known), a digest of what the placement means, the clusters that were left for it, and the approval
that let it through. Trailing empty members are left out. It goes into the same PATCH as the
placement, so neither is there without the other.

Whoever may write the object may write this too. What is malformed, or says that it comes from the
future, tells nothing: the worst that can be done is to do without dwell, cool-down and freeze for
one's own object, which its owner could by writing the placement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec

from kube_sync.errors import NO_JSON

HISTORY = "kube-sync.io/moves"
LENGTH = 4  # an oscillation takes three placements and the next

_CLOCKS_DIFFER_SECONDS = 5
_LONGEST = 65_536  # characters: a fourth of what all annotations of an object may have


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One placement: since when, which, what was left for it, and by which approval."""

    at: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
    placement: str
    left: tuple[str, ...] = ()
    approval: str = ""


History = tuple[Entry, ...]
_entries = msgspec.json.Decoder(History)


def read_history(annotations: Mapping[str, str], now: float) -> History:
    """Return the placements that an object says it had, oldest first."""
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
    """Return `history` with the placement that the object has, whoever wrote it.

    When another wrote it is not known: not before the last that is known.
    """
    if history and history[-1].placement == before:
        return history
    at = history[-1].at if history else 0
    return (*history, Entry(at, before))


def extended(history: History, entry: Entry) -> History:
    """Return the last placements with one more."""
    return (*history, entry)[-LENGTH:]


def oscillates_until(history: History, after: str, window: float) -> float | None:
    """Return when an A→B→A→B that `after` would complete is over, None where it is none.

    It is one while less than `window` seconds have passed since the first B.
    """
    match history[-3:]:
        # Times are rounded up: without a window, none is waited for at all.
        case (first, second, third) if window and (
            first.placement == third.placement != second.placement == after
        ):
            return second.at + window
    return None


def settles_at(history: History, dwell: float, cooldown: float) -> tuple[float, float]:
    """Return when the dwell after the last placement and the cool-down after the last move end."""
    placed = max((entry.at for entry in history), default=0)
    moved = max((entry.at for entry in history if entry.left), default=0)
    # Times are rounded up: without these two, none is waited for at all.
    return placed + dwell if placed and dwell else 0, moved + cooldown if moved and cooldown else 0


def stamp(now: float) -> int:
    """Return `now` as an Entry has it: not earlier, so that no budget comes back too early."""
    return math.ceil(now)


def _trimmed(entry: Entry) -> list[object]:
    whole: list[object] = [entry.at, entry.placement, entry.left, entry.approval]
    while len(whole) > 2 and not whole[-1]:  # noqa: PLR2004 - these two are always there
        whole.pop()
    return whole
