"""Judging policies again from time to time."""

from __future__ import annotations

import asyncio

from kube_sync.processes.conditions import resync


class Keeper:
    """Counts how often it is woken, and tells when that is enough."""

    def __init__(self, enough: int) -> None:
        self.left = enough
        self.done = asyncio.Event()

    def wake(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.done.set()


async def test_policies_are_judged_again_and_again() -> None:
    keeper = Keeper(enough=3)
    task = asyncio.create_task(resync(keeper, seconds=0.0))
    await asyncio.wait_for(keeper.done.wait(), 5.0)
    task.cancel()
