from __future__ import annotations

import asyncio

import pytest

from kube_sync.errors import Conflict, Retriable, SyncError, Terminal
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.concurrency import Concurrency
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.workqueue import WorkQueue
from tests.unit.async_tools import Timers, running, until

_FAILED = Retriable("503")


class World:
    """A queue, and reconciles that fail or return what a test says."""

    def __init__(self) -> None:
        self.queue = WorkQueue[str]("test", lambda: Backoff(1.0, 8.0, jitter=lambda: 1.0))
        self.reconciled: list[str] = []
        self.outcomes: list[Result | Exception] = []

    async def reconcile(self, key: str) -> Result:
        self.reconciled.append(key)
        outcome = self.outcomes.pop(0) if self.outcomes else Result()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def turn(self, key: str, outcome: Result | Exception) -> None:
        """Add a key whose reconcile ends so, and wait until it has."""
        self.outcomes.append(outcome)
        self.queue.add(key)
        await until(lambda: not self.outcomes)
        await asyncio.sleep(0)


async def test_keys_are_reconciled_one_after_another() -> None:
    world = World()
    for key in "abc":
        world.queue.add(key)
    async with running(work(world.queue, world.reconcile)):
        await until(lambda: len(world.reconciled) == 3)
    assert world.reconciled == ["a", "b", "c"]


async def test_a_key_that_is_added_while_it_is_reconciled_is_reconciled_once_more() -> None:
    world = World()

    async def reconcile(key: str) -> Result:
        if not world.reconciled:
            world.queue.add(key)
        return await world.reconcile(key)

    world.queue.add("a")
    async with running(work(world.queue, reconcile)):
        await until(lambda: len(world.reconciled) == 2)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (Retriable("503"), 1.0),
        (Retriable("429", 5.0), 5.0),
        (Conflict("409"), 1.0),
        (Terminal("422"), 1.0),
    ],
)
async def test_a_failed_key_is_tried_again_when_the_server_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, error: SyncError, seconds: float
) -> None:
    timers, world = Timers(monkeypatch), World()
    async with running(work(world.queue, world.reconcile)):
        await world.turn("a", error)
        assert timers.seconds == [seconds]
        timers.fire()
        await until(lambda: world.reconciled == ["a", "a"])


async def test_waits_grow_until_a_reconcile_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, world = Timers(monkeypatch), World()
    waits = []
    async with running(work(world.queue, world.reconcile)):
        for outcome in (Retriable("503"), Retriable("503"), Result(), Retriable("503")):
            await world.turn("a", outcome)
            waits.append(timers.seconds)
    assert waits == [[1.0], [2.0], [], [1.0]]


async def test_what_asks_to_be_requeued_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, world = Timers(monkeypatch), World()
    async with running(work(world.queue, world.reconcile)):
        await world.turn("a", Retriable("503"))
        await world.turn("a", Result(60.0))
        assert (timers.seconds, world.queue.num_requeues("a")) == ([60.0], 0)


async def test_any_other_error_ends_the_loop_and_gives_the_key_back() -> None:
    world = World()
    world.outcomes = [KeyError("a fault of ours")]
    world.queue.add("a")
    with pytest.raises(KeyError):
        await work(world.queue, world.reconcile)
    world.queue.add("a")
    assert len(world.queue) == 1


async def test_when_the_loop_ends_nothing_is_added_later(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, world = Timers(monkeypatch), World()
    async with running(work(world.queue, world.reconcile)):
        await world.turn("a", Result(60.0))
    assert timers.seconds == []


async def test_many_keys_with_nothing_to_wait_for_leave_others_their_turn() -> None:
    world = World()
    for number in range(100):
        world.queue.add(str(number))
    async with running(work(world.queue, world.reconcile, turn=10)):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(world.reconciled) <= 20
        await until(lambda: len(world.reconciled) == 100)


async def test_no_more_keys_are_in_work_than_have_a_turn_and_each_ends_its_own() -> None:
    world, limit, end = World(), Concurrency(2), asyncio.Event()

    async def reconcile(key: str) -> Result:
        await world.reconcile(key)
        await end.wait()
        raise _FAILED

    for number in range(5):
        world.queue.add(str(number))
    loops = [work(world.queue, reconcile, limit=limit) for _ in range(4)]
    async with running(*loops):
        await until(lambda: len(world.reconciled) == 2)
        for _ in range(5):
            await asyncio.sleep(0)
        assert (len(world.reconciled), len(world.queue), limit.in_flight) == (2, 3, 2)
        end.set()
        await until(lambda: len(world.reconciled) == 5)
    assert limit.in_flight == 0
