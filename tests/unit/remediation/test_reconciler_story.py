"""Whatever happens in whatever order, objects end as they were decided to be, and no other way."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kube_sync.decisions.records import DecisionRecord
from kube_sync.errors import Conflict, Retriable
from kube_sync.guard import Limits
from kube_sync.guard.limits import Rate
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.plan import Write
from tests.parts import examples
from tests.unit.remediation.test_reconciler import (
    BOOKMARK,
    HELD,
    RELEASED,
    ApiServer,
    World,
    _decision,
    _target,
)

NAMES = ("a", "b", "c")
PLACES = ("us", "eu", "us,eu")
_names, _places = st.sampled_from(NAMES), st.sampled_from(PLACES)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("decide"), _names, _places),
        st.tuples(st.just("undefined"), _names),
        st.tuples(st.just("edited"), _names, _places),
        st.tuples(st.just("watched"), _names),
        st.sampled_from(
            [
                ("held",),
                ("released",),
                ("listed",),
                ("overtaken",),
                ("conflict",),
                ("away",),
                ("lost",),
                ("leads",),
            ]
        ),
    ),
    max_size=30,
)


class Story:
    def __init__(self, limits: Limits) -> None:
        self.world = World(ApiServer(**dict.fromkeys(NAMES, "us")), limits=limits)
        self.decided: dict[str, str] = {}
        self.held = self.overtaken = False
        self.world.patch = self._patch

    async def _patch(self, gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
        await self.world.server.patch(gvr, key, step)
        if self.overtaken:  # the watch tells of a write before its answer is there
            self.world.watch(key.name)
            await self.world.idle()

    async def tell(self, steps: list[tuple[Any, ...]]) -> None:
        world = self.world
        async with world.running():
            world.stream()
            for step in steps:
                before, may = len(world.server.patched), not self.held and world.left > 0
                self.step(*step)
                may |= not self.held and world.left > 0
                await self._idle()
                assert may or len(world.server.patched) == before
                world.now += 100  # long enough that nobody takes it for a fight

            self.step("released")
            self.step("leads")
            world.server.failures = []
            for _ in range(4):
                self.step("listed")
                await self._idle()
                world.now += 700

    async def _idle(self) -> None:
        for _ in range(1 + len(NAMES) * self.overtaken):  # each answer waits for that
            await self.world.idle()

    def step(self, what: str, name: str = "", place: str = "") -> None:
        world = self.world
        match what:
            case "decide":
                self.decided[name] = place
                world.take(_decision(name, place))
                world.take(BOOKMARK)
            case "undefined":
                self.decided.pop(name, None)
                world.take(DecisionRecord(_target(name), "u", None, 1, "data", ""))
                world.take(BOOKMARK)
            case "edited":
                world.server.objects[name] = {**world.server.objects[name], "place": place}
            case "held":
                self.held = True
                world.take(HELD)
            case "released":
                self.held = False
                world.take(RELEASED)
            case "watched" | "listed" | "overtaken":
                self._watch(what, name)
            case "conflict" | "away":
                error = Conflict("409") if what == "conflict" else Retriable("503")
                world.server.failures.append(error)
            case "lost":
                world.left = 0.0
            case "leads":
                world.left = 10.0
                world.reconciler.lead()

    def _watch(self, what: str, name: str) -> None:
        if what == "watched":
            self.world.watch(name)
        elif what == "listed":
            self.world.relist()
        else:
            self.overtaken = not self.overtaken


@settings(max_examples=examples(60))
@given(_steps)
def test_in_the_end_every_object_is_as_it_was_decided_to_be(steps: list[tuple[Any, ...]]) -> None:
    async def told() -> None:
        story = Story(Limits())
        await story.tell(steps)
        places = story.world.server.places()
        assert {name: places[name] for name in story.decided} == story.decided
        waits = story.world.waits()
        assert {name: kind for name, kind in waits.items() if kind != "undefined"} == {}

    asyncio.run(told())


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(_names, st.just("eu"))), st.integers(1, 2))
def test_no_story_moves_more_than_the_budget_allows(
    moves: list[tuple[str, str]], burst: int
) -> None:
    async def told() -> None:
        world = World(
            ApiServer(**dict.fromkeys(NAMES, "us")), limits=Limits(moves=Rate(0.001, burst))
        )
        async with world.running():
            world.stream()
            for name, place in moves:
                world.take(_decision(name, place))
                world.take(BOOKMARK)
                await world.idle()
                world.reconciler.lead()  # as a new leader, which reads back what was spent
                world.relist()
        wanted = {name for name, _ in moves}
        assert len(world.server.patched) == min(burst, len(wanted))
        assert world.waits() == dict.fromkeys(wanted - {*world.server.patched}, "budget")

    asyncio.run(told())
