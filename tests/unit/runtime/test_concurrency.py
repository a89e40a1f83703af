from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from kube_sync.observability import metrics
from kube_sync.runtime.concurrency import Concurrency
from tests.unit.async_tools import Timers


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_no_more_are_admitted_than_the_limit_allows_and_the_others_in_order() -> None:
    concurrency, admitted = Concurrency(2), list[int]()

    async def request(number: int) -> None:
        await concurrency.acquire()
        admitted.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(request(number))
        await _turns(3)
        assert (admitted, concurrency.in_flight) == ([0, 1], 2)
        concurrency.release()
        await _turns(3)
        assert admitted == [0, 1, 2]
        concurrency.release()
    assert admitted == [0, 1, 2, 3]


async def test_while_a_retry_after_lasts_nobody_is_admitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers, now = Timers(monkeypatch), 100.0
    concurrency = Concurrency(clock=lambda: now)
    await concurrency.acquire()
    concurrency.overloaded(now, 7.0)
    concurrency.release()
    waiting = asyncio.create_task(concurrency.acquire())
    await _turns(3)
    assert (waiting.done(), timers.seconds) == (False, [7.0])
    timers.fire()
    await waiting
    assert concurrency.in_flight == 1


async def test_of_several_answers_the_longest_wait_counts_up_to_half_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    concurrency = Concurrency(clock=lambda: 100.0)
    for seconds in (5.0, 9.0, 2.0, 3600.0):
        concurrency.overloaded(100.0, seconds)
    assert timers.seconds == [30.0]
    concurrency.close()
    assert timers.seconds == []


async def test_a_fixed_number_pauses_too_but_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    concurrency = Concurrency(3, clock=lambda: 100.0)
    concurrency.overloaded(concurrency.now(), 1.0)
    assert (concurrency.limit, timers.seconds) == (3, [1.0])


async def test_the_metric_is_the_present_limit() -> None:
    concurrency = Concurrency(shown=metrics.remediation_concurrency, clock=lambda: 100.0)
    concurrency.overloaded(100.0)
    shown = REGISTRY.get_sample_value("kube_sync_remediation_concurrency")
    assert shown == concurrency.limit == 2
    Concurrency(7, metrics.remediation_concurrency)
    assert REGISTRY.get_sample_value("kube_sync_remediation_concurrency") == 7


async def test_answers_let_more_in() -> None:
    now = 100.0
    concurrency = Concurrency(clock=lambda: now)
    first = concurrency.limit
    for _ in range(100):
        for _ in range(concurrency.limit):
            await concurrency.acquire()
        started, count = now, concurrency.in_flight
        now += 0.01
        for _ in range(count):
            concurrency.answered(started)
            concurrency.release()
    assert concurrency.limit > first
    assert concurrency.in_flight == 0


async def test_one_that_is_cancelled_while_it_waits_or_as_it_is_admitted_takes_no_turn() -> None:
    concurrency = Concurrency(1)
    await concurrency.acquire()
    waiting = [asyncio.create_task(concurrency.acquire()) for _ in range(3)]
    await _turns(2)
    waiting[0].cancel()
    await _turns(2)
    concurrency.release()  # admits the second
    waiting[1].cancel()
    await waiting[2]
    assert concurrency.in_flight == 1


@given(st.lists(st.tuples(st.sampled_from(["ask", "end", "cancel"]), st.integers(0, 9))))
def test_any_interleaving_admits_in_order_and_never_too_many(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        concurrency, asked, working = Concurrency(3), list[asyncio.Task[None]](), 0
        for step, number in steps:
            if step == "ask":
                asked.append(asyncio.create_task(concurrency.acquire()))
            elif step == "end" and working:
                concurrency.release()
                working -= 1
            elif step == "cancel" and number < len(asked):
                asked[number].cancel()
            await _turns(3)
            admitted = [task for task in asked if task.done() and not task.cancelled()]
            asked = [task for task in asked if not task.done()]
            working += len(admitted)
            assert working == concurrency.in_flight <= 3
            assert working == 3 or not asked
        for task in asked:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    asyncio.run(play())
