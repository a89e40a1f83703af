"""Iterates over many items in slices, and yields to other tasks in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

TURN: Final = 200  # items, of some tens of microseconds each


async def in_slices(items: Iterable[T]) -> AsyncGenerator[T]:
    """Yield all items, and let other tasks run after each slice.

    Those tasks must not change the collection.
    """
    for number, item in enumerate(items, 1):
        yield item
        if number % TURN == 0:
            await asyncio.sleep(0)
