from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kube_sync.guard.add_first import OnUnhealthy, Partial, State, Terms, Whole, next_step
from kube_sync.guard.additions import ADDITION, Addition, read_addition, write_addition
from kube_sync.guard.placements import PREFERENCES, SELECTOR, Placements

PLACEMENTS = Placements({"place": "names"})
NOW = 1_000.0
TERMS = Terms(300)
KEEP = Terms(300, "keep")


class World:
    """One object, what is decided for it, and where it is healthy."""

    def __init__(self, has: str, wanted: str, *healthy: str) -> None:
        self.has = {"place": has}
        self.wanted = {"place": wanted}
        self.healthy = set(healthy)
        self.exists: frozenset[str] | None = None
        self.approved = frozenset[str]()
        self.seen = "1"
        self.now = NOW
        self.knows_health = True

    def state(self) -> State:
        return State(
            self.has,
            {**self.has, **self.wanted},
            lambda clusters: clusters & self.healthy if self.knows_health else frozenset(),
            self.now,
            "id",
            "p",
            lambda clusters: f"{self.seen}{sorted(clusters)}",
            self.exists,
            self.approved,
            self.knows_health,
        )

    def next(self, terms: Terms = TERMS) -> Whole | Partial:
        return next_step(PLACEMENTS, self.state(), terms)

    def take(self, terms: Terms = TERMS) -> Whole | Partial:
        """Carry out the next step, as the remediator does."""
        found = self.next(terms)
        self.has.pop(ADDITION, None) if isinstance(found, Whole) or found.record is None else None
        if isinstance(found, Whole):
            self.has |= self.wanted
        else:
            self.has |= found.placements
            if found.record is not None:
                self.has[ADDITION] = write_addition(found.record)
        return found

    @property
    def record(self) -> Addition | None:
        return read_addition(self.has, self.now)

    @property
    def place(self) -> str:
        return self.has["place"]


@pytest.mark.parametrize(
    ("has", "wanted"),
    [
        ("a", "a"),  # no change
        ("a", "a,b"),  # an addition
        ("", "b"),  # a first placement
        ("a", ""),  # it empties: the guard decides
        ("a", "*"),
        ("*", "b"),  # nothing can be named
    ],
)
def test_a_change_that_is_no_move_between_clusters_with_names_is_made_whole(
    has: str, wanted: str
) -> None:
    assert World(has, wanted).next() == Whole()


def test_a_move_by_labels_is_made_whole() -> None:
    world = World("a", "a")
    world.has = {SELECTOR: '[{"key": "a", "operator": "Exists"}]'}
    world.wanted = {SELECTOR: '[{"key": "b", "operator": "Exists"}]'}
    assert world.next() == Whole()


def test_a_move_to_no_cluster_of_the_fleet_is_made_whole_for_the_guard_to_hold() -> None:
    world = World("a", "b")
    world.exists = frozenset("ac")
    assert world.next() == Whole()


def test_first_the_new_clusters_are_added_then_the_old_ones_go_once_these_are_healthy() -> None:
    world = World("a", "b")
    found = world.take()
    assert isinstance(found, Partial)
    assert (world.place, {*found.missing}, found.until) == ("a,b", {"b"}, NOW + 300)
    assert world.record == Addition(world_digest(world), 1_000, ("b",), "added", "p")
    world.now += 299
    assert world.take() == Partial({"place": "a,b"}, world.record, frozenset("b"), NOW + 300)
    world.healthy.add("b")
    assert world.take() == Whole()
    assert world.has == {"place": "b"}


def world_digest(world: World) -> str:
    record = world.record
    assert record is not None
    return record.to


def test_old_clusters_go_only_when_all_new_ones_are_healthy() -> None:
    world = World("a", "b,c", "b")
    world.take()
    assert isinstance(world.take(), Partial)
    world.healthy.add("c")
    assert world.take() == Whole()


@pytest.mark.parametrize("chosen", ["a", "b"])
def test_what_runs_in_one_of_its_clusters_leaves_the_others_once_that_is_decided(
    chosen: str,
) -> None:
    """As a Workload of Kueue: the cluster may be a new one, or one that stays."""
    world = World("a,o", "a,b")
    world.take()
    assert isinstance(world.take(), Partial)

    def healthy(clusters: frozenset[str]) -> frozenset[str]:
        return clusters if chosen in clusters else frozenset()

    assert next_step(PLACEMENTS, replace(world.state(), healthy=healthy), TERMS) == Whole()


def test_new_clusters_that_the_fleet_does_not_have_are_not_waited_for() -> None:
    world = World("a", "b,unknown", "b")
    world.exists = frozenset("ab")
    world.take()
    assert world.take() == Whole()


def test_what_is_not_healthy_in_time_is_taken_back_and_not_tried_again() -> None:
    world = World("a", "b", "a")
    world.take()
    world.now += 300
    found = world.take()
    assert isinstance(found, Partial)
    assert (world.place, found.until) == ("a", None)
    record = world.record
    assert record is not None
    assert (record.step, record.at, record.added, record.policy) == ("reverted", 1_300, ("b",), "p")
    for _ in range(3):
        world.now += 10_000
        assert world.take() == Partial({"place": "a"}, record, frozenset("b"), None, found.retry)
        assert world.place == "a"


def test_only_what_is_not_healthy_is_taken_back() -> None:
    world = World("a", "b,c", "b")
    world.take()
    world.now += 300
    world.take()
    assert world.place == "a,b"


