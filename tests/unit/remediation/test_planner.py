from __future__ import annotations

from dataclasses import replace

import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.kube.meta import Apply
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation import planner as module
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Nothing, Step, Wanted, plan
from kube_sync.remediation.planner import Parts, Planned, Planner, PlanStep, ReadHealth

GVR = GroupVersionResource("apps", "v1", "replicasets")
A, B = ((GVR, ObjectKey("ns", name)) for name in "ab")
WANTED = Wanted("u", Decision({"place": "eu"}))
CURRENT = Current("u", {"place": "us"}, version="1")


class World:
    """One decision and one state for every object; `planned` counts the plans."""

    def __init__(self) -> None:
        self.wanted: Wanted | None = WANTED
        self.current: Current | None = CURRENT
        self.planned = 0
        self.planner = Planner(lambda _key: self.wanted, lambda _key: self.current, self._plan)

    def _plan(self, _key: Key, wanted: Wanted | None, current: Current | None) -> Step:
        self.planned += 1
        return plan(wanted, current)

    def keep(self, key: Key = A) -> None:
        self.planner.keep(key, self.planner.plan(key))

    def place(self, key: Key = A) -> object:
        """Return the placement that is to be written, at which version."""
        step = self.planner.take(key).step
        return (step.annotations["place"], step.version) if isinstance(step, Apply) else step


@pytest.fixture
def world() -> World:
    return World()


def test_a_kept_step_is_taken_without_another_plan(world: World) -> None:
    world.keep()
    assert (world.place(), world.planned) == (("eu", "1"), 1)


def test_a_step_is_taken_once_and_a_later_try_plans_anew(world: World) -> None:
    world.keep()
    assert [world.place(), world.place()] == [("eu", "1")] * 2
    assert world.planned == 2


def test_a_step_that_was_not_kept_is_planned(world: World) -> None:
    world.keep(B)
    assert (world.place(), world.planned) == (("eu", "1"), 2)


def test_a_step_is_not_used_for_another_decision(world: World) -> None:
    world.keep()
    world.wanted = Wanted("u", Decision({"place": "asia"}))
    assert world.place() == ("asia", "1")


def test_a_step_is_not_used_for_another_state(world: World) -> None:
    world.keep()
    world.current = replace(CURRENT, version="2")
    assert world.place() == ("eu", "2")


def test_a_step_is_not_used_for_an_object_that_is_gone(world: World) -> None:
    world.keep()
    world.current = None
    assert world.place() == Nothing()


def test_a_step_that_is_kept_replaces_the_one_before(world: World) -> None:
    world.keep()
    world.current = replace(CURRENT, version="2")
    world.keep()
    assert (world.place(), world.planned) == (("eu", "2"), 2)


def test_a_dropped_step_is_planned_again(world: World) -> None:
    world.keep()
    world.planner.drop(A)
    world.planner.drop(B)
    assert (world.place(), world.planned) == (("eu", "1"), 2)


def test_no_more_steps_are_kept_than_memory_is_meant_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KEPT", 1)
    for key in (A, B, A):
        world.keep(key)
    assert (world.place(), world.planned) == (("eu", "1"), 3)
    assert (world.place(B), world.planned) == (("eu", "1"), 4)


class Stepwise:
    """Makes each move in several steps."""

    in_steps = True

    def read_health(self, gvr: GroupVersionResource) -> ReadHealth | None:
        del gvr
        return None

    def planned(self, key: Key, wanted: Wanted, current: Current, plan_step: PlanStep) -> Planned:
        del key
        step = plan_step(wanted)
        return Planned(wanted, current, step, Parts(wanted, Nothing()))


def test_a_step_of_several_is_not_kept_since_it_depends_on_more() -> None:
    planner = Planner(lambda _: WANTED, lambda _: CURRENT, lambda _, *both: plan(*both), Stepwise())
    first = planner.plan(A)
    planner.keep(A, first)
    taken = planner.take(A)
    assert taken == first
    assert taken is not first
    assert (taken.carried_out, taken.weighed, taken.left) == (WANTED, Nothing(), None)
