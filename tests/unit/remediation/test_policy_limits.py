from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import Budget, DecisionRecord, StatusRecord
from kube_sync.guard import Guard, Limits, Tightening, Withheld
from kube_sync.guard.limits import Rate
from kube_sync.objects import ObjectKey
from kube_sync.remediation.brakes import Brakes
from kube_sync.remediation.plan import Current, Write, plan
from kube_sync.remediation.plan import Wanted as Decided
from kube_sync.remediation.policy_limits import Easing, LimitSource
from kube_sync.runtime.freshness import SETTLE_SECONDS, Stale
from tests.memory import remembered
from tests.unit.async_tools import Timers
from tests.unit.guard.test_limits import limits_
from tests.unit.remediation.test_reconciler import (
    BOOKMARK,
    PLACEMENTS,
    REPLICASETS,
    ApiServer,
    Facts,
    World,
    _decision,
    _target,
)

LOOSE = Limits(Rate(60, 9), mass_floor=9)
ONE = {"moves_per_minute": 1, "moves_burst": 1}
HELD = StatusRecord(("loading",), "me")
NONE = Tightening()


def says(document: Any, failure: str | None = None, *, last_good: bool = False) -> StatusRecord:
    return StatusRecord((), "me", budget=Budget(document, failure, last_good=last_good))


def stream(world: World, status: StatusRecord, *decisions: DecisionRecord) -> None:
    """Begin a stream that says this of the limits."""
    for record in (None, HELD, *decisions, status, BOOKMARK):
        world.take(record)


def test_before_anything_was_told_nobody_knows() -> None:
    assert LimitSource().by is None


def test_no_limits_are_known_to_be_none() -> None:
    assert LimitSource().updated(None) == LimitSource(Tightening())
    assert LimitSource(Tightening(moves_burst=1)).updated(None) == LimitSource(Tightening())


@pytest.mark.parametrize("document", [7, "x", [], {"moves": 1}, {"not_before": []}])
def test_what_cannot_be_read_leaves_what_was_known(document: Any) -> None:
    before = LimitSource(Tightening(moves_burst=1))
    found = before.updated(Budget(document))
    assert found.by == before.by
    assert str(found.trouble).startswith("data.kube_sync_budget: ")
    assert LimitSource().updated(Budget(document)).by is None


def test_what_the_engine_cannot_use_leaves_what_it_or_the_reader_knew() -> None:
    known = LimitSource(Tightening(moves_burst=1))
    assert known.updated(Budget(None, "a conflict")) == LimitSource(known.by, "a conflict")
    assert LimitSource().updated(Budget(None, "a conflict")) == LimitSource(None, "a conflict")
    stands = Budget({"moves_burst": 2}, "a conflict", last_good=True)
    assert known.updated(stands) == LimitSource(Tightening(moves_burst=2), "a conflict")
    none = Budget(None, "a conflict", last_good=True)
    assert known.updated(none) == LimitSource(Tightening(), "a conflict")


_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_names = st.sampled_from([*Tightening.__struct_fields__, "other"])
_documents = st.recursive(
    _scalars | st.dictionaries(_names, _scalars),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=9,
) | st.dictionaries(_names, st.floats(0, 100) | st.integers(0, 9))
_budgets = st.none() | st.builds(Budget, _documents, st.none() | st.text(), st.booleans())


def _slower(one: Rate | None, other: Rate | None) -> bool:
    return other is None or (
        one is not None and one.per_minute <= other.per_minute and one.burst <= other.burst
    )


def _stricter(one: Limits, other: Limits) -> bool:
    return (
        all(_slower(getattr(one, n), getattr(other, n)) for n in ("moves", "namespace", "cluster"))
        and all(getattr(one, n) >= getattr(other, n) for n in ("dwell", "cooldown", "oscillation"))
        and all(getattr(one, n) <= getattr(other, n) for n in ("shrink", "mass_share"))
        and one.mass_floor <= other.mass_floor
        and (other.stale is None or (one.stale is not None and one.stale <= other.stale))
    )


@given(limits_, st.lists(_budgets, max_size=5))
def test_nothing_that_is_ever_told_loosens_what_is_configured(
    limits: Limits, budgets: list[Budget | None]
) -> None:
    guard: Guard[str] = Guard(limits)
    brakes = Brakes(guard, PLACEMENTS, Facts(), frozenset, lambda: 1.0)
    for budget in budgets:
        brakes.tighten(budget)
        assert _stricter(guard.limits, limits)


@given(st.lists(_budgets, min_size=1, max_size=5))
def test_a_move_that_is_held_by_the_configuration_is_held_whatever_is_told(
    budgets: list[Budget | None],
) -> None:
    guard: Guard[str] = Guard(Limits(cooldown=0, dwell=0, shrink=0.1, mass_floor=9))
    facts = Facts()
    facts.clusters = 5
    brakes = Brakes(guard, PLACEMENTS, facts, frozenset, lambda: 1.0)
    key = (REPLICASETS, ObjectKey("ns", "a"))
    current = Current("u", {"place": "us"}, {}, "1")
    step = plan(Decided("u", Decision({"place": "eu"}), None), current)
    assert isinstance(step, Write)
    for budget in budgets:
        brakes.tighten(budget)
        brakes.want(key, current, step, evict=False)
        brakes.weigh({"ns": 1})
        assert not isinstance(brakes.admit(key, current, step, evict=False), Write)


