"""Two things at once, of which the first that fails ends the other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kube_sync.errors import SyncError, first_of

A = TypeVar("A")
B = TypeVar("B")


async def both(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Return what both return. Raises the SyncError of whichever fails first."""
    try:
        async with asyncio.TaskGroup() as group:
            first, second = group.create_task(one), group.create_task(other)
    except* SyncError as errors:
        raise first_of(errors) from errors
    return first.result(), second.result()
