from __future__ import annotations

from kube_sync.guard import Inventory
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.processes.fleet import FleetWatch
from kube_sync.remediation.clusters import Clusters
from tests.fakes.listing import Listing, listed

VERSION = ResourceVersion("1")


class World:
    def __init__(self, seconds: float = 60.0) -> None:
        self.now = 0.0
        self.clusters = Clusters(lambda _: True, lambda: None, lambda: self.now)
        self.watch = FleetWatch(self.clusters, seconds, lambda: self.now)

    def list(self, *names: str) -> None:
        items = [Item(ObjectKey("", name), "u", VERSION, b"{}") for name in names]
        listed(self.clusters, Listing(items, VERSION))


def test_clusters_count_once_they_are_listed_and_for_a_while_after_the_last_news() -> None:
    world = World()
    assert world.watch.inventory() is None
    world.list("c001")
    found = Inventory(frozenset(["c001"]), ({},))
    assert world.watch.inventory() == found
    world.watch.report("503")
    world.now = 59.0
    world.watch.report("503 again")
    assert world.watch.inventory() == found
    world.now = 61.0
    assert world.watch.inventory() is None
    world.watch.report(None)
    assert world.watch.inventory() == found


def test_clusters_that_may_be_as_old_as_they_like_always_count() -> None:
    world = World(seconds=0)
    world.list("c001")
    world.watch.report("503")
    world.now = 1e6
    assert world.watch.inventory() is not None


def test_fleet_without_a_cluster_is_compared_with_nothing() -> None:
    world = World()
    world.list()
    assert world.watch.inventory() is None