async def test_a_policy_slows_moves_and_lets_them_go_when_it_is_taken_away() -> None:
    world = World(ApiServer(a="us", b="us", c="us"), limits=LOOSE)
    async with world.running():
        stream(world, says(ONE), *(_decision(name, "eu") for name in "abc"))
        await world.idle()
        assert len(world.server.patched) == 1
        assert {*world.waits().values()} == {"budget"}
        world.take(says(None))
        await world.steady()
    assert sorted(world.server.patched) == ["a", "b", "c"]


async def test_the_end_of_a_limit_lets_nothing_go_that_decisions_take_back_a_moment_later() -> None:
    """As when maintenance ends: our replicator tells the decisions first, others may not."""
    world = World(ApiServer(a="us", b="us", c="us"), limits=LOOSE)
    async with world.running():
        stream(world, says(ONE), *(_decision(name, "eu") for name in "abc"))
        await world.idle()
        (gone,) = world.server.patched
        world.take(says(None))
        world.reconciler.weigh()
        await world.idle()
        for name in {*"abc"} - {gone}:
            world.take(_decision(name, "us"))
        world.take(BOOKMARK)
        await world.steady()
    assert (world.server.patched, world.waits()) == ([gone], {})


async def test_a_lower_limit_after_a_higher_one_counts_at_once() -> None:
    world = World(ApiServer(a="us", b="us"), limits=LOOSE)
    async with world.running():
        stream(world, says(ONE), _eu("a"))
        await world.idle()
        world.take(says(None))
        await world.steady()
        world.take(says({"mass_share": 0, "mass_floor": 0}))
        world.take(_eu("b"))
        world.take(BOOKMARK)
        await world.steady()
    assert (world.server.patched, world.waits()) == (["a"], {"b": "mass"})


async def test_one_object_waits_by_its_name_whatever_becomes_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    world = World(ApiServer(a="us", b="us"), limits=LOOSE)
    until = world.now + 100
    async with world.running():
        stream(world, says({"not_before": {"ns/a": until}}), *map(_eu, "ab"))
        await world.idle()
        assert (world.server.patched, world.waits()) == (["b"], {"a": "not_before"})
        world.server.uid = "v"
        world.relist()
        world.take(_decision("a", "eu", uid="v"))
        world.take(BOOKMARK)
        await world.idle()
        world.reconciler.lead()
        await world.idle()
        assert (world.server.patched, world.waits()) == (["b"], {"a": "not_before"})
        world.now = until + 1
        timers.fire()
        await world.idle()
        assert world.waits() == {"a": "unseen"}
        world.reconciler.weigh()
        await world.idle()
        timers.fire()
        await world.idle()
    assert world.server.patched == ["b", "a"]


def _eu(name: str) -> DecisionRecord:
    return _decision(name, "eu")


async def test_an_object_that_is_wanted_already_waits_from_then_on() -> None:
    world = World(ApiServer(a="us"), limits=Limits(shrink=0.3))
    world.facts.clusters = 1
    async with world.running():
        stream(world, says(None), _eu("a"))
        await world.idle()
        assert world.waits() == {"a": "fleet"}
        world.take(says({"not_before": {"ns/a": world.now + 100}}))
        world.facts.clusters = 10
        await world.idle()
        assert (world.server.patched, world.waits()) == ([], {"a": "not_before"})
        world.take(says({"not_before": {"ns/b": world.now + 100}}))
        await world.steady()
    assert world.server.patched == ["a"]


async def test_limits_that_become_known_with_a_decision_hold_its_move() -> None:
    """They come first, and what was weighed before counts no more."""
    world = World(ApiServer(a="us"), limits=LOOSE)
    async with world.running():
        stream(world, says(None))
        await world.idle()
        world.take(says({"mass_share": 0, "mass_floor": 0}))
        world.take(_eu("a"))
        world.take(BOOKMARK)
        await world.idle()
    assert (world.server.patched, world.waits()) == ([], {"a": "mass"})


async def test_nothing_moves_where_nobody_knows_the_limits() -> None:
    """As after a restart of both, while the policy cannot be evaluated."""
    world = World(ApiServer(a="us", b=""), limits=LOOSE)
    other = DecisionRecord(_target("b"), "u", Decision({"other": "x"}), 1, "data", "")
    async with world.running():
        stream(world, says(None, "a conflict"), _eu("a"), other)
        await world.idle()
        assert (world.server.patched, world.waits()) == (["b"], {"a": "limits"})
        (wait,) = [wait for _, wait in world.reconciler.waiting]
        assert wait.reason == "it is not known what policies limit: a conflict"
        world.take(says(None))
        await world.idle()
    assert world.server.patched == ["b", "a"]


