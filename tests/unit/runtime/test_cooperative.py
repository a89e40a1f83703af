from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from kube_sync.runtime.cooperative import raise_if_cancelled


@pytest.mark.parametrize("steps", range(4))
async def test_cancellation_at_the_moment_of_a_failure_is_not_lost(steps: int) -> None:
    gate = asyncio.Event()

    async def fail() -> None:
        await gate.wait()
        raise ValueError

    async def work() -> str:
        with suppress(BaseExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                await asyncio.Event().wait()
        raise_if_cancelled()
        return "it went on"

    task = asyncio.ensure_future(work())
    for _ in range(3):
        await asyncio.sleep(0)
    gate.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    if task.cancel():
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert await task == "it went on"


async def test_task_that_was_not_cancelled_goes_on() -> None:
    raise_if_cancelled()
