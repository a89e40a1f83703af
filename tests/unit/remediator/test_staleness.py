from __future__ import annotations

import pytest

from kube_sync.decisions.records import Stale as Told
from kube_sync.decisions.records import StatusRecord
from kube_sync.remediator.decided import Decided
from kube_sync.remediator.staleness import STEADY_SECONDS, Staleness
from kube_sync.safety import Stale


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.staleness = Staleness(lambda: self.now)

    def told(self, **seconds: float) -> None:
        self.staleness.told(Told(source, age, "503") for source, age in seconds.items())

    def longest(self) -> Stale | None:
        return self.staleness.longest(self.now)


def test_what_is_not_current_grows_older_until_the_stream_says_otherwise() -> None:
    world = World()
    assert world.longest() is None
    world.told(clusters=2.0)
    world.now += 60.0
    assert world.longest() == Stale("clusters", 62.0, "503")


def test_of_several_sources_the_one_that_is_late_for_longest_is_named() -> None:
    world = World()
    world.told(clusters=2.0, nodes=7.0)
    assert world.longest() == Stale("nodes", 7.0, "503")


def test_a_source_that_is_current_again_counts_as_late_for_a_moment() -> None:
    """What it missed has not come yet, or was not decided on."""
    world = World()
    world.told(clusters=60.0)
    world.told()
    world.now += STEADY_SECONDS
    world.told()
    assert world.longest() == Stale("clusters", 60.0 + STEADY_SECONDS, "503")
    world.now += 0.1
    assert world.longest() is None


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(("pause", "age"), [(STEADY_SECONDS, 60.0 + STEADY_SECONDS), (6.0, 0.0)])
def test_a_source_that_comes_and_goes_was_late_all_the_time(
    pause: float, age: float, *, own: bool
) -> None:
    world = World()
    report = world.staleness.reporter("clusters")

    def say(reason: str | None) -> None:
        if own:
            report(reason)
        else:
            world.told(**({} if reason is None else {"clusters": 0.0}))

    say("503")
    world.now += 60.0
    say(None)
    world.now += pause
    say("503")
    assert world.longest() == Stale("clusters", age, "503")


def test_what_is_watched_here_is_late_by_itself() -> None:
    world = World()
    report = world.staleness.reporter("clusters to count")
    report(None)
    report("refused")
    world.now += 9.0
    report("503")
    world.told()
    world.now += 1.0
    assert world.longest() == Stale("clusters to count", 10.0, "503")
    report(None)
    report(None)
    world.now += STEADY_SECONDS + 0.1
    assert world.longest() is None


def test_the_stream_tells_what_is_not_current() -> None:
    decided = Decided(lambda _: None, lambda: 100.0)
    decided.take(StatusRecord((), "me", (), (Told("clusters", 5.0, "503"),)))
    assert decided.staleness.longest(101.0) == Stale("clusters", 6.0, "503")


def test_a_status_that_holds_no_more_than_before_touches_nothing() -> None:
    """It comes with every watch that blinks, and there may be many thousand objects."""
    touched: list[int] = []
    decided = Decided(lambda keys: touched.append(len(list(keys))), lambda: 100.0)
    for _ in range(3):
        decided.take(StatusRecord((), "me"))
    assert len(touched) == 1
