from __future__ import annotations

import asyncio
from typing import Literal

from kube_sync.kube.cache import Cache, Changes
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import ObjectKey
from tests.fakes.listing import Listing, at_once, listed

VERSION = ResourceVersion("1")


def _key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def _item(name: str, body: str = "x") -> Item:
    return Item(_key(name), "u", VERSION, body.encode())


class World:
    """What is kept is the body, unless it says `none`."""

    def __init__(self, when_unknown: Literal["keep", "empty"] = "keep") -> None:
        self.told: list[dict[str, tuple[str | None, str | None]]] = []
        self.lists = 0
        self.cache = Cache[str](self._read, self._changed, self._listed, when_unknown=when_unknown)

    def list(self, *items: Item, known: bool = True) -> None:
        listed(self.cache, Listing(list(items), VERSION), known=known)

    def _read(self, item: Item) -> str | None:
        text = item.body.decode()
        return None if text == "none" else text

    def _changed(self, changes: Changes[str]) -> None:
        self.told.append({key.name: pair for key, pair in changes.items()})

    def _listed(self) -> None:
        self.lists += 1


def test_a_list_tells_what_is_different_and_that_all_is_known() -> None:
    world = World()
    world.list(_item("went"), _item("stayed"), _item("changed", "1"), _item("left", "none"))
    world.told.clear()
    world.list(_item("stayed"), _item("changed", "2"), _item("came"))
    assert world.told == [{"went": ("x", None), "changed": ("1", "2"), "came": (None, "x")}]
    assert (world.lists, world.cache.listed) == (2, True)
    assert world.cache.get(_key("left")) is None


def test_nothing_is_listed_at_first() -> None:
    assert not World().cache.listed
    assert not World().cache.served


def test_a_kind_that_is_unknown_takes_nothing_away() -> None:
    world = World()
    world.list(_item("a"))
    world.told.clear()
    world.list(_item("b"), known=False)
    assert (world.cache.listed, world.cache.served, world.lists) == (True, False, 2)
    assert world.cache.objects == {_key("a"): "x"}
    world.list()
    assert world.told == [{"a": ("x", None)}]
    world.list()
    assert world.told == [{"a": ("x", None)}, {}]
    assert world.cache.served


def test_a_kind_that_is_unknown_from_the_start_is_not_listed() -> None:
    world = World()
    world.list(known=False)
    assert not world.cache.listed


def test_a_kind_that_is_unknown_has_no_objects_where_that_is_asked_for() -> None:
    world = World(when_unknown="empty")
    world.list(_item("a"))
    world.list(known=False)
    assert (world.cache.listed, world.cache.served, len(world.cache)) == (True, False, 0)
    assert world.told[-1] == {"a": ("x", None)}


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
        world.cache.apply(event)
    assert world.told == [{"a": ("x", "y")}, {"a": ("y", None)}]


def test_a_list_that_breaks_off_changes_nothing() -> None:
    world = World()
    at_once(world.cache.page([_item("torn")]))
    world.cache.abandon()
    world.list(_item("here"))
    assert world.cache.get(_key("torn")) is None


def test_what_a_write_was_answered_with_is_held_before_the_watch_brings_it() -> None:
    world = World()
    world.cache.put(_key("a"), "y")
    world.cache.put(_key("b"), "z", notify=False)
    world.cache.put(_key("a"), None)
    world.cache.put(_key("a"), None)
    assert world.told == [{"a": (None, "y")}, {"a": ("y", None)}]
    assert world.cache.objects == {_key("b"): "z"}


def test_a_write_is_overtaken_by_the_end_of_its_object_and_by_a_list() -> None:
    world = World()
    world.list(_item("a"))
    with world.cache.writing(_key("a")) as a, world.cache.writing(_key("b")) as b:
        world.cache.apply(Event("MODIFIED", VERSION, _item("a", "y")))
        world.cache.apply(Event("DELETED", VERSION, _item("other")))
        assert not a.overtaken
        world.cache.apply(Event("DELETED", VERSION, _item("a")))
        assert (a.overtaken, b.overtaken) == (True, False)
        world.list(known=False)
        assert not b.overtaken
        world.cache.apply(Event("MODIFIED", VERSION, _item("b", "none")))
        assert b.overtaken
    with world.cache.writing(_key("a")) as a:
        world.list(_item("a"))
        assert a.overtaken
    with world.cache.writing(_key("a")) as later:
        pass
    world.cache.apply(Event("DELETED", VERSION, _item("a")))
    assert not later.overtaken


def test_callbacks_find_the_new_state() -> None:
    found: list[str | None] = []
    cache = Cache[str](
        lambda item: item.body.decode(), lambda _changes: found.append(cache.get(_key("a")))
    )
    listed(cache, Listing([_item("a", "1")], VERSION))
    cache.apply(Event("MODIFIED", VERSION, _item("a", "2")))
    assert found == ["1", "2"]


def test_merge_makes_what_is_held_of_what_was_and_what_is_found() -> None:
    changes: list[Changes[str]] = []
    longest = Cache[str](
        lambda item: item.body.decode(),
        changes.append,
        merge=lambda held, now: max(held or "", now, key=len),
    )
    listed(longest, Listing([_item("a", "1")], VERSION))
    longest.apply(Event("MODIFIED", VERSION, _item("a", "12")))
    longest.apply(Event("MODIFIED", VERSION, _item("a", "3")))
    listed(longest, Listing([_item("a", "4")], VERSION))
    assert longest.get(_key("a")) == "12"
    assert changes == [{_key("a"): (None, "1")}, {_key("a"): ("1", "12")}, {}]


def test_what_counts_as_a_difference_can_be_said() -> None:
    changes: list[Changes[str]] = []
    by_case = Cache[str](
        lambda item: item.body.decode(),
        changes.append,
        differs=lambda one, other: (one or "").lower() != (other or "").lower(),
    )
    listed(by_case, Listing([_item("a", "x")], VERSION))
    by_case.apply(Event("MODIFIED", VERSION, _item("a", "X")))
    assert by_case.get(_key("a")) == "X"
    assert changes == [{_key("a"): (None, "x")}]


async def test_a_long_page_lets_other_tasks_run() -> None:
    cache = Cache[str](lambda item: item.body.decode())
    page = asyncio.create_task(cache.page([_item(str(number)) for number in range(50)]))
    turns = 0
    while not page.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 2
    cache.finish(known=True)
    assert len(cache) == 50
