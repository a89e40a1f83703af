from __future__ import annotations

import heapq
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.guard import Allowed, Change, Fleet, Guard
from kube_sync.guard.budget import Budget, scopes, scopes_of
from kube_sync.guard.history import LENGTH, Entry
from kube_sync.guard.limits import Limits, Rate
from kube_sync.inspect.plan.pacing import Buckets, paced, spent

NOW = 1_000_000.0
LIMITS = Limits(moves=Rate(60, 5), namespace=Rate(30, 2), cluster=Rate(30, 3))


def goes(
    wanted: dict[str, tuple[str, str]], limits: Limits = LIMITS, buckets: Buckets | None = None
) -> dict[str, float]:
    """Return after how many seconds each goes, of namespace and cluster by name."""
    of = {key: scopes(namespace, [cluster]) for key, (namespace, cluster) in wanted.items()}
    found = paced(dict.fromkeys(wanted, NOW), of, buckets or Buckets(limits))
    return {key: at - NOW for key, at in found.items()}


def test_one_full_namespace_does_not_hold_up_another() -> None:
    wanted = {f"a{n}": ("a", f"c{n}") for n in range(4)} | {"b0": ("b", "c9")}
    assert goes(wanted) == pytest.approx({"a0": 0, "a1": 0, "a2": 2, "a3": 4, "b0": 0})


def test_cluster_that_everything_leaves_sets_the_pace() -> None:
    wanted = {f"w{n}": (f"ns{n}", "c1") for n in range(6)}
    assert sorted(goes(wanted).values()) == pytest.approx([0, 0, 0, 2, 4, 6])


def test_without_limits_everything_goes_at_once() -> None:
    assert goes({"a": ("a", "c"), "b": ("a", "c")}, Limits()) == {"a": 0, "b": 0}


def test_what_is_ready_later_goes_later() -> None:
    of = {"a": scopes("a", ["c"]), "b": scopes("a", ["c"])}
    assert paced({"a": NOW + 9, "b": NOW}, of, Buckets(LIMITS)) == {"a": NOW + 9, "b": NOW}


def test_what_was_spent_before_has_not_come_back() -> None:
    buckets = Buckets(Limits(moves=Rate(60, 2)))
    history = (Entry(int(NOW) - 1, "a", ("c",)), Entry(int(NOW), "b", ("c",)))
    buckets.replay(spent("shop", history, NOW))
    assert goes({"a": ("a", "c"), "b": ("a", "c")}, buckets=buckets) == {"a": 0, "b": 1}


def test_history_that_is_full_says_that_nothing_is_left_of_any_scope() -> None:
    history = tuple(Entry(int(NOW), f"p{n}") for n in range(LENGTH))
    found = list(spent("shop", history, NOW))
    assert found == [(NOW, None)]
    buckets = Buckets(Limits(moves=Rate(60, 2)))
    buckets.replay(found)
    assert goes({"a": ("a", "c"), "b": ("a", "c")}, buckets=buckets) == {"a": 1, "b": 2}
    known = Buckets(Limits(moves=Rate(60, 2)))
    known.of(scopes("a", ["c"]))
    known.replay(found)
    assert goes({"a": ("a", "c")}, buckets=known) == {"a": 1}


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["c1", "c2"])), max_size=12),
    st.tuples(*[st.tuples(st.sampled_from([6, 30, 60]), st.integers(1, 3)) for _ in range(3)]),
)
def test_no_move_goes_before_the_remediator_s_budget_gives_it(
    wanted: list[tuple[str, str]], rates: tuple[tuple[int, int], ...]
) -> None:
    moves, namespace, cluster = (Rate(*rate) for rate in rates)
    limits = Limits(moves, namespace, cluster)
    found = goes({f"w{n:02}": one for n, one in enumerate(wanted)}, limits)
    budget = Budget(limits)
    for key in sorted(found, key=lambda key: found[key]):
        of = scopes(wanted[int(key[1:])][0], [wanted[int(key[1:])][1]])
        at = NOW + found[key]
        assert budget.earliest(of, at)[0] <= at + 0.002
        budget.spend(of, at)


def asked(changes: dict[str, Change], limits: Limits) -> dict[str, float]:
    """Return when each goes where the guard is asked again and again, as the remediator does."""
    guard: Guard[str] = Guard(limits)
    guard.recall({}, NOW)
    wanted = {key: (change, ()) for key, change in changes.items()}
    numbers = Counter(change.namespace for change in changes.values())
    guard.consider(wanted, Fleet(0.0, 9, 9, epoch_matches=True), numbers, (), NOW)
    due, found = [(NOW, key) for key in changes], dict[str, float]()
    while due:
        now, key = heapq.heappop(due)
        verdict = guard.admit(key, changes[key], (), now)
        if isinstance(verdict, Allowed):
            found[key] = now - NOW
        else:
            assert verdict.until is not None
            heapq.heappush(due, (verdict.until, key))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_all_take_as_long_as_where_the_guard_is_asked_again_and_again(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret is made of it
    changes = {
        f"w{n:02}": Change(chance.choice("abc"), f"x{n}", f"y{n}", frozenset({chance.choice("pq")}))
        for n in range(60)
    }
    of = {key: scopes_of(change) for key, change in changes.items()}
    found = paced(dict.fromkeys(changes, NOW), of, Buckets(LIMITS))
    lasts = max(found.values()) - NOW
    assert lasts == pytest.approx(max(asked(changes, LIMITS).values()), rel=0.1)
