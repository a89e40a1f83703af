"""A placement that no cluster of the fleet fits is held like an empty one."""

from __future__ import annotations

import json
from dataclasses import replace
from difflib import SequenceMatcher

import pytest

from kube_sync.guard import (
    Allowed,
    Change,
    Fleet,
    Guard,
    Inventory,
    Limits,
    Placements,
    Withheld,
    compare,
)
from kube_sync.guard.placements import PREFERENCES, SELECTOR, Clusters
from kube_sync.guard.unknown_clusters import GRACE_SECONDS
from kube_sync.runtime.freshness import Stale

NOW = 1000.0
LATER = NOW + GRACE_SECONDS
PLACEMENTS = Placements({"names": "names"})
NAMES = frozenset(["c001", "c002", "c003"])
LABELS: tuple[dict[str, str], ...] = ({"region": "eu"}, {"region": "eu", "pci": "true"}, {})
WELL = Fleet(1, 3, 3, epoch_matches=True, inventory=Inventory(NAMES, LABELS))
STALE = replace(WELL, stale=Stale("clusters", 61.0, "503"))
LIMITS = Limits(stale=60, mass_floor=9)
EU = json.dumps([{"key": "region", "operator": "in", "values": ["eu"]}])
US = json.dumps([{"key": "region", "operator": "in", "values": ["us"]}])


def on(*clusters: str) -> dict[str, str]:
    return {PREFERENCES: json.dumps({"clusters": {name: {"weight": 1} for name in clusters}})}


HERE = on("c001")


def change(after: dict[str, str], before: dict[str, str] = HERE, *, evict: bool = False) -> Change:
    found = compare(PLACEMENTS, "n", before, after, evict=evict)
    assert found is not None
    return found


class World:
    def __init__(self) -> None:
        self.guard: Guard[str] = Guard(LIMITS)

    def consider(self, wanted: Change, fleet: Fleet = WELL, now: float = NOW) -> frozenset[object]:
        found = self.guard.consider({"o": (wanted, ())}, fleet, {"n": 100}, (), now)
        assert found.moves == (wanted.is_move and not found.nowhere)
        return found.nowhere

    def take(self, wanted: Change, fleet: Fleet = WELL, now: float = LATER) -> Allowed | Withheld:
        """Take it once it has been wanted for a moment."""
        self.consider(wanted, fleet, now - GRACE_SECONDS)
        self.consider(wanted, fleet, now)
        return self.guard.admit("o", wanted, (), now)

    def kind(self, wanted: Change, fleet: Fleet = WELL) -> str:
        found = self.take(wanted, fleet)
        return found.kind if isinstance(found, Withheld) else "goes"


@pytest.fixture
def world() -> World:
    return World()


def test_placement_on_unknown_clusters_alone_is_held_with_the_nearest_names(world: World) -> None:
    found = world.take(change(on("c0001", "c00l")))
    assert isinstance(found, Withheld)
    assert (found.kind, found.until, found.approve) == ("nowhere", None, None)
    assert found.reason == (
        "it would run on no cluster: the fleet has no cluster 'c0001' (nearest: c001, c002, c003),"
        " 'c00l' (nearest: c001, c002, c003)"
    )
    assert found.release == "the policy places it on a cluster of the fleet, or says `evict: true`"


@pytest.mark.parametrize(
    "after",
    [
        on("atlantis"),
        {"names": "atlantis,lemuria"},
        {**HERE, "names": '["atlantis"]'},
        {SELECTOR: US},
        {**HERE, SELECTOR: US},
        {PREFERENCES: json.dumps({"clusters": {"*": {}} | {n: {"weight": 0} for n in NAMES}})},
    ],
)
def test_placement_that_no_cluster_fits_is_held_also_as_a_first_one(
    world: World, after: dict[str, str]
) -> None:
    assert world.kind(change(after)) == "nowhere"
    assert world.kind(change(after, {})) == "nowhere"
    assert world.kind(change(after, on())) == "nowhere"
    assert world.kind(change(after, on("lost"))) == "nowhere"


@pytest.mark.parametrize(
    "after",
    [
        on("c002"),
        {"names": "c002"},
        {SELECTOR: EU},
        {SELECTOR: "[]"},
        on("*"),
        {**HERE, **on("c3", "c003")},
    ],
)
def test_placement_that_some_cluster_fits_goes(world: World, after: dict[str, str]) -> None:
    assert world.kind(change(after)) == "goes"


def test_eviction_lets_a_placement_on_unknown_clusters_go_with_a_warning(world: World) -> None:
    found = world.take(change(on("atlantis"), evict=True))
    assert isinstance(found, Allowed)
    assert "'atlantis'" in found.warning


def test_placement_on_some_unknown_clusters_goes_and_names_them(world: World) -> None:
    both = change(on("c002", "atlantis"), on("c001", "c002"))
    assert both.left == frozenset(["c001"])
    found = world.take(both)
    assert isinstance(found, Allowed)
    assert found.warning == "the fleet has no cluster 'atlantis' (nearest: c001, c002, c003)"


def test_clusters_may_be_named_with_their_namespace(world: World) -> None:
    fleet = replace(WELL, inventory=Inventory(NAMES, LABELS, frozenset(["fleet/c001"])))
    found = world.take(change({"names": "fleet/c001"}, {"names": "c002"}), fleet)
    assert isinstance(found, Allowed)
    assert found.warning == ""


