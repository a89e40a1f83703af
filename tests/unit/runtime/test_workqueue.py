from __future__ import annotations

import asyncio
import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.workqueue import WorkQueue
from tests.unit.async_tools import PATIENCE, LoopTime, Timers, running, until


async def test_a_key_added_often_before_its_turn_runs_once() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_added_while_in_work_runs_once_more_afterwards() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0, "the same key must not be in work twice"
    queue.done(key)
    assert len(queue) == 1
    queue.done(await queue.get())
    assert len(queue) == 0


async def test_a_key_is_in_the_queue_until_nothing_more_is_to_be_done_with_it() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    assert "a" not in queue
    queue.add("a")
    assert "a" in queue
    queue.add_rate_limited(await queue.get())
    assert "a" in queue
    queue.done("a")
    assert "a" in queue, "it is delayed"
    queue.close()
    assert "a" in queue, "it failed last time"
    queue.forget("a")
    assert "a" not in queue


async def test_queue_is_idle_when_no_key_waits_or_is_in_work() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    assert queue.idle
    queue.add("a")
    assert not queue.idle
    key = await queue.get()
    assert not queue.idle
    queue.done(key)
    queue.add_after(key, 60)
    assert queue.idle, "a delayed key is due some time"
    queue.close()


async def test_a_key_in_work_is_in_the_queue() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    queue.add("a")
    key = await queue.get()
    assert key in queue
    queue.done(key)
    assert key not in queue


async def test_a_key_that_was_done_without_news_does_not_come_back() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    queue.add("a")
    queue.done(await queue.get())
    assert len(queue) == 0


async def test_waiting_workers_each_get_one_of_the_keys() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        workers = [group.create_task(queue.get()) for _ in range(2)]
        await asyncio.sleep(0)
        queue.add("a")
        queue.add("b")
    assert {worker.result() for worker in workers} == {"a", "b"}


async def test_one_key_wakes_workers_but_only_one_of_them_takes_it() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    taken: list[str] = []

    async def work() -> None:
        while True:
            taken.append(await queue.get())

    async with running(work(), work()):
        await asyncio.sleep(0)
        queue.add("a")
        await until(lambda: taken)
        for _ in range(5):
            await asyncio.sleep(0)
    assert taken == ["a"]


