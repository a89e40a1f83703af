from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from kube_sync.guard.budget import Budget, Scope, scopes
from kube_sync.guard.limits import Limits, Rate
from kube_sync.guard.token_queue import TokenQueue
from tests.memory import remembered

MOVES: list[Scope] = [("moves", "")]


def _empty(limits: Limits) -> Budget:
    budget = Budget(limits)
    budget.exhaust(0)
    return budget


def test_who_finds_a_token_goes_at_once() -> None:
    assert TokenQueue().acquire(Budget(Limits(Rate(60, 1))), "a", MOVES, 0) is None


def test_those_that_wait_are_told_one_after_another() -> None:
    """Else all would come back at once, for one token."""
    budget, turns = _empty(Limits(Rate(60, 1))), TokenQueue()
    told = [turns.acquire(budget, key, MOVES, 0) for key in "abc"]
    assert told == [(1, MOVES[0]), (2, MOVES[0]), (3, MOVES[0])]
    assert [turns.acquire(budget, key, MOVES, at) for at, key in enumerate("abc", 1)] == [None] * 3


def test_nobody_overtakes_the_one_that_has_waited_longest() -> None:
    budget, turns = _empty(Limits(Rate(60, 1))), TokenQueue()
    turns.acquire(budget, "a", MOVES, 0)
    assert turns.acquire(budget, "b", MOVES, 1) == (2, MOVES[0])
    assert turns.acquire(budget, "a", MOVES, 1) is None
    assert turns.acquire(budget, "b", MOVES, 2) is None


def test_many_of_one_namespace_cost_another_no_more_than_one() -> None:
    budget, turns = _empty(Limits(Rate(60, 1))), TokenQueue()
    due = [(0.0, number, "n") for number in range(100)] + [(0.5, 100, "m"), (0.5, 101, "m")]
    gone: list[tuple[float, str]] = []
    while len(gone) < 6:
        now, key, namespace = heapq.heappop(due)
        missing = turns.acquire(budget, key, scopes(namespace, []), now)
        if missing is None:
            gone.append((now, namespace))
        else:
            heapq.heappush(due, (missing[0], key, namespace))
    assert gone == [(1, "n"), (2, "m"), (3, "n"), (4, "m"), (5, "n"), (6, "n")]


def test_who_takes_nothing_that_the_first_needs_goes() -> None:
    """Its token is back before the first one has its turn."""
    budget, turns = Budget(Limits(Rate(60, 1), Rate(6, 1))), TokenQueue()
    assert turns.acquire(budget, "a", scopes("n", []), 0) is None
    assert turns.acquire(budget, "b", scopes("n", []), 2) == (10, ("namespace", "n"))
    assert turns.acquire(budget, "c", scopes("m", []), 2) is None
    assert turns.acquire(budget, "d", scopes("o", []), 9.5) == (10.5, ("moves", ""))
    assert turns.acquire(budget, "b", scopes("n", []), 10) is None


def test_the_first_that_is_late_stops_nobody_that_leaves_it_enough() -> None:
    budget, turns = Budget(Limits(Rate(60, 1), Rate(6, 1))), TokenQueue()
    assert turns.acquire(budget, "a", scopes("n", []), 0) is None
    assert turns.acquire(budget, "b", scopes("n", []), 2) == (10, ("namespace", "n"))
    budget.spend([("namespace", "n")], 10)
    assert turns.acquire(budget, "c", scopes("m", []), 11) is None


def test_the_first_is_told_again_when_another_was_faster() -> None:
    budget, turns = _empty(Limits(Rate(60, 1))), TokenQueue()
    assert turns.acquire(budget, "a", MOVES, 0) == (1, MOVES[0])
    budget.spend(MOVES, 1)
    assert turns.acquire(budget, "a", MOVES, 1) == (2, MOVES[0])
    assert turns.acquire(budget, "a", MOVES, 2) is None


def test_who_does_not_come_is_not_waited_for() -> None:
    budget, turns = _empty(Limits(Rate(60, 1))), TokenQueue()
    turns.acquire(budget, "a", MOVES, 0)
    assert turns.acquire(budget, "b", MOVES, 61) == (62, MOVES[0])
    assert turns.acquire(budget, "b", MOVES, 62) is None


def test_who_leaves_is_not_waited_for() -> None:
    budget, turns = _empty(Limits(Rate(60, 1))), TokenQueue()
    turns.acquire(budget, "a", MOVES, 0)
    turns.remove("a")
    turns.remove("a")
    assert turns.acquire(budget, "b", MOVES, 1) is None
    assert remembered(turns, str) == []


@given(
    st.lists(st.tuples(st.sampled_from("nm"), st.sets(st.sampled_from("xyz"))), max_size=25),
    st.tuples(*[st.none() | st.builds(Rate, st.floats(1, 60), st.integers(1, 3))] * 3),
    st.randoms(use_true_random=False),
)
def test_everybody_goes_in_the_end_however_many_come_after_them(
    waiting: list[tuple[str, set[str]]],
    rates: tuple[Rate | None, Rate | None, Rate | None],
    chance: st.DataObject,
) -> None:
    """While one more comes for each that goes, those that were there first still all go."""
    budget, turns = Budget(Limits(*rates)), TokenQueue()
    due = [(0.0, chance.random(), number) for number in range(len(waiting))]  # type: ignore[attr-defined]
    heapq.heapify(due)
    wanted = dict(enumerate(waiting))
    left, late, turn = set(wanted), len(waiting), 0
    while left:
        turn += 1
        assert turn < 5000
        now, _, key = heapq.heappop(due)
        namespace, clusters = wanted[key]
        missing = turns.acquire(budget, key, scopes(namespace, clusters), now)
        if missing is not None:
            heapq.heappush(due, (missing[0], chance.random(), key))  # type: ignore[attr-defined]
            continue
        left.discard(key)
        wanted[late] = wanted[key]
        heapq.heappush(due, (now, chance.random(), late))  # type: ignore[attr-defined]
        late += 1
