from __future__ import annotations

import asyncio
import threading

import pytest

from kube_sync.ledger import waker
from kube_sync.ledger.waker import Waker
from tests.unit.async_tools import until


class World:
    def __init__(self) -> None:
        self.said = 0
        self.is_on_disk = False
        self.woken = 0
        self.waker = Waker(self._wake, lambda: self.said, lambda: self.is_on_disk)

    def _wake(self) -> None:
        self.woken += 1

    def say(self) -> None:
        self.said += 1
        self.waker.rouse()


async def test_thread_is_woken_once_for_all_that_is_said_at_once() -> None:
    world = World()
    world.waker.start(asyncio.get_running_loop())
    for _ in range(3):
        world.say()
    assert world.woken == 0
    await asyncio.sleep(0)
    assert world.woken == 1


async def test_thread_is_woken_at_once_by_other_threads_and_outside_the_loop() -> None:
    world = World()
    world.say()
    assert world.woken == 1
    world.waker.start(asyncio.get_running_loop())
    assert world.waker.is_here
    here: list[bool] = []

    def say() -> None:
        here.append(world.waker.is_here)
        world.say()

    other = threading.Thread(target=say)
    other.start()
    other.join()
    assert (here, world.woken) == ([False], 2)
    world.waker.stop()
    world.say()
    assert world.woken == 3


async def test_what_is_on_disk_is_written_once_nothing_more_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waker, "_LEISURE_SECONDS", 0.0)
    world = World()
    world.is_on_disk = True
    world.waker.start(asyncio.get_running_loop())
    world.say()
    await asyncio.sleep(0)
    world.say()
    assert world.woken == 0
    await until(lambda: world.woken)
    assert world.woken == 1


async def test_what_is_said_without_end_is_written_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waker, "_LEISURE_SECONDS", 0.0)
    monkeypatch.setattr(waker, "_LATEST_SECONDS", 0.02)
    world = World()
    world.is_on_disk = True
    world.waker.start(asyncio.get_running_loop())
    async with asyncio.timeout(5):
        while not world.woken:
            world.say()
            await asyncio.sleep(0)


async def test_waker_that_is_stopped_leaves_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waker, "_LEISURE_SECONDS", 0.01)
    world = World()
    world.is_on_disk = True
    loop = asyncio.get_running_loop()
    world.waker.start(loop)
    world.say()
    await asyncio.sleep(0)
    world.waker.stop()
    world.waker.start(loop)
    world.say()
    world.waker.stop()  # before the loop has come to it
    await asyncio.sleep(0.05)
    assert world.woken == 0
