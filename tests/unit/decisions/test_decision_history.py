from __future__ import annotations

import time

import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.history import Change, History
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import Source, Target

EU, US = Decision({"place": "eu"}), Decision({"place": "us"})


def _target(name: str) -> Target:
    return Target("apps", "v1", "replicasets", name, "ns")


class World:
    """A hub, and the history of its changes."""

    def __init__(
        self, *, capacity: int = 5_000, seconds: float = 3_600.0, ended: int = 10_000
    ) -> None:
        self.now = 1000.0
        self.hub = DecisionHub("me", ended=ended)
        self.history = History(capacity=capacity, seconds=seconds, clock=lambda: self.now)
        self.hub.listeners.append(self.history.add)

    def decide(
        self,
        name: str,
        decision: Decision | None,
        cause: str = "data",
        failure: str | None = None,
        uid: str = "u",
    ) -> None:
        target, outcome = _target(name), Outcome(uid, decision, failure)
        self.hub.publish(target.gvr, target.key, outcome, cause, "p")

    def delete(self, name: str) -> None:
        self.hub.delete(_target(name))

    @property
    def steps(self) -> list[tuple[object, ...]]:
        return _steps(self.history.after().changes)


def _steps(changes: tuple[Change, ...]) -> list[tuple[object, ...]]:
    return [(one.object.name, one.old, one.new, one.gone) for one in changes]


def test_what_was_decided_at_the_load_is_no_change() -> None:
    world = World()
    world.decide("a", EU, "load")
    world.decide("a", US)
    assert world.steps == [("a", EU, US, False)]


def test_new_changed_and_deleted_objects_are_changes() -> None:
    world = World()
    world.decide("a", EU, "object")
    world.decide("a", US)
    world.decide("a", US)  # decided again
    world.delete("a")
    world.delete("nobody")
    steps = [("a", None, EU, False), ("a", EU, US, False), ("a", US, None, True)]
    assert world.steps == steps


def test_same_decision_on_an_object_made_anew_is_no_change() -> None:
    world = World()
    world.decide("a", EU, "object")
    world.decide("a", Decision({"place": "eu"}), uid="other")
    assert world.steps == [("a", None, EU, False)]
    world.decide("a", US, uid="third")
    assert world.steps[1:] == [("a", EU, US, False)]


def test_undefined_and_failed_are_changes_and_told_once() -> None:
    world = World()
    world.decide("a", EU, "object")
    world.decide("a", None, failure="conflict")
    world.decide("a", None, failure="conflict")
    world.decide("a", None)
    failures = [(one.failure, one.new) for one in world.history.after().changes]
    assert failures == [(None, EU), ("conflict", EU), (None, None)]
    world.decide("a", US, "data")
    assert world.history.after().changes[-1].old is None


def test_change_says_why_it_was_decided() -> None:
    world = World()
    target = _target("a")
    source = Source("clusters", "fleet/c", 2)
    world.hub.publish(target.gvr, target.key, Outcome("u", EU), "data", "p1", source=source)
    (change,) = world.history.of(target).changes
    assert (change.cause, change.source, change.policy) == ("data", source, "p1")


def test_changes_of_a_class_are_those_of_its_objects() -> None:
    world = World()
    gvr, members = _target("a").gvr, [(_target(name).key, f"uid-{name}") for name in "abc"]
    world.decide("b", US, "load", uid="uid-b")
    world.hub.publish_shared(gvr, members, Outcome("u", US), "data", "p")
    assert world.steps == [("a", None, US, False), ("c", None, US, False)]
    world.hub.publish_shared(gvr, members, Outcome("u", EU), "data", "p")
    assert world.steps[2:] == [(name, US, EU, False) for name in "abc"]


def test_history_is_bounded_by_count_and_says_that_it_was_cut() -> None:
    world = World(capacity=2)
    for name in "abc":
        world.now += 1
        world.decide(name, EU, "object")
    page = world.history.after()
    assert [one.object.name for one in page.changes] == ["b", "c"]
    assert (page.cut, page.complete_since) == (True, 1001.0)


def test_history_is_bounded_by_age_and_that_is_no_cut() -> None:
    world = World(seconds=60.0)
    world.decide("a", EU, "object")
    world.now += 50
    world.decide("b", EU, "object")
    world.now += 20
    page = world.history.after()
    assert [one.object.name for one in page.changes] == ["b"]
    assert (page.cut, page.complete_since) == (False, 1010.0)


def test_a_cut_is_forgotten_once_it_is_older_than_the_history() -> None:
    world = World(capacity=1, seconds=60.0)
    for name in "ab":
        world.decide(name, EU, "object")
    assert world.history.after().cut
    world.now += 61
    assert not world.history.after().cut


def test_history_is_read_on_from_where_one_was_and_in_pieces() -> None:
    world = World()
    history = world.history
    for name in "abcd":
        world.decide(name, EU, "object")
    first = history.after(limit=3)
    assert ([one.number for one in first.changes], first.upto, first.more) == ([1, 2, 3], 3, True)
    second = history.after(first.upto, limit=3)
    assert ([one.number for one in second.changes], second.more) == ([4], False)
    assert history.after(second.upto).changes == ()
    assert history.after(99).upto == 4
    assert _steps(history.of(_target("b")).changes) == [("b", None, EU, False)]


def test_end_that_the_hub_does_not_remember_is_a_change_too() -> None:
    world = World(ended=0)
    for name in "ab":
        world.decide(name, EU, "load")
    world.delete("b")
    assert world.steps == [("b", EU, None, True)]


def test_time_of_day_that_jumps_takes_no_change_away(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, history = DecisionHub("me"), History(seconds=60.0)
    hub.listeners.append(history.add)
    gvr, now = _target("a").gvr, time.time
    hub.publish(gvr, _target("a").key, Outcome("u", EU), "object", "p")
    monkeypatch.setattr(time, "time", lambda: now() + 3600.0)
    hub.publish(gvr, _target("b").key, Outcome("u", EU), "object", "p")
    first, second = history.after().changes
    assert 0 <= second.time - first.time < 60
