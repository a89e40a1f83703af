from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.reflector import Store
from kube_sync.objects import ObjectKey
from kube_sync.topology import NAMESPACE, Kind
from kube_sync.topology.controller.events import EventType, ResourceEvent
from kube_sync.topology.controller.world import World
from kube_sync.topology.gateway import GATEWAY, GATEWAY_CLASS
from kube_sync.topology.nodes import Body, Locator
from tests.fakes.listing import Listing, at_once, listed
from tests.fakes.topologies import GATEWAY as GW
from tests.fakes.topologies import NS, Object, gateway, gateway_class, namespace, route
from tests.fakes.worlds import KINDS, Feed, item_of

V1 = ResourceVersion("1")


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def feed(clock: Clock) -> Feed:
    return Feed(World(clock=clock, gone_after=30.0))


def kinds(events: Sequence[ResourceEvent]) -> list[tuple[str, str]]:
    return [(str(event.type), event.name) for event in events]


def odd(kind: str = "gateway", body: bytes = b"{", version: str = "9", name: str = "odd") -> Item:
    space = NS if kind == "gateway" else ""
    return Item(ObjectKey(space, name), "uid", ResourceVersion(version), body)


def test_what_is_listed_first_is_created(feed: Feed) -> None:
    feed.load(gateway(), gateway_class())
    events = feed.world.take()
    assert kinds(events) == [("create", "my-gateway"), ("create", "my-gateway-class")]
    assert [event.locator for event in events] == sorted(event.locator for event in events)
    assert events[0].new is feed.world.get(GW)


def test_nothing_is_told_twice(feed: Feed) -> None:
    feed.load(gateway())
    feed.world.take()
    assert feed.world.take() == []


def test_an_object_that_changes_often_is_told_once_from_the_first_to_the_last(feed: Feed) -> None:
    feed.load()
    feed.put(gateway("gw", {"name": "a"}))
    feed.world.take()
    feed.put(gateway("gw", {"name": "b"}))
    feed.put(gateway("gw", {"name": "c"}))
    (event,) = feed.world.take()
    assert event.type is EventType.UPDATE
    assert [body["spec"]["listeners"][0]["name"] for body in (event.old, event.new) if body] == [
        "a",
        "c",
    ]


def test_what_came_and_went_is_not_told(feed: Feed) -> None:
    feed.load()
    feed.put(gateway())
    feed.delete(gateway())
    assert feed.world.take() == []


def test_an_object_that_is_gone_is_told_by_its_last_state(feed: Feed) -> None:
    feed.load(gateway("gw"))
    (created,) = feed.world.take()
    feed.delete(gateway("gw"))
    (event,) = feed.world.take()
    assert (event.type, event.old, event.new) == (EventType.DELETE, created.new, None)
    assert (event.namespace, event.name) == (NS, "gw")


def test_what_goes_and_comes_back_as_another_one_of_its_name_is_an_update(feed: Feed) -> None:
    feed.load(gateway())
    feed.world.take()
    feed.delete(gateway())
    feed.put(gateway())
    (event,) = feed.world.take()
    assert (event.type, event.meaning) == (EventType.UPDATE, True)
    assert event.old is not None
    assert event.new is not None
    assert event.old["metadata"]["uid"] != event.new["metadata"]["uid"]


def test_an_object_that_was_never_there_is_not_deleted(feed: Feed) -> None:
    feed.load()
    feed.stores[GATEWAY].apply(Event("DELETED", V1, item_of(gateway())))
    assert feed.world.take() == []


def test_a_status_is_kept_but_means_nothing(feed: Feed) -> None:
    """Whoever writes statuses needs the newest one, and must not be woken by its own."""
    feed.load(gateway())
    feed.world.take()
    feed.put(gateway() | {"status": {"conditions": []}})
    (event,) = feed.world.take()
    assert (event.type, event.meaning) == (EventType.UPDATE, False)
    held = feed.world.get(GW)
    assert held is not None
    assert held["status"] == {"conditions": []}


def test_managed_fields_are_dropped(feed: Feed) -> None:
    feed.load(gateway(managedFields=[{"manager": "kubectl"}]))
    held = feed.world.get(GW)
    assert held is not None
    assert "managedFields" not in held["metadata"]


