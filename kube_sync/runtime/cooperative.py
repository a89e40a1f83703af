"""Lets other tasks run between slices of many items, and loses no cancellation."""

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


def raise_if_cancelled() -> None:
    """Raise CancelledError if the current task was cancelled and has gone on.

    Call it after a TaskGroup whose errors are handled: before Python 3.13 a group in which a task
    fails at the moment of a cancellation raises the failure alone, and the cancellation is lost.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