async def test_groups_take_turns_each_in_the_order_of_its_keys() -> None:
    queue = WorkQueue[str]("test", group=lambda key: key[0])
    for key in ("a1", "a2", "a3", "b1", "b2", "c1"):
        queue.add(key)
    assert [await queue.get() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_a_group_with_few_keys_is_not_delayed_by_one_with_thousands() -> None:
    queue = WorkQueue[tuple[str, int]]("test", group=lambda key: key[0])
    for number in range(5000):
        queue.add(("large", number))
    for _ in range(10):
        queue.done(await queue.get())
    for number in range(10):
        queue.add(("small", number))
    served = [await queue.get() for _ in range(20)]
    assert [key for key in served if key[0] == "small"] == [("small", n) for n in range(10)]


async def test_a_key_is_chosen_when_a_worker_has_its_turn_and_waits_until_then() -> None:
    queue, turn = WorkQueue[str]("turn", group=lambda key: key[0]), asyncio.Event()
    queue.add("a1")

    async def wait() -> None:
        await turn.wait()

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        workers = [group.create_task(queue.get(wait)) for _ in range(2)]
        await asyncio.sleep(0)
        queue.add("a2")
        queue.add("b1")
        await asyncio.sleep(0)
        assert _metric("turn", "depth") == 3
        turn.set()
    assert {worker.result() for worker in workers} == {"a1", "b1"}


@pytest.mark.parametrize("woken_first", [False, True])
async def test_a_worker_that_is_cancelled_as_a_key_comes_leaves_it_to_another(
    *, woken_first: bool
) -> None:
    queue = WorkQueue[str]("test")
    cancelled, other = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    if woken_first:
        queue.add("a")
    cancelled.cancel()
    queue.add("a")
    async with asyncio.timeout(PATIENCE):
        assert await other == "a"
    assert cancelled.cancelled()


async def test_a_worker_that_is_cancelled_before_its_turn_leaves_the_key_to_another() -> None:
    queue = WorkQueue[str]("test")
    queue.add("a")
    worker = asyncio.create_task(queue.get(asyncio.Event().wait))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    worker.cancel()
    await asyncio.wait([worker])
    async with asyncio.timeout(PATIENCE):
        assert await queue.get() == "a"


async def test_add_after_adds_the_key_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, queue = Timers(monkeypatch), WorkQueue[str]("test")
    queue.add_after("a", 3.0)
    assert (len(queue), timers.seconds) == (0, [3.0])
    timers.fire()
    assert await queue.get() == "a"


async def test_an_add_meanwhile_replaces_the_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, queue = Timers(monkeypatch), WorkQueue[str]("test")
    queue.add_after("a", 3.0)
    queue.add("a")
    assert timers.seconds == []
    queue.done(await queue.get())
    timers.fire()
    assert len(queue) == 0


async def test_add_after_for_a_key_that_waits_already_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers, queue = Timers(monkeypatch), WorkQueue[str]("test")
    queue.add("a")
    queue.add_after("a", 3.0)
    queue.add_after("b", 3.0)
    queue.add_after("b", 9.0)
    assert timers.seconds == [3.0]


async def test_a_nearer_time_replaces_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    time = LoopTime(monkeypatch)
    queue = WorkQueue[str]("test")
    queue.add_after("a", 1000.0)
    queue.add_after("a", 0.0)
    queue.add_after("a", 500.0)
    async with asyncio.timeout(30):
        assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0
    assert time.timers == []


async def test_a_time_that_is_up_while_the_key_is_in_work_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers, queue = Timers(monkeypatch), WorkQueue[str]("test")
    queue.add("a")
    key = await queue.get()
    queue.add_after("a", 3.0)
    timers.fire()
    assert len(queue) == 0
    queue.done(key)
    assert len(queue) == 1


async def test_close_cancels_what_was_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, queue = Timers(monkeypatch), WorkQueue[str]("test")
    queue.add_after("a", 3.0)
    queue.close()
    assert timers.seconds == []


def _metric(queue: str, metric: str) -> float | None:
    return REGISTRY.get_sample_value(f"workqueue_{metric}", {"name": queue})


def _whole() -> Backoff:
    return Backoff(1.0, 4.0, jitter=lambda: 1.0)


async def test_a_key_that_fails_waits_longer_each_time_and_no_other_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers, queue = Timers(monkeypatch), WorkQueue[str]("failing", _whole)
    seconds = []
    for _ in range(4):
        queue.add_rate_limited("a")
        seconds += timers.seconds
        timers.fire()
        queue.done(await queue.get())
    queue.add_rate_limited("b")
    assert (seconds, timers.seconds) == ([1.0, 2.0, 4.0, 4.0], [1.0])
    assert (queue.num_requeues("a"), queue.num_requeues("b")) == (4, 1)
    assert _metric("failing", "retries_total") == 5


async def test_a_key_that_is_forgotten_begins_with_the_first_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers, queue = Timers(monkeypatch), WorkQueue[str]("forgetting", _whole)
    queue.add_rate_limited("a")
    queue.add_rate_limited("a")
    queue.forget("a")
    queue.forget("never added")
    assert queue.num_requeues("a") == 0
    timers.fire()
    queue.done(await queue.get())
    queue.add_rate_limited("a")
    assert timers.seconds == [1.0]


async def test_a_failed_key_waits_no_less_than_the_server_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers, queue = Timers(monkeypatch), WorkQueue[str]("asked", _whole)
    queue.add_rate_limited("a", 9.0)
    queue.add_rate_limited("b", 0.5)
    assert timers.seconds == [9.0, 1.0]


async def test_the_metrics_tell_how_long_keys_waited_and_were_in_work() -> None:
    now = 100.0
    queue = WorkQueue[str]("metrics", clock=lambda: now)
    for key in ("a", "a", "b"):
        queue.add(key)
    assert (_metric("metrics", "depth"), _metric("metrics", "adds_total")) == (2, 2)
    now += 5.0
    await queue.get()
    now += 2.0
    await queue.get()
    queue.add("b")
    queue.add("b")
    now += 1.0
    assert _metric("metrics", "adds_total") == 3
    assert _metric("metrics", "depth") == 0
    assert _metric("metrics", "unfinished_work_seconds") == 4.0
    assert _metric("metrics", "longest_running_processor_seconds") == 3.0
    queue.done("b")
    queue.done("a")
    assert _metric("metrics", "unfinished_work_seconds") == 0.0
    assert _metric("metrics", "longest_running_processor_seconds") == 0.0
    assert _metric("metrics", "depth") == 1
    await queue.get()
    assert _metric("metrics", "queue_duration_seconds_sum") == 5.0 + 7.0 + 1.0
    assert _metric("metrics", "work_duration_seconds_sum") == 1.0 + 3.0


async def test_a_queue_that_is_gone_has_no_depth_and_the_next_of_its_name_has_its_own() -> None:
    """One is made for each epoch of a replicator."""
    queue = WorkQueue[str]("replaced")
    queue.add("a")
    del queue
    gc.collect()
    assert _metric("replaced", "depth") == 0
    queue = WorkQueue("replaced")
    queue.add("b")
    queue.add("c")
    assert _metric("replaced", "depth") == 2


@given(st.lists(st.tuples(st.sampled_from(["add", "get", "done"]), st.integers(0, 3))))
def test_any_interleaving_runs_every_added_key_and_none_twice_at_once(
    steps: list[tuple[str, int]],
) -> None:
    """The model: `due` is what has been added since its last start."""

    async def play() -> None:
        queue: WorkQueue[int] = WorkQueue("test")
        due: set[int] = set()
        in_work: set[int] = set()
        for step, number in steps:
            if step == "add":
                queue.add(number)
                due.add(number)
            elif step == "get" and len(queue):
                key = await queue.get()
                assert key in due
                assert key not in in_work
                due.discard(key)
                in_work.add(key)
            elif step == "done" and number in in_work:
                in_work.discard(number)
                queue.done(number)
            assert len(queue) == len(due - in_work)

    asyncio.run(play())


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 5)), max_size=200))
def test_between_two_keys_of_a_waiting_group_each_other_group_has_one_at_most(
    steps: list[tuple[bool, int, int]],
) -> None:
    async def play() -> None:
        queue = WorkQueue[tuple[int, int]]("test", group=lambda key: key[0])
        waiting: dict[int, list[int]] = {}  # the keys of each group in order
        passed: dict[int, list[int]] = {}  # groups that had a key since a waiting group's last
        for adds, group, number in steps:
            if adds:
                queue.add((group, number))
                keys = waiting.setdefault(group, [])
                keys += [] if number in keys else [number]
                passed.setdefault(group, [])
            elif len(queue):
                served, key = await queue.get()
                queue.done((served, key))
                assert waiting[served].pop(0) == key
                for other, others in passed.items():
                    others.append(served)
                    assert other == served or others.count(served) == 1
                passed[served] = []
                if not waiting[served]:
                    del waiting[served], passed[served]

    asyncio.run(play())