def test_a_list_that_fails_changes_nothing(feed: Feed) -> None:
    """A world without a kind that could not be listed would undo all that was made of it."""
    feed.load(gateway(), gateway("other"))
    feed.world.take()
    store = feed.stores[GATEWAY]
    at_once(store.page([item_of(gateway())]))
    store.abandon()
    assert feed.world.take() == []
    feed.list(GATEWAY)
    assert feed.world.take() == []


def test_a_list_shows_what_was_missed(feed: Feed) -> None:
    feed.load(gateway("a"), gateway("b"))
    feed.world.take()
    del feed.objects[GATEWAY][ObjectKey(NS, "a")]
    feed.load(gateway("c"))
    assert kinds(feed.world.take()) == [("delete", "a"), ("create", "c")]


def test_a_list_is_seen_whole_or_not_at_all(feed: Feed) -> None:
    feed.load()
    at_once(feed.stores[GATEWAY].page([item_of(gateway())]))
    assert feed.world.take() == []
    assert feed.world.get(GW) is None
    feed.stores[GATEWAY].finish(known=True)
    assert kinds(feed.world.take()) == [("create", "my-gateway")]


def test_what_is_listed_again_and_has_not_changed_is_not_read_again(feed: Feed) -> None:
    feed.load(gateway())
    held = feed.world.get(GW)
    feed.list(GATEWAY)
    assert feed.world.get(GW) is held


def test_a_kind_that_comes_back_in_another_version_is_read_again(feed: Feed) -> None:
    """The resourceVersion of its objects is the same: they have not changed."""
    feed.load(gateway())
    feed.world.take()
    feed.stores[GATEWAY] = feed.world.store(KINDS[GATEWAY])
    (held,) = feed.objects[GATEWAY].values()
    held["apiVersion"] = "gateway.networking.k8s.io/v1beta1"
    feed.list(GATEWAY)
    (event,) = feed.world.take()
    assert (event.type, event.meaning) == (EventType.UPDATE, True)


def test_a_kind_waits_for_its_first_list(feed: Feed) -> None:
    assert feed.world.waiting == KINDS.keys()
    feed.list(GATEWAY)
    assert feed.world.waiting == KINDS.keys() - {GATEWAY}
    feed.stores[GATEWAY_CLASS].abandon()
    assert GATEWAY_CLASS in feed.world.waiting


def test_a_kind_that_is_not_known_and_had_no_objects_counts_as_empty(feed: Feed) -> None:
    feed.list(GATEWAY, known=False)
    assert GATEWAY not in feed.world.waiting
    assert feed.world.due is None
    assert feed.world.take() == []


def test_a_kind_that_is_not_known_for_a_moment_loses_nothing(feed: Feed, clock: Clock) -> None:
    """An API server that starts says so of every CustomResourceDefinition."""
    feed.load(gateway())
    feed.world.take()
    feed.list(GATEWAY, known=False)
    clock.seconds += 29
    feed.list(GATEWAY, known=False)
    assert feed.world.take() == []
    feed.list(GATEWAY)
    assert feed.world.due is None
    clock.seconds += 31
    assert feed.world.take() == []
    assert feed.world.get(GW) is not None


def test_a_kind_that_stays_unknown_is_let_go_of(feed: Feed, clock: Clock) -> None:
    feed.load(gateway())
    feed.world.take()
    feed.list(GATEWAY, known=False)
    assert feed.world.due == clock.seconds + 30
    clock.seconds += 20
    feed.list(GATEWAY, known=False)
    assert feed.world.due == clock.seconds + 10  # counted from the first time
    clock.seconds += 10
    assert kinds(feed.world.take()) == [("delete", "my-gateway")]
    assert feed.world.due is None
    assert feed.world.take() == []


def test_a_clock_that_begins_at_zero_is_a_clock(feed: Feed, clock: Clock) -> None:
    clock.seconds = 0.0
    feed.load(gateway())
    feed.list(GATEWAY, known=False)
    assert feed.world.due == 30


def test_the_first_kind_that_is_let_go_of_is_due_first(feed: Feed, clock: Clock) -> None:
    feed.load(gateway(), gateway_class())
    feed.list(GATEWAY_CLASS, known=False)
    due = feed.world.due
    clock.seconds += 5
    feed.list(GATEWAY, known=False)
    assert feed.world.due == due


