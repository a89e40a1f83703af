from __future__ import annotations

import pytest

from kube_sync.runtime.freshness import SETTLE_SECONDS, Freshness, Stale, StaleSource, oldest


class World:
    def __init__(self, settle_seconds: float = 0.0) -> None:
        self.now = 100.0
        self.changes = 0
        self.freshness = Freshness[str](
            lambda: self.now, settle_seconds=settle_seconds, on_change=self._changed
        )
        self.report = self.freshness.reporter("clusters")

    def _changed(self) -> None:
        self.changes += 1

    def oldest(self) -> Stale | None:
        return oldest(self.freshness)


def test_a_source_is_stale_since_it_was_first_reported() -> None:
    world = World()
    world.report(None)
    assert (world.freshness.stale(), world.changes) == ([], 0)
    world.report("503")
    world.now += 2.0
    world.report("refused")
    world.now += 1.0
    assert world.freshness.stale() == [Stale("clusters", 3.0, "refused")]


def test_a_report_that_changes_nothing_calls_nobody() -> None:
    world = World()
    for reason in ("503", "503", None, None):
        world.report(reason)
    assert (world.freshness.sources, world.changes) == ((), 2)


def test_details_that_change_are_a_change() -> None:
    world = World()
    world.freshness.report("clusters", "deep", ("c1",))
    world.freshness.report("clusters", "deep", ("c1", "c2"))
    assert world.freshness.sources == (StaleSource("clusters", 100.0, "deep", ("c1", "c2")),)
    assert world.changes == 2


def test_without_settling_a_source_that_was_current_meanwhile_is_stale_anew() -> None:
    world = World()
    world.freshness.report("b", "503")
    world.freshness.report("a", "503")
    world.freshness.report("b", None)
    world.now += 5.0
    world.freshness.report("b", "503")
    assert [one.source for one in world.freshness.sources] == ["a", "b"]
    assert [world.freshness.age(one) for one in world.freshness.sources] == [5.0, 0.0]


def test_after_clear_nothing_is_stale() -> None:
    world = World(SETTLE_SECONDS)
    world.report(None)
    world.freshness.clear()
    assert world.changes == 0
    world.report("503")
    world.freshness.report("nodes", "503")
    world.report(None)
    world.freshness.clear()
    world.now += 2 * SETTLE_SECONDS
    assert (world.freshness.stale(), world.changes) == ([], 3)


def test_the_oldest_comes_first() -> None:
    world, other = World(), World()
    assert world.oldest() is None
    world.freshness.replace([Stale("clusters", 2.0, "503"), Stale("nodes", 7.0, "503")])
    other.freshness.report("OPA", "down", age=4.0)
    world.now += 60.0
    other.now += 60.0
    assert [one.source for one in world.freshness.stale()] == ["nodes", "clusters"]
    assert oldest(other.freshness, world.freshness) == Stale("nodes", 67.0, "503")


def test_a_source_that_is_current_again_counts_as_stale_until_it_has_settled() -> None:
    """What it missed has not come yet, or was not decided on."""
    world = World(SETTLE_SECONDS)
    world.freshness.replace([Stale("clusters", 60.0, "503")])
    world.freshness.replace([])
    world.now += SETTLE_SECONDS
    world.freshness.replace([])
    assert world.oldest() == Stale("clusters", 60.0 + SETTLE_SECONDS, "503")
    world.now += 0.1
    assert world.oldest() is None


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize(("pause", "age"), [(SETTLE_SECONDS, 60.0 + SETTLE_SECONDS), (6.0, 0.0)])
def test_a_source_that_comes_and_goes_was_stale_all_the_time(
    pause: float, age: float, *, replaced: bool
) -> None:
    world = World(SETTLE_SECONDS)

    def say(reason: str | None) -> None:
        if replaced:
            world.freshness.replace([] if reason is None else [Stale("clusters", 0.0, reason)])
        else:
            world.report(reason)

    say("503")
    world.now += 60.0
    say(None)
    world.now += pause
    say("503")
    assert world.oldest() == Stale("clusters", age, "503")
