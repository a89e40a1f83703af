"""Whatever happens in whatever order, no write takes a workload's last healthy cluster away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kube_sync.errors import Conflict, Retriable
from kube_sync.guard import ADDITION
from kube_sync.guard.add_first import OnUnhealthy
from tests.parts import examples
from tests.unit.remediation.test_add_first import (
    LATE,
    Clusters,
    Witness,
    heal,
    ill,
    seen,
    world_of,
)
from tests.unit.remediation.test_reconciler import BOOKMARK, World, _decision

NAMES = ("a", "b")
CLUSTERS = ("us", "eu", "ap")
_names, _clusters = st.sampled_from(NAMES), st.sampled_from(CLUSTERS)
_places = st.frozensets(_clusters, min_size=1).map(lambda found: ",".join(sorted(found)))
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("decide"), _names, _places),
        st.tuples(st.just("heal"), _names, _clusters),
        st.tuples(st.just("ill"), _names, _clusters),
        st.tuples(st.just("later"), st.sampled_from([10, LATE])),
        st.sampled_from([("watch",), ("conflict",), ("away",), ("lost",), ("leads",)]),
        st.just(("restart",)),
    ),
    max_size=25,
)


class Story:
    def __init__(self, on_unhealthy: OnUnhealthy) -> None:
        self.server, self.clusters = Witness(**dict.fromkeys(NAMES, "us")), Clusters()
        self.decided = dict.fromkeys(NAMES, "us")
        self.on_unhealthy: OnUnhealthy = on_unhealthy
        self.now = 1_000_000.0
        for name in NAMES:
            for cluster in CLUSTERS:
                heal(self.server, name, cluster)

    async def tell(self, steps: Iterable[tuple[Any, ...]]) -> None:
        """Run one remediator after the other: each begins where its predecessor ended."""
        left = list(steps)
        while left:
            part, left = _until_restart(left)
            await self.run(part)

    async def run(self, steps: Iterable[tuple[Any, ...]]) -> None:
        world = world_of(self.server, self.on_unhealthy, self.clusters)
        world.now = self.now
        async with world.running():
            world.stream(*(_decision(name, place) for name, place in self.decided.items()))
            await world.idle()
            for step in steps:
                self.step(world, *step)
                await world.idle()
                world.now += 100  # long enough that nobody takes it for a fight
        self.now = world.now + 100

    def step(self, world: World, what: str, name: Any = "", value: str = "") -> None:
        match what:
            case "decide":
                self.decided[name] = value
                world.take(_decision(name, value))
                world.take(BOOKMARK)
            case "heal" | "ill":
                (heal if what == "heal" else ill)(self.server, name, value)
                world.relist()
            case "later":
                world.now += name
            case "watch":
                world.relist()
            case "conflict" | "away":
                error = Conflict("409") if what == "conflict" else Retriable("503")
                self.server.failures.append(error)
            case "lost":
                world.left = 0.0
            case "leads":
                world.left = 10.0
                world.reconciler.lead()

    async def settle(self) -> None:
        """Heal everything, change the clusters, and let a last remediator carry it all out."""
        self.server.failures = []
        for name in NAMES:
            for cluster in CLUSTERS:
                heal(self.server, name, cluster)
        self.clusters.labels = {cluster: {"repaired": "yes"} for cluster in CLUSTERS}
        world = world_of(self.server, self.on_unhealthy, self.clusters)
        world.now = self.now + 1_000
        async with world.running():
            world.stream(*(_decision(name, place) for name, place in self.decided.items()))
            for _ in range(5):
                await seen(world)
                world.now += 100


def _until_restart(
    steps: list[tuple[Any, ...]],
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    if ("restart",) not in steps:
        return steps, []
    at = steps.index(("restart",))
    return steps[:at], steps[at + 1 :]


@settings(max_examples=examples(100))
@given(_steps, st.sampled_from(["revert", "keep"]))
def test_no_write_takes_the_last_healthy_cluster_and_all_end_as_decided(
    steps: list[tuple[Any, ...]], on_unhealthy: OnUnhealthy
) -> None:
    async def told() -> None:
        story = Story(on_unhealthy)
        await story.tell(steps)
        assert story.server.left_alone == []
        await story.settle()
        assert story.server.left_alone == []
        places = {n: set(p.split(",")) for n, p in story.server.places().items()}
        assert places == {name: set(place.split(",")) for name, place in story.decided.items()}
        assert not [name for name, has in story.server.objects.items() if ADDITION in has]

    asyncio.run(told())


@settings(max_examples=examples(60))
@given(_steps, st.sampled_from(["revert", "keep"]), st.integers(1, 6))
def test_without_any_change_no_object_is_written_again_and_again(
    steps: list[tuple[Any, ...]], on_unhealthy: OnUnhealthy, times: int
) -> None:
    async def told() -> None:
        story = Story(on_unhealthy)
        await story.tell(steps)
        story.server.failures = []
        await story.run([("watch",)] * 4)
        await story.run([("later", LATE), ("watch",)] * 2)
        before = len(story.server.patched)
        for _ in range(times):
            await story.run([("watch",), ("later", LATE), ("watch",)])
        assert len(story.server.patched) == before

    asyncio.run(told())
