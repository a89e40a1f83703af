"""Work that is done by slices, so that others may run between two of them."""

from __future__ import annotations

from collections.abc import Iterator


def exhaust(slices: Iterator[None]) -> None:
    """Do the rest of it at once."""
    for _ in slices:
        pass