def test_a_kind_that_is_not_followed_any_more_is_gone_at_once(feed: Feed) -> None:
    feed.load(gateway(), gateway_class())
    feed.world.take()
    feed.world.forget(GATEWAY)
    assert kinds(feed.world.take()) == [("delete", "my-gateway")]
    assert GATEWAY not in feed.world.waiting
    feed.world.forget(GATEWAY)
    assert feed.world.take() == []


def test_who_is_not_listened_to_any_more_changes_nothing(feed: Feed) -> None:
    """A Reflector that is being stopped may have an event in its hands."""
    feed.load(gateway())
    feed.world.take()
    old = feed.stores[GATEWAY]

    def speak() -> None:
        listed(old, Listing([], V1))
        listed(old, Listing([], V1), known=False)
        old.apply(Event("MODIFIED", V1, item_of(gateway("late"))))

    feed.world.store(KINDS[GATEWAY])
    speak()
    assert feed.world.take() == []
    assert feed.world.due is None
    feed.world.forget(GATEWAY)
    feed.world.take()
    speak()
    assert feed.world.take() == []


def test_a_kind_keeps_its_objects_until_it_is_listed_by_somebody_else(feed: Feed) -> None:
    feed.load(gateway("a"), gateway("b"))
    feed.world.take()
    store = feed.world.store(KINDS[GATEWAY])
    assert feed.world.take() == []
    assert not feed.world.waiting
    listed(store, Listing([item_of(feed.objects[GATEWAY][ObjectKey(NS, "b")])], V1))
    assert kinds(feed.world.take()) == [("delete", "a")]


def test_what_cannot_be_read_is_left_out_and_told(feed: Feed) -> None:
    with capture_logs() as logs:
        listed(feed.stores[GATEWAY], Listing([odd(), item_of(gateway())], V1))
        feed.stores[GATEWAY].apply(Event("ADDED", V1, odd(name="deep", body=b"[" * 100_000)))
    assert kinds(feed.world.take()) == [("create", "my-gateway")]
    told = [(entry["event"], entry["key"]) for entry in logs]
    assert told == [("object_left_out", f"{NS}/odd"), ("object_left_out", f"{NS}/deep")]


def test_what_cannot_be_read_any_more_stays_as_it_was_read_last(feed: Feed) -> None:
    feed.load(gateway("odd"))
    feed.world.take()
    feed.stores[GATEWAY].apply(Event("MODIFIED", V1, odd()))
    listed(feed.stores[GATEWAY], Listing([odd(version="10")], V1))
    assert feed.world.take() == []
    feed.delete(gateway("odd"))
    assert kinds(feed.world.take()) == [("delete", "odd")]


def test_an_object_without_a_name_is_left_out(feed: Feed) -> None:
    """The topology would refuse the whole batch."""
    with capture_logs() as logs:
        listed(feed.stores[GATEWAY], Listing([odd(name="", body=b'{"metadata":{}}')], V1))
    assert feed.world.take() == []
    assert logs[0]["error"] == "metadata.name: an object needs a name"


def nested(levels: int) -> bytes:
    """Return an object of so many levels: itself, its metadata beside a spec of lists."""
    lists = levels - 1
    return b'{"metadata":{"name":"odd"},"spec":' + b"[" * lists + b"]" * lists + b"}"


def test_an_object_that_is_nested_too_deeply_is_left_out(feed: Feed) -> None:
    """It can be read, but comparing it would go deeper than Python goes."""
    with capture_logs() as logs:
        listed(feed.stores[GATEWAY], Listing([odd(body=nested(101))], V1))
    assert feed.world.take() == []
    assert logs[0]["error"] == "nested more than 100 levels deep"
    listed(feed.stores[GATEWAY], Listing([odd(body=nested(100))], V1))
    assert kinds(feed.world.take()) == [("create", "odd")]


def test_a_long_object_is_not_a_deep_one(feed: Feed) -> None:
    feed.load(gateway("long", *({"name": f"l{n}", "port": n} for n in range(1, 200))))
    assert kinds(feed.world.take()) == [("create", "long")]


def test_bookmarks_are_no_objects(feed: Feed) -> None:
    feed.load()
    feed.stores[GATEWAY].apply(Event("BOOKMARK", V1))
    assert feed.world.take() == []


def test_what_lies_in_no_namespace_is_called_so_whatever_it_says() -> None:
    world = World()
    store = world.store(Kind(NAMESPACE, namespaced=False))
    body = namespace("a")
    body["metadata"]["namespace"] = "b"
    listed(store, Listing([item_of(body)], V1))
    (event,) = world.take()
    assert (event.namespace, event.locator) == ("", "namespace:a")


