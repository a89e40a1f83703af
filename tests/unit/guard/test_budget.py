from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.guard import budget as module
from kube_sync.guard.budget import Budget, scopes
from kube_sync.guard.limits import Limits, Rate
from tests.memory import remembered

MOVES = ("moves", "")
ALL = Limits(Rate(60, 3))


def _budget(limits: Limits = ALL, spent: int = 0, at: float = 0) -> Budget:
    budget = Budget(limits)
    for _ in range(spent):
        budget.spend([MOVES], at)
    return budget


def _scopes_of(budget: Budget) -> list[str]:
    """Return the kind of each scope that takes memory."""
    kinds = {kind for kind, _ in scopes("n", ["c"])}
    return [one[0] for one in remembered(budget, tuple) if one[0] in kinds]


def test_a_burst_goes_at_once_and_the_next_after_the_interval() -> None:
    assert _budget(spent=2).earliest([MOVES], 0) == (0, MOVES)
    assert _budget(spent=3).earliest([MOVES], 0) == (1, MOVES)
    assert _budget(spent=3).interval(MOVES) == 1


def test_no_limit_is_no_limit() -> None:
    budget = _budget(Limits(), spent=1000)
    assert budget.earliest([MOVES], 0) == (0, MOVES)
    assert budget.interval(MOVES) == 0
    budget.refund([MOVES], 0, 0)
    assert _scopes_of(budget) == []


def test_the_scope_that_has_least_decides() -> None:
    budget = Budget(Limits(Rate(60, 5), Rate(60, 1), Rate(6, 1)))
    budget.spend(scopes("n", ["c"]), 0)
    assert budget.earliest(scopes("m", ["d"]), 0)[0] == 0
    assert budget.earliest(scopes("n", ["d"]), 0) == (1, ("namespace", "n"))
    assert budget.earliest(scopes("n", ["d", "c"]), 0) == (10, ("cluster", "c"))


def test_what_somebody_else_takes_first_counts() -> None:
    assert _budget(spent=2).earliest([MOVES], 0, besides=[MOVES]) == (1, MOVES)


def test_tokens_come_back_up_to_the_burst() -> None:
    budget = _budget(spent=3)
    for _ in range(3):
        budget.spend([MOVES], 100)
    assert budget.earliest([MOVES], 100)[0] == 101


def test_a_clock_that_goes_back_gives_nothing_back() -> None:
    budget = _budget(spent=3, at=100)
    assert budget.earliest([MOVES], 50)[0] == 51
    budget.spend([MOVES], 50)
    assert budget.earliest([MOVES], 100)[0] == 102


def test_a_refund_gives_back_what_did_not_come_back_by_itself() -> None:
    budget = _budget(spent=3)
    budget.refund([MOVES], 0, 0)
    assert budget.earliest([MOVES], 0)[0] == 0
    budget = _budget(Limits(Rate(60, 1)), spent=1)
    budget.spend([MOVES], 1)
    budget.refund([MOVES], 0, 1)
    assert budget.earliest([MOVES], 1)[0] == 2


def test_other_limits_leave_spent_what_is_spent() -> None:
    budget = _budget(spent=3)
    budget.limit(Limits(Rate(6, 2)), 1)
    assert budget.earliest([MOVES], 1)[0] == 11
    budget.limit(ALL, 1)
    assert budget.earliest([MOVES], 1)[0] == 1
    budget.limit(Limits(), 1)
    budget.limit(Limits(Rate(60, 1)), 2)
    assert budget.earliest([MOVES], 2)[0] == 2


def test_nothing_is_left_where_nobody_knows_what_was_spent() -> None:
    budget = _budget()
    budget.exhaust(10)
    assert budget.earliest([("cluster", "c")], 10)[0] == 10
    assert budget.earliest([MOVES], 10) == (11, MOVES)
    budget.spend([MOVES], 11)
    assert budget.earliest([MOVES], 11)[0] == 12
    assert budget.earliest([MOVES], 13)[0] == 13


def test_what_is_replayed_is_never_more_than_all() -> None:
    budget = Budget(Limits(Rate(60, 2)))
    for _ in range(1000):
        budget.replay(scopes("n", []), 5)
    assert budget.earliest([MOVES], 5)[0] == 6


def test_scopes_that_are_full_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MANY", 4)
    budget = Budget(Limits(namespace=Rate(60, 1)))
    for number in range(100):
        budget.spend(scopes(f"n{number}", []), number)
        assert len(_scopes_of(budget)) <= 4


@given(
    st.builds(Rate, st.floats(0.1, 600), st.integers(1, 9)),
    st.lists(st.floats(0, 30), max_size=40),
)
def test_no_window_gives_more_than_its_rate_and_one_burst(rate: Rate, steps: list[float]) -> None:
    budget, now, spent = Budget(Limits(rate)), 1e9, list[float]()
    for step in steps:
        now += step
        if budget.earliest([MOVES], now)[0] <= now:
            budget.spend([MOVES], now)
            spent.append(now)
    for first, start in enumerate(spent):
        for last, end in enumerate(spent[first:], first):
            assert last - first + 1 <= rate.burst + (end - start) * rate.per_second + 0.001


@given(st.builds(Rate, st.floats(0.1, 6000), st.integers(1, 9)), st.integers(1, 30))
def test_whoever_asks_again_when_told_goes(rate: Rate, number: int) -> None:
    budget, now = Budget(Limits(rate)), 1.7e9
    for _ in range(number):
        now, _ = budget.earliest([MOVES], now)
        assert budget.earliest([MOVES], now)[0] == now
        budget.spend([MOVES], now)
