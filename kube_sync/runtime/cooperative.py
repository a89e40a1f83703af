"""Work in slices that let other tasks run, and work whose cancellation is never lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

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


async def in_own_task(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` in a task of its own, so that no cancellation of the caller is lost.

    Before Python 3.13 a TaskGroup in which a task fails at the moment of a cancellation raises only
    the failure; a loop that handles the failure and tries again would never end.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        while not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio logs it
        raise
    return task.result()
