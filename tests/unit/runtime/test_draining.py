"""A server that ends: what becomes of requests that are under way, and of those that come."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from kube_sync.observability.readiness import Readiness
from kube_sync.runtime.draining import Drain
from tests.unit.async_tools import PATIENCE, until


class World:
    """A drain that notes the order of what it does, with its waits in the hands of the test."""

    def __init__(self, seconds: float = PATIENCE) -> None:
        self.readiness = Readiness()
        self.steps: list[object] = []
        self.go_on = asyncio.Event()
        self.drain = Drain(seconds, self.readiness.waiting, sleep=self._sleep)
        self.drain.shuts(self._stop)

    async def _sleep(self, seconds: float) -> None:
        self.steps.append(seconds)
        await self.go_on.wait()

    async def _stop(self) -> None:
        self.steps.append("shut")


async def test_it_is_not_ready_at_once_and_shuts_a_moment_later() -> None:
    world = World()
    task = asyncio.create_task(world.drain.run())
    await until(lambda: world.steps)
    assert world.readiness.reasons == {"serving": "stopping"}
    assert world.drain.draining
    assert world.steps == [3.0]
    world.go_on.set()
    await task
    assert world.steps == [3.0, "shut", 0.25]


async def test_the_notice_is_no_longer_than_the_whole() -> None:
    world = World(0.5)
    world.go_on.set()
    await world.drain.run()
    assert world.steps == [0.5, "shut", 0.25]


async def test_what_is_in_progress_is_waited_for() -> None:
    world = World()
    world.go_on.set()
    world.drain.began()
    world.drain.began()
    task = asyncio.create_task(world.drain.run())
    await until(lambda: len(world.steps) == 3)
    world.drain.ended()
    await asyncio.sleep(0)
    assert not task.done()
    world.drain.ended()
    async with asyncio.timeout(PATIENCE):
        await task


async def test_what_does_not_end_is_cut_off_and_told() -> None:
    world = World(0.01)
    world.go_on.set()
    world.drain.began()
    with capture_logs() as logs:
        await world.drain.run()
    assert logs[-1] == {
        "event": "requests_cut_off",
        "log_level": "warning",
        "requests": 1,
        "after": 0.01,
    }


async def test_where_nobody_serves_there_is_nothing_to_wait_for() -> None:
    world = World()
    await Drain(1.0, world.readiness.waiting).run()
    assert world.readiness.reasons == {}
