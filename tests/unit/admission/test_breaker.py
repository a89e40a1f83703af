from __future__ import annotations

import asyncio

import pytest
from prometheus_client import REGISTRY

from kube_sync.admission import breaker
from kube_sync.admission.breaker import Breaker
from kube_sync.admission.engine_errors import Failed, NoAnswer, Passing
from kube_sync.errors import SyncError
from tests.unit.async_tools import PATIENCE, until


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class World:
    """A breaker and an engine that is what the test says; time passes only where it says."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.breaker = Breaker("the engine", self.clock)
        self.error: SyncError | None = None
        self.asked = 0
        self.gate: asyncio.Event | None = None  # attempts hang until it is set

    async def attempt(self) -> str:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)  # as whatever asks over a network
        if self.error is not None:
            raise self.error
        return "answer"

    async def run(self) -> str:
        """Make one attempt through the breaker; what it fails with, as its kind."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.breaker.run(self.attempt)
        except SyncError as error:
            return type(error).__name__

    async def down(self) -> None:
        """Open the breaker."""
        self.error = NoAnswer("refused", "unreachable")
        for _ in range(4):
            await self.run()
        self.clock.now += 1.0
        await self.run()
        assert self.breaker.is_open


async def test_an_engine_that_answers_is_asked_each_time() -> None:
    world = World()
    assert [await world.run() for _ in range(3)] == ["answer"] * 3
    assert world.asked == 3


@pytest.mark.parametrize(("failures", "seconds"), [(4, 60.0), (50, 0.9)])
async def test_few_failures_or_many_at_once_prove_nothing(failures: int, seconds: float) -> None:
    """Requests in flight fail together when an engine restarts; their retries outlast that."""
    world = World()
    world.error = NoAnswer("reset", "unreachable")
    for _ in range(failures):
        assert await world.run() == "NoAnswer"
        world.clock.now += seconds / failures
    assert not world.breaker.is_open


async def test_failures_in_a_row_for_long_enough_open_it() -> None:
    world = World()
    await world.down()
    assert world.asked == 5


@pytest.mark.parametrize(
    "answered",
    [None, Failed("no", "unauthorized"), Passing("busy", "overloaded")],
    ids=["decision", "refusal", "429"],
)
async def test_any_answer_counts_as_one(answered: SyncError | None) -> None:
    world = World()
    for error in [NoAnswer("x", "timeout")] * 4 + [answered] + [NoAnswer("x", "timeout")] * 4:
        world.error = error
        await world.run()
        world.clock.now += 1.0
    assert not world.breaker.is_open


