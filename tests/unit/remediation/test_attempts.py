from __future__ import annotations

from dataclasses import replace

import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.guard.rivals import WRITES
from kube_sync.kube.meta import Apply
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.attempts import FORBIDDEN_SECONDS, Attempts
from kube_sync.remediation.plan import Current, Wanted

KEY = (GroupVersionResource("apps", "v1", "replicasets"), ObjectKey("ns", "a"))
WANTED = Wanted("u", Decision({"place": "eu"}))
STEP = Apply("u", {"place": "eu"}, {}, "1")
OTHER = replace(STEP, annotations={"place": "us"})
CURRENT = Current("u", {"place": "us"}, {}, "1", frozenset(), frozenset())


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.attempts = Attempts(lambda: self.now)

    def is_open(self, step: Apply = STEP) -> bool:
        return self.attempts.is_open(KEY, WANTED, CURRENT, step)

    def fight(self) -> None:
        for _ in range(WRITES):
            self.attempts.applied(KEY, WANTED, CURRENT)


@pytest.fixture
def world() -> World:
    return World()


def test_nothing_stops_the_first_try(world: World) -> None:
    assert world.is_open()
    assert not world.attempts.is_done(KEY, STEP)
    assert not world.attempts.release(KEY)


def test_a_step_that_is_done_is_not_repeated_but_another_is_tried(world: World) -> None:
    world.attempts.done(KEY, STEP)
    assert not world.is_open()
    assert world.is_open(OTHER)


def test_a_forbidden_step_is_tried_again_after_a_minute_and_another_at_once(world: World) -> None:
    world.attempts.forbid(KEY, STEP)
    assert world.attempts.forbidden_until(KEY, STEP) == 100.0 + FORBIDDEN_SECONDS
    assert not world.is_open()
    assert world.is_open(OTHER)
    world.now += FORBIDDEN_SECONDS
    assert world.is_open()
    assert world.attempts.release(KEY)
    assert not world.attempts.release(KEY)


def test_what_somebody_else_keeps_undoing_is_left_to_them(world: World) -> None:
    world.fight()
    until = world.attempts.rival_until(KEY, WANTED, CURRENT)
    assert until is not None
    assert not world.is_open()
    recreated = replace(CURRENT, uid="another")
    assert world.attempts.rival_until(KEY, WANTED, recreated) is None
    world.now = until
    assert world.is_open()


def test_a_new_beginning_tries_everything_but_leaves_truces(world: World) -> None:
    world.attempts.done(KEY, STEP)
    world.attempts.forbid(KEY, OTHER)
    world.attempts.begin()
    assert world.is_open()
    assert world.is_open(OTHER)
    world.fight()
    world.attempts.begin()
    assert not world.is_open()


@pytest.mark.parametrize("gone", [False, True])
def test_of_an_object_of_which_no_step_is_wanted_only_a_truce_is_kept(
    world: World, *, gone: bool
) -> None:
    world.attempts.done(KEY, STEP)
    world.attempts.forbid(KEY, OTHER)
    world.fight()
    world.attempts.settled(KEY, gone=gone)
    assert not world.attempts.is_done(KEY, STEP)
    assert world.attempts.forbidden_until(KEY, OTHER) is None
    assert (world.attempts.rival_until(KEY, WANTED, CURRENT) is None) == gone
