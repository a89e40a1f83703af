from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.history import Change, History
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import DecisionRecord, DeletedRecord, Target
from tests.unit.async_tools import running, until

EU, US = Decision({"place": "eu"}), Decision({"place": "us"})


def _target(name: str) -> Target:
    return Target("apps", "v1", "replicasets", name, "ns")


def _record(
    name: str, decision: Decision | None, cause: str = "data", failure: str | None = None
) -> DecisionRecord:
    return DecisionRecord(_target(name), "u", decision, 1, cause, "p", failure=failure)


def _clock(*, start: float = 1000.0) -> tuple[list[float], Callable[[], float]]:
    now = [start]
    return now, lambda: now[0]


def _steps(changes: tuple[Change, ...]) -> list[tuple[object, ...]]:
    return [(one.object.name, one.old, one.new, one.gone) for one in changes]


def test_what_was_decided_at_the_load_is_no_change() -> None:
    history = History()
    history.add(_record("a", EU, "load"))
    history.add(_record("a", US))
    assert _steps(history.after().changes) == [("a", EU, US, False)]


def test_new_changed_and_deleted_objects_are_changes() -> None:
    history = History()
    history.add(_record("a", EU, "object"))
    history.add(_record("a", US))
    history.add(_record("a", US))  # told again
    history.add(DeletedRecord(_target("a"), 3))
    history.add(DeletedRecord(_target("nobody"), 3))
    steps = [("a", None, EU, False), ("a", EU, US, False), ("a", US, None, True)]
    assert _steps(history.after().changes) == steps


def test_undefined_and_failed_are_changes_and_told_once() -> None:
    history = History()
    history.add(_record("a", EU, "object"))
    history.add(_record("a", EU, failure="conflict"))
    history.add(_record("a", EU, failure="conflict"))
    history.add(_record("a", None))
    failures = [(one.failure, one.new) for one in history.after().changes]
    assert failures == [(None, EU), ("conflict", EU), (None, None)]
    history.add(_record("a", US, "data"))
    assert history.after().changes[-1].old is None


def test_history_is_bounded_by_count_and_says_that_it_was_cut() -> None:
    now, clock = _clock()
    history = History(capacity=2, clock=clock)
    for name in "abc":
        now[0] += 1
        history.add(_record(name, EU, "object"))
    page = history.after()
    assert [one.object.name for one in page.changes] == ["b", "c"]
    assert (page.cut, page.complete_since) == (True, 1001.0)


def test_history_is_bounded_by_age_and_that_is_no_cut() -> None:
    now, clock = _clock()
    history = History(seconds=60.0, clock=clock)
    history.add(_record("a", EU, "object"))
    now[0] += 50
    history.add(_record("b", EU, "object"))
    now[0] += 20
    page = history.after()
    assert [one.object.name for one in page.changes] == ["b"]
    assert (page.cut, page.complete_since) == (False, 1010.0)


def test_a_cut_is_forgotten_once_it_is_older_than_the_history() -> None:
    now, clock = _clock()
    history = History(capacity=1, seconds=60.0, clock=clock)
    for name in "ab":
        history.add(_record(name, EU, "object"))
    assert history.after().cut
    now[0] += 61
    assert not history.after().cut


def test_history_is_read_on_from_where_one_was_and_in_pieces() -> None:
    history = History()
    for name in "abcd":
        history.add(_record(name, EU, "object"))
    first = history.after(limit=3)
    assert ([one.number for one in first.changes], first.upto, first.more) == ([1, 2, 3], 3, True)
    second = history.after(first.upto, limit=3)
    assert ([one.number for one in second.changes], second.more) == ([4], False)
    assert history.after(second.upto).changes == ()
    assert history.after(99).upto == 4
    assert _steps(history.of(_target("b")).changes) == [("b", None, EU, False)]


async def test_reader_that_began_afresh_finds_what_ended_meanwhile() -> None:
    hub, history = DecisionHub("me", ended=0), History()
    for name in "ab":
        hub.publish(_target(name).gvr, _target(name).key, Outcome("u", EU), "load", "p")
    async with running(history.follow(hub)):
        await until(lambda: hub.waiting)  # it has read all
        hub.delete(_target("b"))  # nobody is told of that any more
        await until(lambda: history.after().changes)
        assert _steps(history.after().changes) == [("b", EU, None, True)]


def test_time_of_day_that_jumps_takes_no_change_away(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(seconds=60.0)
    history.add(_record("a", EU, "object"))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600.0)
    history.add(_record("b", EU, "object"))
    first, second = history.after().changes
    assert 0 <= second.time - first.time < 60


async def test_history_follows_a_hub_even_one_that_it_falls_behind_of() -> None:
    hub, history = DecisionHub("me", ended=2), History()
    hub.publish(_target("a").gvr, _target("a").key, Outcome("u", EU), "load", "p")
    async with running(history.follow(hub)):
        await until(lambda: hub.waiting)  # it has read all
        for name in "bcdefg":
            hub.publish(_target(name).gvr, _target(name).key, Outcome("u", EU), "object", "p")
            hub.delete(_target(name))
        hub.publish(_target("a").gvr, _target("a").key, Outcome("u", US), "data", "p")
        await until(lambda: history.after().changes)
        assert _steps(history.after().changes) == [("a", EU, US, False)]
