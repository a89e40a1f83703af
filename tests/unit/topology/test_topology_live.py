from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_sync.topology import GroupKind, PolicyKind, Topology
from kube_sync.topology.controller.live_topology import LiveTopology, Step
from kube_sync.topology.controller.world import World
from kube_sync.topology.gateway import GATEWAY
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.nodes import Locator
from kube_sync.topology.report import as_json, report
from tests.fakes.topologies import (
    API,
    CLASS,
    FRUIT_KINDS,
    FRUIT_LINKS,
    FRUITS,
    NS,
    color,
    effective,
    fruit,
    gateway,
    gateway_class,
    overrides,
    route,
    world,
)
from tests.fakes.topologies import GATEWAY as GW
from tests.fakes.worlds import Feed, Kinds
from tests.parts import examples

ROUTE = Locator(f"httproute.gateway.networking.k8s.io:{NS}/route")
OTHER = PolicyKind(GroupKind("examples.kube-sync.io", "OtherPolicy"))


class Live:
    """A live topology of the Gateway API and ColorPolicies, and what feeds it."""

    def __init__(self, *, loops: bool = False) -> None:
        self.world = World()
        self.kinds = Kinds()
        self.feed = Feed(self.world)
        self.live = LiveTopology(self.world, self.kinds, API.kinds, API.links, allow_loops=loops)

    @property
    def bytes(self) -> bytes:
        return as_json(report(self.live.topology))

    def built_anew(self) -> Topology:
        return Topology.of(self.world.objects(), API.kinds, API.links, self.kinds.policies)


class Fruits:
    """A live topology of kinds whose links may close a loop."""

    def __init__(self) -> None:
        self.world = World()
        self.feed = Feed(self.world, FRUIT_KINDS)
        self.live = LiveTopology(self.world, Kinds(()), FRUIT_KINDS, FRUIT_LINKS)
        self.feed.load()

    def plant(self, *parents: tuple[str, str]) -> None:
        """Put fruits there, each below others."""
        for name, parent in parents:
            kind, _, number = name.partition(":")
            above = [parent] if parent else []
            self.feed.put(fruit(kind.capitalize(), number, *above))

    def built_anew(self) -> Topology:
        return Topology.of(self.world.objects(), FRUIT_KINDS, FRUIT_LINKS, allow_loops=True)

    def edges(self) -> list[tuple[Locator, Locator]]:
        return list(self.live.topology.all.edges())


@pytest.fixture
def live() -> Live:
    return Live()


async def turns(work: Awaitable[Step]) -> int:
    """Return how often others ran while it was done."""
    task = asyncio.ensure_future(work)
    count = 0
    while not task.done():
        await asyncio.sleep(0)
        count += 1
    await task
    return count


async def test_a_live_topology_is_the_one_that_is_built_of_its_objects(live: Live) -> None:
    objects = [gateway_class(), gateway(), route(), color("c", **overrides(sky="blue"))]
    live.feed.load(*objects)
    step = await live.live.advance()
    assert {event.name for event in step.events} == {"my-gateway-class", "my-gateway", "route", "c"}
    assert step.affected >= {CLASS, GW, ROUTE}
    assert live.bytes == as_json(report(live.built_anew()))
    assert list(effective(live.live.topology).values()) == [{"sky": "blue"}]


async def test_a_change_affects_what_is_below_it(live: Live) -> None:
    live.feed.load(gateway_class(), gateway(), route("a"), route("b"))
    first = await live.live.advance()
    assert first.anew  # a topology without kinds of policies was there before
    live.feed.put(route("b", parentRefs=[{"name": "none"}]))
    step = await live.live.advance()
    assert not step.anew
    assert {name.partition("#")[0].rpartition("/")[2] for name in step.affected} == {"b"}


async def test_what_is_deleted_is_gone_from_the_topology(live: Live) -> None:
    live.feed.load(gateway_class(), gateway())
    await live.live.advance()
    live.feed.delete(gateway())
    step = await live.live.advance()
    assert GW in step.affected
    assert GW not in live.live.topology


async def test_a_status_does_not_touch_the_topology(live: Live) -> None:
    live.feed.load(gateway())
    await live.live.advance()
    node = live.live.topology[GW]
    live.feed.put(gateway() | {"status": {"n": 1}})
    step = await live.live.advance()
    assert [event.meaning for event in step.events] == [False]
    assert step.affected == frozenset()
    assert live.live.topology[GW] is node


