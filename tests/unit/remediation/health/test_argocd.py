from __future__ import annotations

import json
from collections.abc import Iterable

from kube_sync.kube.applications import APPLICATION_SETS
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.health.argocd import ArgoHealth
from kube_sync.remediation.plan import Current
from tests.fakes.listing import Listing, listed
from tests.unit.remediation.argocd.test_clusters import secret

VERSION = ResourceVersion("1")
KEY = APPLICATION_SETS, ObjectKey("argocd", "web")
CURRENT = Current("u", {})
BOTH = frozenset(["eu", "us"])


class World:
    def __init__(self, label: str | None = None) -> None:
        self.changed: list[Iterable[ObjectKey] | None] = []
        self.health = ArgoHealth(label, self.changed.append)

    def list(self, *items: Item) -> None:
        listed(self.health.store, Listing([*items], VERSION))
        self.health.report(None)

    def know(self, **servers: str) -> None:
        """List the clusters of Argo CD, by their names."""
        found = [secret(f"cluster-{n}", {"name": n, "server": s}) for n, s in servers.items()]
        listed(self.health.clusters, Listing(found, VERSION))
        self.health.report_clusters(None)

    def healthy(self) -> frozenset[str]:
        return self.health.healthy(KEY, CURRENT, BOTH)


def _item(name: str, cluster: str = "", status: str = "Healthy", owner: str = "web") -> Item:
    kind = "server" if ":" in cluster else "name"
    document = {
        "metadata": {
            "labels": {"workload": owner},
            "ownerReferences": [{"kind": "ApplicationSet", "name": owner}],
        },
        "spec": {"destination": {kind: cluster, "namespace": "shop"}},
        "status": {"health": {"status": status}},
    }
    return Item(ObjectKey("argocd", name), "u", VERSION, json.dumps(document).encode())


def test_a_workload_is_healthy_where_all_its_applications_are() -> None:
    world = World()
    world.list(_item("a", "eu"), _item("b", "eu", "Progressing"), _item("c", "us"))
    assert world.healthy() == {"us"}
    world.health.store.apply(Event("MODIFIED", VERSION, _item("b", "eu")))
    assert world.healthy() == BOTH
    world.health.store.apply(Event("DELETED", VERSION, _item("c", "us")))
    assert world.healthy() == {"eu"}


def test_applications_of_another_workload_do_not_count() -> None:
    world = World()
    world.list(_item("a", "eu", owner="api"))
    assert world.healthy() == frozenset()


def test_clusters_are_needed_once_an_application_names_a_server() -> None:
    """Until then nobody has to be allowed to list the Secrets of Argo CD."""
    world = World()
    world.list(_item("a", "eu"), _item("b"))
    assert not world.health.clusters_needed.is_set()
    world.health.store.apply(Event("ADDED", VERSION, _item("c", "https://us")))
    assert world.health.clusters_needed.is_set()


def test_without_a_label_only_application_sets_have_applications() -> None:
    world, other = World(), GroupVersionResource("apps", "v1", "replicasets")
    world.list(_item("a", "eu"))
    assert world.health.healthy((other, KEY[1]), CURRENT, BOTH) == frozenset()


def test_a_label_names_workloads_of_any_kind() -> None:
    world, other = World("workload"), GroupVersionResource("apps", "v1", "replicasets")
    world.list(_item("a", "eu"))
    found = world.health.healthy((other, ObjectKey("shop", "web")), CURRENT, BOTH)
    assert found == {"eu"}


def test_each_workload_before_and_after_a_change_is_reported() -> None:
    world = World()
    world.list(_item("a", "eu"))
    assert world.changed == [{ObjectKey("argocd", "web")}, None]
    world.health.store.apply(Event("MODIFIED", VERSION, _item("a", "eu", owner="api")))
    assert world.changed[2] == {ObjectKey("argocd", "web"), ObjectKey("argocd", "api")}


def test_while_applications_cannot_be_followed_there_is_trouble_and_its_end_is_told() -> None:
    world = World()
    assert world.health.trouble is not None
    world.list(_item("a", "eu"))
    assert world.health.trouble is None
    world.changed.clear()
    for reason in ("the watch failed", "the watch failed", None, None):
        world.health.report(reason)
    assert world.changed == [None, None]


def test_an_application_for_a_server_counts_for_the_clusters_that_argo_cd_has_there() -> None:
    world = World()
    world.list(_item("a", "https://eu.example.com"), _item("b", "us"))
    assert world.healthy() == frozenset()  # the first may be in any cluster, and unhealthy there
    assert world.health.unmatched(KEY) is None  # the clusters are about to be listed
    world.know(eu="https://eu.example.com/", ap="https://ap.example.com")
    assert (world.healthy(), world.health.unmatched(KEY)) == (BOTH, None)
    world.list(_item("a", "https://eu.example.com"), _item("b", "eu", "Degraded"))
    assert world.healthy() == frozenset()
    world.changed.clear()
    world.know(us="https://eu.example.com")
    assert world.healthy() == {"us"}
    assert world.changed == [None]


def test_what_was_known_of_servers_counts_no_more_while_it_cannot_be_followed() -> None:
    world = World()
    world.list(_item("a", "https://eu.example.com"))
    world.know(eu="https://eu.example.com")
    world.changed.clear()
    for reason in ("forbidden", "forbidden"):
        world.health.report_clusters(reason)
    assert (world.healthy(), world.changed) == (frozenset(), [None])
    assert world.health.unmatched(KEY) == (
        "Application argocd/a is for https://eu.example.com, and Argo CD's clusters are not known: "
        "forbidden"
    )


def test_an_application_that_is_for_no_known_cluster_is_named() -> None:
    world = World()
    world.know()
    world.list(_item("a"), _item("b", "https://eu.example.com"), _item("c", "us"))
    assert world.health.unmatched(KEY) == (
        "Application argocd/a (and 1 more) is for no cluster: "
        "its destination has neither name nor server"
    )
    world.list(_item("b", "https://eu.example.com"), _item("c", "us"))
    assert world.health.unmatched(KEY) == (
        "Application argocd/b is for https://eu.example.com, where Argo CD knows no cluster"
    )
    assert world.healthy() == {"us"}