@pytest.mark.parametrize("what", ["seen", "approved", "wanted"])
def test_a_change_of_spec_cluster_or_decision_or_an_approval_tries_again(what: str) -> None:
    world = World("a", "b", "a")
    world.take()
    world.now += 300
    found = world.take()
    assert isinstance(found, Partial)
    assert found.retry is not None
    match what:
        case "seen":
            world.seen = "2"
        case "approved":
            world.approved = frozenset([found.retry])
        case _:
            world.wanted = {"place": "c"}
    world.now += 5
    again = world.take()
    assert isinstance(again, Partial)
    assert (world.place, again.until) == (f"a,{'c' if what == 'wanted' else 'b'}", world.now + 300)
    # An approval holds for one time.
    world.now += 300
    world.take()
    assert (world.place, world.record and world.record.step) == ("a", "reverted")
    world.now += 5
    world.take()
    assert world.place == "a"


def test_what_is_to_be_kept_stays_and_the_move_ends_when_it_is_healthy_later() -> None:
    world = World("a", "b", "a")
    world.take(KEEP)
    world.now += 300
    found = world.take(KEEP)
    assert isinstance(found, Partial)
    assert (world.place, found.until, found.retry) == ("a,b", None, None)
    assert (world.record and world.record.step) == "kept"
    world.now += 300
    assert world.take(KEEP) == replace(found, record=world.record)
    world.healthy.add("b")
    assert world.take(KEEP) == Whole()


def test_an_addition_is_kept_where_no_old_cluster_is_left() -> None:
    """To take it back would leave the workload on clusters that are gone."""
    world = World("a", "b")
    world.take()
    world.exists = frozenset("b")
    world.now += 300
    world.take()
    assert (world.place, world.record and world.record.step) == ("a,b", "kept")


def test_where_nothing_is_added_one_cluster_that_stays_has_to_be_healthy() -> None:
    world = World("a,b", "b", "a")
    found = world.take()
    assert found == Partial({"place": "a,b"}, None, frozenset("b"))
    world.healthy = {"b"}
    assert world.take() == Whole()


def test_a_decision_that_is_taken_back_takes_back_what_was_added_at_once() -> None:
    world = World("a", "b")
    world.take()
    world.wanted = {"place": "a"}
    assert world.take() == Whole()
    assert (world.place, world.record) == ("a", None)


def test_a_decision_that_is_taken_back_takes_no_healthy_cluster_for_one_that_is_not() -> None:
    world = World("a", "b", "b")
    world.take()
    world.wanted = {"place": "a"}
    assert isinstance(world.take(), Partial)
    assert world.place == "a,b"
    world.healthy.add("a")
    assert world.take() == Whole()


def test_another_decision_goes_on_from_what_is_there_and_takes_back_all_of_it() -> None:
    world = World("a", "b", "a")
    world.take()
    world.wanted = {"place": "c"}
    world.now += 100
    world.take()
    assert (world.place, world.record and world.record.added) == ("a,b,c", ("b", "c"))
    world.now += 300
    world.take()
    assert world.place == "a"


def test_what_somebody_took_away_is_added_again_in_the_same_time() -> None:
    world = World("a", "b")
    world.take()
    world.has["place"] = "a"
    world.now += 200
    found = world.take()
    assert isinstance(found, Partial)
    assert (world.place, found.until) == ("a,b", NOW + 300)


def test_what_somebody_added_again_is_left_until_it_is_healthy() -> None:
    world = World("a", "b", "a")
    world.take()
    world.now += 300
    world.take()
    world.has["place"] = "a,b"
    found = world.take()
    assert isinstance(found, Partial)
    assert (world.place, {*found.missing}) == ("a,b", {"b"})
    world.healthy.add("b")
    assert world.take() == Whole()


def test_what_was_kept_and_taken_away_is_added_and_still_counts_as_late() -> None:
    world = World("a", "b", "a")
    world.take(KEEP)
    world.now += 300
    world.take(KEEP)
    world.has["place"] = "a"
    found = world.take(KEEP)
    assert isinstance(found, Partial)
    assert (world.place, found.until, found.record and found.record.step) == ("a,b", None, "kept")


def test_a_forged_record_names_no_cluster_to_go_to() -> None:
    """It can only keep its object where it is."""
    world = World("a", "b", "a")
    forged = Addition("x", 0, ("evil", "a"), "added")
    world.has[ADDITION] = write_addition(forged)
    for _ in range(4):
        world.take()
        world.now += 400
        assert "evil" not in world.place
        assert "a" in world.place


def test_weights_of_clusters_that_stay_follow_with_the_second_step() -> None:
    world = World("a", "b", "b")
    one, two = '{"clusters":{"a":{"weight":1},"b":{}}}', '{"clusters":{"b":{"weight":9}}}'
    world.has, world.wanted = {PREFERENCES: '{"clusters":{"a":{"weight":1}}}'}, {PREFERENCES: two}
    world.take()
    assert world.has[PREFERENCES] == one.replace("{}", '{"weight":9}')
    assert world.take() == Whole()
    assert world.has[PREFERENCES] == two


def _terms(on: OnUnhealthy) -> Terms:
    return Terms(0, on)


def test_without_any_time_only_what_is_healthy_at_once_moves() -> None:
    world: Any = World("a", "b", "a")
    world.take(_terms("revert"))
    world.now += 1
    world.take(_terms("revert"))
    assert world.place == "a"


@pytest.mark.parametrize("wanted", ["b", "a"])
def test_while_health_is_not_known_nothing_is_taken_away_in_either_direction(wanted: str) -> None:
    world = World("a", "b", "b")
    world.knows_health = False
    assert isinstance(world.take(), Partial)
    world.now += 10_000
    world.wanted = {"place": wanted}
    found = world.take()
    assert isinstance(found, Partial)
    assert (world.place, found.until) == ("a,b", None)
    world.knows_health = True
    world.healthy.add("a")
    assert world.take() == Whole()
