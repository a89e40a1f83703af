"""The messages of conditions of the hub's objects.

Keeps true: a message is bounded, and cut between two entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MESSAGE: Final = 4096  # characters; meta/v1 allows 32768
_REST: Final = 32  # characters for what is said of the rest


def message(entries: Iterable[str], most: int = MESSAGE) -> str:
    """Return entries as one text of at most `most` characters that says how many are left out."""
    kept: list[str] = []
    length, listed = 0, list(entries)
    for entry in listed:
        length += len(entry) + 2
        if length > most - _REST:
            break
        kept.append(entry)
    if len(kept) == len(listed):
        return "; ".join(kept)
    if not kept:
        kept = [listed[0][: most - _REST - 2] + " …"]
    rest = len(listed) - len(kept)
    return "; ".join([*kept, f"and {rest} more"] if rest else kept)
