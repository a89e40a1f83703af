from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from kube_sync.runtime.cooperative import in_own_task


async def fail_after(gate: asyncio.Event) -> None:
    await gate.wait()
    raise ValueError


async def group_that_fails(gate: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fail_after(gate))
        await asyncio.Event().wait()


@pytest.mark.parametrize("steps", range(6))
async def test_cancellation_at_the_moment_of_a_failure_is_not_lost(steps: int) -> None:
    """Whichever comes first: a task that was cancelled before it ended ends as cancelled."""
    gate = asyncio.Event()

    async def work() -> str:
        with suppress(BaseExceptionGroup):
            await in_own_task(group_that_fails(gate))
        return "it went on"

    task = asyncio.ensure_future(work())
    for _ in range(4):
        await asyncio.sleep(0)
    gate.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    if task.cancel():
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert await task == "it went on"


async def test_failure_of_a_child_does_not_count_as_a_cancellation_of_the_caller() -> None:
    """The caller goes on after it, as an epoch follows one that was lost."""
    gate = asyncio.Event()
    gate.set()
    with pytest.raises(BaseExceptionGroup):
        await in_own_task(group_that_fails(gate))
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0
    await asyncio.sleep(0)


async def test_result_is_returned() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await in_own_task(work()) == 7


async def test_work_has_ended_when_the_cancellation_is_raised() -> None:
    """Also where it takes its time, and the caller is cancelled twice."""
    gate, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with suppress(asyncio.CancelledError):
                await gate.wait()
            ended.set()

    task = asyncio.ensure_future(in_own_task(work()))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