async def test_it_waits_until_everything_was_listed_once(live: Live) -> None:
    live.kinds.waiting = ["the kinds there are"]
    live.feed.list(GATEWAY)
    waiting = live.live.waiting
    assert waiting[0] == "the kinds there are"
    assert "GatewayClass.gateway.networking.k8s.io" in waiting
    assert str(GATEWAY) not in waiting
    live.kinds.waiting = []
    live.feed.load()
    assert not live.live.waiting


async def test_it_does_not_wait_again_for_kinds_that_come_later(live: Live) -> None:
    """Who cannot be listed must not stop what goes on for all others."""
    live.feed.load(gateway())
    await live.live.advance()
    live.world.store(OTHER.node_kind)
    live.kinds.waiting = ["the kinds there are"]
    assert not live.live.waiting


async def test_nothing_is_due_while_it_waits(live: Live) -> None:
    """Else whoever waits for what is due would come back at once, for ever."""
    live.feed.objects[GATEWAY] = {}
    live.feed.put(gateway())
    live.feed.list(GATEWAY, known=False)
    assert live.world.due is not None
    assert live.live.due is None
    for kind in live.feed.stores.keys() - {GATEWAY}:
        live.feed.list(kind)
    assert live.live.due == live.world.due


async def test_other_kinds_of_policies_make_another_topology(live: Live) -> None:
    live.feed.load(gateway_class(), gateway(), route(), color("c", **overrides(sky="blue")))
    await live.live.advance()
    before = live.live.topology
    leveled = replace(COLOR_POLICY, level=frozenset({GATEWAY}))
    live.kinds.policies = [leveled]
    step = await live.live.advance()
    assert step.anew
    assert step.affected >= {GW, ROUTE}
    assert live.live.topology is not before
    assert [one.path[-1] for one in live.live.topology.effective(COLOR_POLICY.id)] == [GW]
    assert not (await live.live.advance()).anew


async def test_a_kind_of_policies_that_is_gone_affects_what_it_attached_to(live: Live) -> None:
    live.feed.load(gateway_class(), gateway(), color("c", **overrides(sky="blue")))
    await live.live.advance()
    live.kinds.policies = []
    live.world.forget(COLOR_POLICY.id)
    step = await live.live.advance()
    assert step.anew
    gone = Locator(f"colorpolicy.examples.kube-sync.io:{NS}/c")
    assert {GW, gone} <= step.affected
    assert gone not in live.live.topology


async def test_a_kind_of_policies_counts_once_it_was_listed(live: Live) -> None:
    live.feed.load(gateway())
    await live.live.advance()
    store = live.world.store(OTHER.node_kind)
    live.kinds.policies = [COLOR_POLICY, OTHER]
    await live.live.advance()
    assert OTHER.id not in live.live.topology.policy_kinds
    store.finish(known=True)
    assert (await live.live.advance()).anew
    assert OTHER.id in live.live.topology.policy_kinds


async def test_a_loop_leaves_the_topology_as_it_was() -> None:
    fruits = Fruits()
    fruits.plant(("apple:1", ""), ("orange:1", "apple:1"))
    await fruits.live.advance()
    before = fruits.edges()
    fruits.plant(("apple:1", "peach:1"), ("peach:1", "banana:1"), ("banana:1", "orange:1"))
    step = await fruits.live.advance()
    assert "loop detected" in str(step.error)
    assert len(step.events) == 3
    assert fruits.edges() == before


async def test_what_could_not_be_taken_in_is_tried_again_with_the_next_batch() -> None:
    fruits = Fruits()
    fruits.plant(("apple:1", "peach:1"), ("orange:1", "apple:1"), ("banana:1", "orange:1"))
    fruits.plant(("peach:1", "banana:1"))
    assert (await fruits.live.advance()).error is not None
    fruits.plant(("apple:1", ""))
    step = await fruits.live.advance()
    assert step.error is None
    assert [event.name for event in step.events] == ["1"]
    assert len(fruits.edges()) == 3


