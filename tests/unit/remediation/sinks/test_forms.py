from __future__ import annotations

from structlog.testing import capture_logs

from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.remediation.sinks.forms import SigForm
from tests.fakes.listing import Listing, listed

VERSION = ResourceVersion("1")


def _item(name: str, namespace: str) -> Item:
    return Item(ObjectKey(namespace, name), "u", VERSION, b"{}")


class World:
    def __init__(self, *items: Item, namespace: str | None = None) -> None:
        self.changes = 0
        self.form = SigForm(namespace)
        self.form.subscribe(self._changed)
        if (store := self.form.profiles) is not None:
            listed(store, Listing(list(items), VERSION))

    def event(self, kind: str, item: Item) -> None:
        assert self.form.profiles is not None
        self.form.profiles.apply(Event(kind, VERSION, item))

    def _changed(self) -> None:
        self.changes += 1


def test_with_one_namespace_for_all_nothing_is_watched() -> None:
    world = World(namespace="fleet")
    assert world.form.profiles is None
    assert world.form.known
    assert world.form.locate("any", "elsewhere") == "fleet"


def test_before_the_first_list_nothing_is_known() -> None:
    assert not SigForm(None).known


def test_a_cluster_lies_where_its_profile_does() -> None:
    world = World(_item("eu", "fleet"))
    assert world.form.known
    assert world.form.locate("eu", None) == "fleet"
    assert world.form.locate("us", "fleet") is None


def test_of_several_namespaces_the_first_counts_and_it_is_said() -> None:
    with capture_logs() as logs:
        world = World(_item("eu", "b"), _item("eu", "a"))
    assert world.form.locate("eu", None) == "a"
    assert [line["namespaces"] for line in logs] == [["a", "b"]]


def test_what_was_published_stays_while_it_is_true() -> None:
    """Another namespace is another cluster to readers, who would move the workload."""
    world = World(_item("eu", "b"))
    world.event("ADDED", _item("eu", "a"))
    assert world.form.locate("eu", "b") == "b"
    world.event("DELETED", _item("eu", "b"))
    assert world.form.locate("eu", "b") == "a"


def test_only_profiles_that_come_or_go_are_news() -> None:
    """Their status changes all the time."""
    world = World(_item("eu", "fleet"))
    before = world.changes
    world.event("MODIFIED", _item("eu", "fleet"))
    assert world.changes == before
    world.event("DELETED", _item("eu", "fleet"))
    assert world.changes == before + 1
    assert world.form.locate("eu", None) is None