async def test_an_engine_that_hangs_is_not_waited_for_by_every_review(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(breaker, "_PATIENCE", 0.01)
    world = World()
    await world.down()
    world.gate, world.error, asked = asyncio.Event(), None, world.asked
    trial = asyncio.create_task(world.run())
    await until(lambda: world.asked == asked + 1)
    assert await world.run() == "Failed"
    assert world.asked == asked + 1
    world.gate.set()
    assert await trial == "answer"
    assert not world.breaker.is_open


async def test_attempts_that_began_long_ago_and_break_together_prove_nothing() -> None:
    """An engine that hung and is restarted breaks them all at once, and is back in no time."""
    world = World()
    world.gate, world.error = asyncio.Event(), NoAnswer("reset", "unreachable")
    reviews = [asyncio.create_task(world.run()) for _ in range(9)]
    await until(lambda: world.asked == 9)
    world.clock.now += 1.5
    world.gate.set()
    assert await asyncio.gather(*reviews) == ["NoAnswer"] * 9
    assert not world.breaker.is_open


async def test_an_engine_that_is_down_is_asked_by_the_next_review() -> None:
    """So that no create is denied once it is back."""
    world = World()
    await world.down()
    assert await world.run() == "Failed"
    world.error = None
    assert await world.run() == "answer"


async def test_a_failed_trial_tells_what_is_known() -> None:
    world = World()
    await world.down()
    with pytest.raises(Failed, match=r"refused; known to be down \(6 attempts") as raised:
        await world.breaker.run(world.attempt)
    assert raised.value.why == "unreachable"


async def test_reviews_wait_for_the_outcome_of_the_one_trial() -> None:
    world = World()
    await world.down()
    world.gate, world.error, asked = asyncio.Event(), None, world.asked
    reviews = [asyncio.create_task(world.run()) for _ in range(5)]
    await until(lambda: world.asked == asked + 1)
    await asyncio.sleep(0)
    assert world.asked == asked + 1
    world.gate.set()
    assert await asyncio.gather(*reviews) == ["answer"] * 5


async def test_a_trial_that_was_under_way_before_denies_nobody_but_the_next_one_does() -> None:
    """The engine may have come back after it began."""
    world = World()
    await world.down()
    world.gate, asked = asyncio.Event(), world.asked
    reviews = [asyncio.create_task(world.run()) for _ in range(5)]
    await until(lambda: world.asked == asked + 1)
    world.gate.set()
    assert await asyncio.gather(*reviews) == ["Failed"] * 5
    assert world.asked == asked + 2


async def test_a_trial_that_is_given_up_is_a_failure_and_lets_the_next_one_try() -> None:
    world = World()
    await world.down()
    world.gate, asked = asyncio.Event(), world.asked
    trial = asyncio.create_task(world.run())
    await until(lambda: world.asked == asked + 1)
    waiting = asyncio.create_task(world.run())
    await asyncio.sleep(0)
    trial.cancel()
    await asyncio.wait([trial])
    world.error = None
    await until(lambda: world.asked == asked + 2)
    assert world.breaker.is_open
    world.gate.set()
    assert await waiting == "answer"


async def test_who_gives_up_waiting_does_not_end_the_trial_for_others() -> None:
    world = World()
    await world.down()
    world.gate, world.error = asyncio.Event(), None
    asked = world.asked
    trial, impatient, patient = (asyncio.create_task(world.run()) for _ in range(3))
    await until(lambda: world.asked == asked + 1)
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    world.gate.set()
    assert [await trial, await patient] == ["answer"] * 2


async def test_attempts_that_are_cut_off_by_their_reviews_open_it_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A review may have less time than one attempt: or an engine that hangs went unnoticed."""
    monkeypatch.setattr(breaker, "_PATIENCE", 0.01)
    world = World()
    world.gate = asyncio.Event()
    for _ in range(5):
        review = asyncio.create_task(world.run())
        await asyncio.sleep(0)
        world.clock.now += 1.0
        review.cancel()
        await asyncio.wait([review])
    assert world.breaker.is_open
    trial = asyncio.create_task(world.run())
    await asyncio.sleep(0)
    with pytest.raises(Failed, match=r"^the engine: no answer in time; known to be") as raised:
        await world.breaker.run(world.attempt)
    assert raised.value.why == "timeout"
    world.gate.set()
    assert await trial == "answer"


async def test_its_state_is_a_metric() -> None:
    def down() -> float | None:
        return REGISTRY.get_sample_value("kube_sync_admission_engine_down")

    world = World()
    await world.down()
    assert down() == 1
    world.error = None
    await world.run()
    assert down() == 0


async def test_reviews_that_take_too_long_keep_no_other_from_an_engine_that_answers() -> None:
    """Whoever sends objects that a policy takes long for may send one for every trial."""
    world = World()
    await world.down()
    world.gate = asyncio.Event()
    slow = [asyncio.create_task(world.breaker.run(world.attempt, answers)) for _ in range(3)]
    await until(lambda: len(slow) == world.asked - 5)
    assert await world.breaker.run(answers, answers) == "another answer"
    world.error = None
    world.gate.set()
    assert await asyncio.gather(*slow) == ["answer"] * 3


async def test_what_a_probe_is_refused_for_the_attempt_is_told_itself() -> None:
    async def refused() -> None:
        msg = "no"
        raise Failed(msg, "unauthorized")

    world = World()
    await world.down()
    world.error = None
    assert await world.breaker.run(world.attempt, refused) == "answer"
    await world.down()
    with pytest.raises(Failed, match="known to be down"):
        await world.breaker.run(answers, world.attempt)


async def answers() -> str:
    """Make an attempt that is answered at once."""
    return "another answer"
