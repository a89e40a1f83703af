"""Long work on many things, a part at a time: what else is to be done gets its turn between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

TURN: Final = 200  # things, of some tens of microseconds each


async def by_turns(things: Iterable[T]) -> AsyncGenerator[T]:
    """Yield them all, and let others run after each few of them.

    What is iterated over must not be changed meanwhile by those.
    """
    for number, thing in enumerate(things, 1):
        yield thing
        if number % TURN == 0:
            await asyncio.sleep(0)
