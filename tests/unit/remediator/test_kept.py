from __future__ import annotations

from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.remediator.kept import Both, Kept, Proven
from tests.fakes.listing import Listing, at_once, listed

VERSION = ResourceVersion("1")


def _key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def _item(name: str, body: str = "x") -> Item:
    return Item(_key(name), "u", VERSION, body.encode())


class World:
    """What is kept is the body, unless it says `none`."""

    def __init__(self) -> None:
        self.told: list[dict[str, tuple[str | None, str | None]]] = []
        self.lists = 0
        self.kept = Kept[str](self._read, self._changed, self._listed)

    def list(self, *items: Item, known: bool = True) -> None:
        listed(self.kept, Listing(list(items), VERSION), known=known)

    def _read(self, item: Item) -> str | None:
        text = item.body.decode()
        return None if text == "none" else text

    def _changed(self, differences: object) -> None:
        assert isinstance(differences, dict)
        self.told.append({key.name: pair for key, pair in differences.items()})

    def _listed(self) -> None:
        self.lists += 1


def test_a_list_tells_what_is_different_and_that_all_is_known() -> None:
    world = World()
    world.list(_item("went"), _item("stayed"), _item("changed", "1"), _item("left", "none"))
    world.told.clear()
    world.list(_item("stayed"), _item("changed", "2"), _item("came"))
    assert world.told == [{"went": ("x", None), "changed": ("1", "2"), "came": (None, "x")}]
    assert (world.lists, world.kept.listed) == (2, True)
    assert world.kept.get(_key("left")) is None


def test_nothing_is_listed_at_first() -> None:
    assert not World().kept.listed


def test_without_its_kind_a_collection_is_not_known_and_nothing_counts_as_deleted() -> None:
    world = World()
    world.list(_item("a"))
    world.list(known=False)
    assert (world.kept.listed, world.kept.get(_key("a")), world.lists) == (False, "x", 1)
    world.list()
    assert world.told[-1] == {"a": ("x", None)}
    assert world.lists == 2


def test_events_tell_what_is_different() -> None:
    world = World()
    world.list(_item("a"))
    world.told.clear()
    for event in (
        Event("MODIFIED", VERSION, _item("a")),  # the same as before
        Event("MODIFIED", VERSION, _item("a", "y")),
        Event("ADDED", VERSION, _item("b", "none")),
        Event("DELETED", VERSION, _item("a")),
        Event("DELETED", VERSION, _item("a")),
        Event("BOOKMARK", VERSION),
    ):
        world.kept.apply(event)
    assert world.told == [{"a": ("x", "y")}, {"a": ("y", None)}]


def test_a_list_that_breaks_off_changes_nothing() -> None:
    world = World()
    at_once(world.kept.page([_item("torn")]))
    world.kept.abandon()
    world.list(_item("here"))
    assert world.kept.get(_key("torn")) is None


def test_two_stores_of_one_collection_hold_the_same() -> None:
    one, other = World(), World()
    both = Both(one.kept, other.kept)
    at_once(both.page([_item("torn")]))
    both.abandon()
    listed(both, Listing([_item("a")], VERSION))
    both.apply(Event("ADDED", VERSION, _item("b")))
    for world in (one, other):
        assert [world.kept.get(_key(name)) for name in ("torn", "a", "b")] == [None, "x", "x"]
    listed(both, Listing([], VERSION), known=False)
    assert [world.kept.listed for world in (one, other)] == [False, False]


def test_objects_are_taken_in_as_they_are_proven() -> None:
    world = World()
    store = Proven(world.kept, lambda item: item.body.removeprefix(b"forged "))
    listed(store, Listing([_item("a", "forged 1"), _item("b", "2")], VERSION))
    assert [world.kept.get(_key(name)) for name in "ab"] == ["1", "2"]
    store.apply(Event("MODIFIED", VERSION, _item("b", "forged 3")))
    store.apply(Event("BOOKMARK", VERSION))
    assert world.kept.get(_key("b")) == "3"
    at_once(store.page([_item("c")]))
    store.abandon()
    listed(store, Listing([_item("a", "1")], VERSION))
    assert world.kept.get(_key("c")) is None