async def test_a_large_batch_lets_others_run(live: Live) -> None:
    live.feed.load(*world(1, 500, bound=False))
    assert await turns(live.live.advance()) >= 10
    for number in range(500):
        live.feed.put(route(f"route-{number}", hostnames=["other.example.com"]))
    assert await turns(live.live.advance()) >= 5
    assert live.bytes == as_json(report(live.built_anew()))


async def test_what_comes_while_it_is_built_comes_with_the_next_batch(live: Live) -> None:
    live.feed.load(*world(1, 500, bound=False))
    advancing = asyncio.create_task(live.live.advance())
    await asyncio.sleep(0)
    live.feed.put(gateway("late"))
    await advancing
    late = Locator(f"{GW.rpartition('/')[0]}/late")
    assert late not in live.live.topology
    await live.live.advance()
    assert late in live.live.topology


def chain(length: int, *, turned: bool) -> list[tuple[str, str]]:
    """Return pairs of an apple and an orange, one of them below the other."""
    return [
        pair
        for n in range(length)
        for pair in (
            [(f"apple:{n}", f"peach:{n}"), (f"peach:{n}", "")]
            if turned
            else [(f"apple:{n}", ""), (f"orange:{n}", f"apple:{n}")]
        )
    ]


async def test_a_large_batch_that_cannot_be_leaves_the_topology_as_it_was() -> None:
    """Its loop is in the last slice, and the slices before it were taken in."""
    fruits = Fruits()
    fruits.plant(*chain(200, turned=False))
    await fruits.live.advance()
    before = fruits.edges()
    for n in range(200):
        fruits.feed.delete(fruit("Orange", str(n)))
    fruits.plant(("peach:x", "banana:x"), ("banana:x", "orange:x"), ("orange:x", "apple:x"))
    fruits.plant(("apple:x", "peach:x"))
    assert (await fruits.live.advance()).error is not None
    assert fruits.edges() == before
    fruits.plant(("apple:x", ""))
    assert (await fruits.live.advance()).error is None
    assert len(fruits.edges()) == 3


async def test_a_large_batch_may_pass_through_what_cannot_be() -> None:
    """Turned around by halves it would be a loop, and as a whole it is none."""
    fruits = Fruits()
    fruits.plant(("apple:1", ""), ("orange:1", "apple:1"), ("banana:1", "orange:1"))
    fruits.plant(*((f"banana:{n}", "") for n in range(2, 300)))
    await fruits.live.advance()
    fruits.plant(("apple:1", "peach:1"), ("peach:1", "banana:1"), ("orange:1", ""))
    fruits.plant(*((f"banana:{n}", "orange:1") for n in range(2, 300)))
    step = await fruits.live.advance()
    assert step.error is None
    assert len(fruits.edges()) == 1 + 2 + 298


async def test_a_first_slice_that_cannot_be_alone_is_taken_in_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kube_sync.topology.controller.live_topology._SLICE", 1)
    fruits = Fruits()
    fruits.plant(("orange:1", "apple:1"), ("banana:1", "orange:1"), ("peach:1", "banana:1"))
    await fruits.live.advance()
    fruits.plant(("apple:1", "peach:1"), ("orange:1", ""))
    step = await fruits.live.advance()
    assert step.error is None
    assert fruits.edges() == list(fruits.built_anew().all.edges())


NAMES = st.tuples(st.sampled_from(FRUITS), st.integers(0, 2))


@settings(max_examples=examples(50))
@given(st.lists(st.lists(st.tuples(NAMES, st.integers(-1, 2)), max_size=6), max_size=6))
def test_whatever_comes_in_whatever_slices_it_is_what_is_built_at_once(
    batches: Sequence[Sequence[tuple[tuple[GroupKind, int], int]]],
) -> None:
    async def follow() -> None:
        fruits = Fruits()
        for batch in batches:
            for (kind, name), parent in batch:
                above = FRUITS[FRUITS.index(kind) - 1].kind.lower()
                body = fruit(kind.kind, str(name), *([f"{above}:{parent}"] if parent >= 0 else []))
                fruits.feed.put(body)
            before = fruits.edges()
            step = await fruits.live.advance()
            anew = fruits.built_anew()
            loops = anew.all.loop(anew.all) is not None
            assert (step.error is not None) is loops
            assert fruits.edges() == (before if loops else list(anew.all.edges()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kube_sync.topology.controller.live_topology._SLICE", 1)
        asyncio.run(follow())