@pytest.mark.parametrize(
    "fleet",
    [
        replace(WELL, inventory=None),
        replace(WELL, age=None),
        replace(WELL, age=61.0),
        replace(WELL, epoch_matches=False),
        replace(WELL, clusters=0, inventory=Inventory(frozenset(), ())),
        STALE,
    ],
)
def test_where_the_fleet_is_not_known_or_not_current_nothing_is_compared(
    world: World, fleet: Fleet
) -> None:
    assert world.kind(change(on("atlantis"), {}), fleet) == "goes"
    moves = world.kind(change(on("atlantis")), fleet)
    assert moves == ("goes" if fleet.inventory is None and fleet.age else "fleet")


def test_selector_is_not_judged_where_labels_are_not_known(world: World) -> None:
    fleet = replace(WELL, inventory=Inventory(NAMES))
    assert world.kind(change({SELECTOR: US}), fleet) == "goes"


def test_name_is_unknown_only_once_it_has_been_so_for_a_moment(world: World) -> None:
    """A cluster that was just registered may be decided on before it is seen here."""
    new = change(on("c004"))
    world.consider(new)
    found = world.guard.admit("o", new, (), NOW)
    assert isinstance(found, Withheld)
    assert (found.kind, found.until) == ("unseen", LATER)
    grown = replace(WELL, clusters=4, best=4, inventory=Inventory(NAMES | {"c004"}, LABELS))
    assert world.consider(new, grown, NOW + 1) == frozenset()
    assert isinstance(world.guard.admit("o", new, (), NOW + 1), Allowed)


def test_what_was_found_to_be_nowhere_stays_held_while_the_fleet_is_not_current(
    world: World,
) -> None:
    """A fleet that comes and goes would let a first placement through in between."""
    first = change(on("atlantis"), {})
    assert world.kind(first) == "nowhere"
    assert world.consider(first, STALE, LATER + 1) == {"o"}
    held = world.guard.admit("o", first, (), LATER + 1)
    assert isinstance(held, Withheld)
    assert held.kind == "nowhere"
    other = change(on("c002"), {})
    world.consider(other, STALE, LATER + 2)
    assert isinstance(world.guard.admit("o", other, (), LATER + 2), Allowed)


@pytest.mark.parametrize("after", [on("c001"), on("atlantis"), {SELECTOR: EU}])
def test_nothing_is_placed_before_the_clusters_are_listed(
    world: World, after: dict[str, str]
) -> None:
    """What was held as nowhere before a restart would be written in its first moment."""
    first, unlisted = change(after, {}), Fleet(None, 0, 0, epoch_matches=True, unlisted=True)
    assert world.kind(first, unlisted) == "fleet"
    assert world.kind(first) == ("nowhere" if after == on("atlantis") else "goes")
    assert world.kind(change(after, {}, evict=True), unlisted) == "goes"
    assert world.kind(change({PREFERENCES: "{"}, {}), unlisted) == "goes", "it names no cluster"


def test_first_placement_waits_until_it_is_weighed_after_a_takeover(world: World) -> None:
    first = change(on("atlantis"), {})
    assert world.kind(first) == "nowhere"
    world.guard.recall({"o": ("n", ())}, LATER)
    again = world.guard.admit("o", first, (), LATER)
    assert isinstance(again, Withheld)
    assert again.kind == "fleet"
    assert world.kind(first) == "nowhere"


def test_object_that_is_gone_is_forgotten(world: World) -> None:
    first = change(on("atlantis"), {})
    assert world.kind(first) == "nowhere"
    world.guard.forget("o")
    again = world.guard.admit("o", first, (), LATER)
    assert isinstance(again, Withheld)
    assert again.kind == "unseen", "another object of that name is compared anew"


def test_similar_names_are_looked_for_of_the_first_unknown_names_alone() -> None:
    """A policy may pass on names that owners of workloads make up, a new one for each."""
    inventory = Inventory(NAMES)
    told = [inventory.description(frozenset([f"made-up-{number}"])) for number in range(200)]
    assert "nearest" in told[0]
    assert told[-1] == "the fleet has no cluster 'made-up-199'"
    assert inventory.description(frozenset(["made-up-0"])) == told[0]


def test_what_is_told_of_a_placement_is_the_same_however_many_were_told_before() -> None:
    inventory = Inventory(NAMES)
    for _turn in range(2):
        for number in range(300):
            name = f"made-up-{number}"
            told = inventory.nowhere(Clusters(frozenset([name])))
            assert told == inventory.description(frozenset([name]))
            assert (told or "").startswith(f"the fleet has no cluster '{name}'")


def test_names_in_a_message_are_few_and_short() -> None:
    said = Inventory(NAMES).description(
        frozenset(f"{number}{'x' * 100_000}" for number in range(9))
    )
    assert len(said) < 1_000
    assert said.endswith(" and 6 more")


def test_nearest_name_is_found_in_a_fleet_of_thousands() -> None:
    inventory = Inventory(frozenset(f"cluster-{number:05}" for number in range(20_000)))
    for near in inventory.nearest("cluster-1234"):
        assert SequenceMatcher(None, near, "cluster-1234").ratio() > 0.9