async def test_an_engine_that_begins_anew_does_not_loosen_what_is_known() -> None:
    world = World(ApiServer(a="us", b="us"), limits=LOOSE)
    async with world.running():
        stream(world, says(ONE), _eu("a"))
        await world.idle()
        world.take(None)
        world.take(StatusRecord(("loading",), "other"))
        for record in (_eu("a"), _eu("b")):
            world.take(record)
        world.take(says(None, "a conflict"))
        world.take(BOOKMARK)
        await world.idle()
        assert world.reconciler.tightened.by == Tightening(moves_per_minute=1, moves_burst=1)
    assert (world.server.patched, world.waits()) == (["a"], {"b": "budget"})


async def test_another_leader_keeps_what_was_told_while_it_stood_by() -> None:
    world = World(ApiServer(a="us", b="us"), limits=LOOSE)
    world.left = 0.0
    async with world.running():
        stream(world, says(ONE), _eu("a"), _eu("b"))
        await world.idle()
        world.left = 60.0
        world.reconciler.lead()
        await world.idle()
    assert len(world.server.patched) == 1


async def test_the_reason_of_a_hold_is_that_of_now() -> None:
    world = World(ApiServer(a="us"), limits=Limits(stale=60, mass_floor=9))
    world.facts.stale = Stale("OPA", 61, "it does not answer")
    async with world.running():
        stream(world, says(None), _eu("a"))
        await world.idle()
        world.facts.stale = Stale("clusters", 400, "403")
        world.reconciler.weigh()
        await world.idle()
        (wait,) = [wait for _, wait in world.reconciler.waiting]
    assert wait.reason == "clusters: not current for 400 s (limit 60 s): 403"
    assert wait.release == "clusters: current again"


async def test_limits_that_are_said_again_weigh_nothing_again() -> None:
    world = World(ApiServer(a="us"))
    async with world.running():
        stream(world, says(ONE))
        await world.idle()
        assert not world.brakes.tighten(Budget(ONE))
        assert world.brakes.tighten(Budget(ONE, "a conflict", last_good=True))
        assert REGISTRY.get_sample_value("kube_sync_budget_unusable") == 1
        assert world.brakes.tighten(Budget(ONE))
        assert REGISTRY.get_sample_value("kube_sync_budget_unusable") == 0


def test_what_is_wanted_already_is_asked_for_again_by_other_limits() -> None:
    """Whoever calls the brakes need not say again what is wanted."""
    now = [1.0]
    brakes = Brakes(Guard(LOOSE), PLACEMENTS, Facts(), frozenset, lambda: now[0])
    key = (REPLICASETS, ObjectKey("ns", "a"))
    current = Current("u", {"place": "us"}, {}, "1")
    step = plan(Decided("u", Decision({"place": "eu"}), None), current)
    assert isinstance(step, Write)
    brakes.tighten(None)
    brakes.want(key, current, step, evict=False)
    assert brakes.weigh({"ns": 1})
    assert not brakes.weigh({"ns": 1})
    brakes.tighten(Budget({"not_before": {"ns/a": 9}}))
    assert brakes.weigh({"ns": 1})
    held = brakes.admit(key, current, step, evict=False)
    assert isinstance(held, Withheld)
    assert held.kind == "not_before"
    brakes.tighten(None)
    assert brakes.weigh({"ns": 1})
    assert not brakes.weigh({"ns": 1})
    now[0] += SETTLE_SECONDS
    assert brakes.weigh({"ns": 1})
    assert isinstance(brakes.admit(key, current, step, evict=False), Write)


def _burst(number: int) -> Tightening:
    return Tightening(moves_burst=number)


def test_what_was_replaced_counts_for_a_few_seconds_more() -> None:
    easing = Easing()
    easing.end(_burst(1), 100)
    assert easing.with_(NONE, 100 + SETTLE_SECONDS - 0.1) == _burst(1)
    assert easing.with_(NONE, 100 + SETTLE_SECONDS) == NONE


def test_what_is_told_counts_at_once_where_it_is_lower() -> None:
    easing = Easing()
    easing.end(_burst(3), 100)
    assert easing.with_(_burst(2), 100) == _burst(2)
    assert easing.with_(Tightening(dwell_seconds=9), 100) == Tightening(
        moves_burst=3, dwell_seconds=9
    )


def test_what_is_replaced_again_and_again_ends_one_by_one() -> None:
    easing = Easing()
    easing.end(_burst(1), 100)
    easing.end(_burst(2), 102)
    easing.end(_burst(3), 104)
    assert [easing.with_(NONE, at) for at in (104, 105, 107, 109)] == [
        _burst(1),
        _burst(2),
        _burst(3),
        NONE,
    ]


def test_what_ends_in_one_moment_is_remembered_once() -> None:
    easing = Easing()
    for step in range(100):
        easing.end(_burst(1 + step), 100 + step / 50)
    assert len(remembered(easing, Tightening)) <= 3
    assert easing.with_(NONE, 100.9 + SETTLE_SECONDS) == _burst(1)
