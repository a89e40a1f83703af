from __future__ import annotations

import json
from dataclasses import replace

from kube_sync.guard import Fleet, Inventory, Limits
from kube_sync.guard.assessment import assess_fleet
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.remediation.clusters import STEADY_SECONDS, Clusters, FleetFacts
from kube_sync.runtime.freshness import Stale
from tests.fakes.listing import Listing, at_once, listed

VERSION = ResourceVersion("1")
LIMITS = Limits(shrink=0.3)


def _item(name: str, namespace: str = "fleet", **labels: str) -> Item:
    body = json.dumps({"metadata": {"labels": labels}} if labels else {}).encode()
    return Item(ObjectKey(namespace, name), "u", VERSION, body)


class World:
    def __init__(self, *names: str, named: int = 0) -> None:
        self.changes = 0
        self.seen_at: float | None = 1.0
        self.now = 0.0
        self.named = named
        self.clusters = Clusters(
            lambda key: key.namespace == "fleet", self._changed, lambda: self.now
        )
        self.facts = FleetFacts(self.clusters, lambda: self.named, lambda: self.seen_at)
        if names:
            self.list(*names)

    def _changed(self) -> None:
        self.changes += 1

    def list(self, *names: str, known: bool = True) -> None:
        listed(self.clusters, Listing([_item(name) for name in names], VERSION), known=known)

    def event(self, kind: str, name: str, namespace: str = "fleet", **labels: str) -> None:
        self.clusters.apply(Event(kind, VERSION, _item(name, namespace, **labels)))

    def counts(self) -> tuple[int, int]:
        self.now += 2 * STEADY_SECONDS  # whatever was is over
        fleet = self.facts.fleet(self.now)
        return fleet.clusters, fleet.best


def test_clusters_are_counted_as_they_come_and_go() -> None:
    world = World("a", "b")
    world.event("ADDED", "c")
    world.event("MODIFIED", "c")
    world.event("ADDED", "elsewhere", "other")
    world.clusters.apply(Event("BOOKMARK", VERSION))
    assert (len(world.clusters), world.changes) == (3, 2)
    world.event("DELETED", "a")
    assert (world.counts(), world.changes) == ((2, 2), 3)


def test_a_fleet_that_is_back_counts_as_smaller_for_a_moment() -> None:
    """Decisions that were made on the smaller one may be all that is known yet."""
    world = World("a", "b", "c")
    world.now = 100.0
    for name in ("b", "c"):
        world.event("DELETED", name)
    world.now = 101.0
    world.event("ADDED", "b")
    world.list("a", "b", "c")
    for seconds, clusters in ((1.0, 1), (STEADY_SECONDS, 1), (STEADY_SECONDS + 1.0, 3)):
        found = world.facts.fleet(100.0 + seconds)
        assert (found.clusters, found.best) == (clusters, 3)


def test_a_fleet_that_only_grows_counts_as_large_as_it_is() -> None:
    world = World()
    world.list()
    for number, name in enumerate("abc", start=1):
        world.event("ADDED", name)
        assert world.facts.fleet(world.now).clusters == number


def test_a_list_that_breaks_off_changes_nothing() -> None:
    world = World("a")
    at_once(world.clusters.page([_item("torn")]))
    world.clusters.abandon()
    world.list("a")
    assert len(world.clusters) == 1


def test_the_most_there_were_is_remembered() -> None:
    world = World("a", "b", "c")
    assert world.counts() == (3, 3)
    world.list("a")
    assert world.counts() == (1, 3)


def test_after_a_restart_the_placements_in_force_tell_how_many_there_were() -> None:
    assert World("a", named=5).counts() == (1, 5)


def test_a_new_beginning_forgets_nothing_that_was_seen() -> None:
    """The Lease may lapse in the very trouble in which clusters vanish."""
    world = World("a", "b", "c", named=2)
    assert world.counts() == (3, 3)
    world.list("a")
    world.facts.begin()
    assert world.counts() == (1, 3)


def test_a_new_beginning_asks_the_placements_again() -> None:
    world = World("a", named=2)
    assert world.counts() == (1, 2)
    world.named = 4
    assert world.counts() == (1, 2)
    world.facts.begin()
    assert world.counts() == (1, 4)


def test_fewer_clusters_are_the_new_normal_once_that_is_accepted() -> None:
    world = World("a", "b")
    assert world.counts() == (2, 2)
    world.list("a")
    assert world.counts() == (1, 2)
    world.facts.accept(1)
    assert world.counts() == (1, 1)
    world.list("a", "b")
    assert world.counts() == (2, 2)
    world.list("a")
    assert world.counts() == (1, 2), "it was accepted for what had happened then"


def test_a_fleet_that_is_not_listed_or_not_heard_of_has_no_age() -> None:
    assert World().facts.fleet(1.0).age is None
    world = World("a")
    world.seen_at = None
    assert world.facts.fleet(1.0).age is None
    world.seen_at = 1.0
    assert world.facts.fleet(8.0).age == 7.0


def test_what_is_not_current_is_told_with_every_fleet() -> None:
    late = Stale("clusters", 61.0, "503")
    for clusters in (None, World("a").clusters, World().clusters):
        facts = FleetFacts(clusters, lambda: 1, lambda: 1.0, lambda: late)
        assert facts.fleet(61.0).stale == late


def test_without_a_collection_of_clusters_none_are_missed() -> None:
    facts = FleetFacts(None, lambda: 9, lambda: 1.0)
    assert assess_fleet(facts.fleet(1.0), LIMITS) is None
    assert facts.fleet(1.0).inventory is None


def _inventory(world: World) -> Inventory | None:
    fleet: Fleet = world.facts.fleet(world.now)
    return fleet.inventory


def test_placements_are_compared_with_names_and_labels_as_they_are_now() -> None:
    world = World("a", "b")
    world.event("MODIFIED", "b", region="eu")
    world.event("ADDED", "c", pci="true")
    world.event("DELETED", "a")
    names, qualified = frozenset("bc"), frozenset(["fleet/b", "fleet/c"])
    found = _inventory(world)
    assert found == Inventory(names, ({"region": "eu"}, {"pci": "true"}), qualified)
    world.event("MODIFIED", "b", region="eu")
    assert _inventory(world) is found, "nothing differs"
    world.list("d")
    assert _inventory(world) == Inventory(frozenset("d"), ({},), frozenset(["fleet/d"]))


def test_change_of_labels_is_told_since_selectors_look_at_them() -> None:
    world = World("a")
    before = world.changes
    world.event("MODIFIED", "a", region="eu")
    world.event("MODIFIED", "a", region="eu")
    assert world.changes == before + 1


def test_cluster_whose_labels_cannot_be_read_is_a_cluster() -> None:
    world = World()
    world.clusters.apply(Event("ADDED", VERSION, replace(_item("a"), body=b'{"metadata":1}')))
    world.clusters.listed = True
    assert _inventory(world) == Inventory(frozenset("a"), ({},), frozenset(["fleet/a"]))


def test_placements_that_name_clusters_otherwise_are_compared_with_none() -> None:
    world = World("a")
    facts = FleetFacts(world.clusters, lambda: 0, lambda: 1.0, compares=False)
    assert facts.fleet(1.0).inventory is None
    facts = FleetFacts(World().clusters, lambda: 0, lambda: 1.0, compares=False)
    assert not facts.fleet(1.0).unlisted


def test_clusters_are_unlisted_until_they_or_that_there_are_none_is_known() -> None:
    world = World()
    assert world.facts.fleet(1.0).unlisted
    world.list(known=False)
    assert not world.facts.fleet(1.0).unlisted