def test_objects_can_be_read_while_others_come(feed: Feed) -> None:
    feed.load(gateway("a"), gateway("b"))
    found = feed.world.objects()
    next(found)
    feed.put(gateway("c"))
    assert len(list(found)) == 1
    assert len(list(feed.world.objects())) == 3


def test_whoever_waits_is_told_of_every_change() -> None:
    told: list[bool] = []
    feed = Feed(World(lambda: told.append(True)), [KINDS[GATEWAY]])

    def tells(count: int = 1) -> bool:
        found, told[:] = len(told), []
        return found == count

    assert tells()  # that a kind is waited for
    feed.load(gateway())
    assert tells()
    feed.put(gateway())
    assert tells()
    feed.delete(gateway())
    assert tells()
    feed.list(GATEWAY, known=False)
    assert tells()
    feed.stores[GATEWAY].abandon()
    assert tells(0)
    feed.world.forget(GATEWAY)
    assert tells()


async def test_a_long_list_lets_others_run(feed: Feed) -> None:
    page = asyncio.create_task(_page(feed.stores[GATEWAY], 1000))
    turns = 0
    while not page.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10


async def _page(store: Store, count: int) -> None:
    await store.page([item_of(gateway(f"gw-{number}")) for number in range(count)])


# A mirror that only ever hears of events is the World, whatever happened.

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("status"), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("delete"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("miss"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(
            st.sampled_from(["list", "broken", "unknown", "later", "store", "forget", "take"]),
            st.just(0),
            st.just(0),
        ),
    ),
    max_size=40,
)


class Script:
    """Everything that may happen to a kind."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.world = World(clock=self.clock, gone_after=30.0)
        self.feed = Feed(self.world, [KINDS[GATEWAY]])
        self.mirror: dict[Locator, Body] = {}
        self.feed.load()

    def do(self, what: str, which: int, how: int) -> None:  # noqa: C901 - a case for each thing
        body = gateway(f"gw-{which}", {"name": "l", "port": how + 1})
        here = ObjectKey(NS, f"gw-{which}") in self.feed.objects[GATEWAY]
        match what:
            case "put":
                self.feed.put(body)
            case "status":
                old = self.feed.objects[GATEWAY].get(ObjectKey(NS, f"gw-{which}"), body)
                self.feed.put(copy.deepcopy(old) | {"status": {"n": how}})
            case "delete" if here:
                self.feed.delete(body)
            case "miss":  # the watch does not tell
                self.feed.hold(body) if how else self.feed.objects[GATEWAY].clear()
            case "list":
                self.feed.list(GATEWAY)
            case "broken":
                at_once(self.feed.stores[GATEWAY].page([item_of(gateway("torn"))]))
                self.feed.stores[GATEWAY].abandon()
            case "unknown":
                self.feed.list(GATEWAY, known=False)
            case "later":
                self.clock.seconds += 20
            case "store":
                self.feed.stores[GATEWAY] = self.world.store(KINDS[GATEWAY])
            case "forget":
                self.world.forget(GATEWAY)
                self.feed.stores[GATEWAY] = self.world.store(KINDS[GATEWAY])
                self.feed.list(GATEWAY)
            case "take":
                self.take()

    def take(self) -> None:
        events = self.world.take()
        assert len({event.locator for event in events}) == len(events)
        for event in events:
            assert event.old != event.new
            assert self.mirror.get(event.locator) == event.old
            if event.new is None:
                del self.mirror[event.locator]
            else:
                self.mirror[event.locator] = event.new


@given(STEPS)
def test_events_lead_from_any_state_to_the_next(steps: list[tuple[str, int, int]]) -> None:
    script = Script()
    for step in steps:
        script.do(*step)
    script.take()
    assert script.mirror == script.world.snapshot()
    script.do("list", 0, 0)
    script.take()
    held: list[Object] = list(script.feed.objects[GATEWAY].values())
    assert sorted(map(str, script.mirror.values())) == sorted(map(str, held))


def test_kinds_do_not_mix(feed: Feed) -> None:
    feed.load(gateway(), route())
    feed.world.take()
    feed.objects[GATEWAY].clear()
    feed.list(GATEWAY)
    assert kinds(feed.world.take()) == [("delete", "my-gateway")]
