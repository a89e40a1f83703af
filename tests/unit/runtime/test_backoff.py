from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kube_sync.runtime.backoff import Backoff
from tests.unit.async_tools import Waits


def test_repeated_failures_double_the_wait_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 1.0, jitter=lambda: 1.0)
    assert [backoff.next_delay() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_progress_makes_the_next_wait_the_first_one_again() -> None:
    backoff = Backoff(0.1, 1.0, jitter=lambda: 1.0)
    backoff.next_delay()
    backoff.next_delay()
    backoff.progressed()
    assert backoff.next_delay() == 0.1


@given(
    jitter=st.floats(0, 1, exclude_max=True),
    failures=st.integers(0, 60),
    first=st.floats(0.001, 10),
    longest=st.floats(10, 100),
)
def test_any_jitter_leaves_between_half_and_the_whole_of_a_step(
    jitter: float, failures: int, first: float, longest: float
) -> None:
    backoff = Backoff(first, longest, jitter=lambda: jitter)
    delay = [backoff.next_delay() for _ in range(failures + 1)][-1]
    step = min(longest, first * 2.0**failures)
    assert step / 2 <= delay <= step


def test_different_jitter_gives_different_waits() -> None:
    """Clients that lost the same server must not all come back at once."""
    jitter = itertools.cycle([0.0, 0.5])
    backoff = Backoff(1.0, 1.0, jitter=lambda: next(jitter))
    assert [backoff.next_delay(), backoff.next_delay()] == [0.5, 0.75]


def test_a_day_of_failures_does_not_overflow() -> None:
    backoff = Backoff(0.1, 30.0, jitter=lambda: 1.0)
    assert [backoff.next_delay() for _ in range(2000)][-1] == 30.0


async def test_wait_sleeps_for_the_delay() -> None:
    waits = Waits()
    backoff = waits.backoff(0.1)
    await backoff.wait()
    await backoff.wait()
    assert waits.seconds == [0.1, 0.2]


async def test_a_server_that_asks_for_more_time_gets_it() -> None:
    waits = Waits()
    await waits.backoff(0.1).wait(7.0)
    assert waits.seconds == [7.0]


async def test_a_server_that_asks_for_less_time_than_the_delay_does_not_shorten_it() -> None:
    waits = Waits()
    await waits.backoff(0.5).wait(0.0)
    assert waits.seconds == [0.5]


async def test_a_wait_ends_when_something_is_due() -> None:
    waits = Waits()
    await waits.backoff(5.0).wait(7.0, at_most=1.5)
    assert waits.seconds == [1.5]
