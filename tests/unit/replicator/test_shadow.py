"""The second decision, with a lane that is a table and classes by the first letter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from kube_sync.decisions.classes import Members
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import Target
from kube_sync.errors import Retriable
from kube_sync.guard import Placements
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.analysis.result import Document, FieldRead, Reads
from kube_sync.opa.sides import Side
from kube_sync.policies.staging.lanes import Counted
from kube_sync.replicator.shadow import Shadow
from tests.memory import remembered
from tests.unit.async_tools import Waits, running, until

GVR = GroupVersionResource("apps", "v1", "replicasets")
KEPT = FieldRead(("metadata", "labels"), whole=True, asked=())
READS = Reads(
    Document((KEPT,), used=True),
    {"replicasets": Document(), "clusters": Document((KEPT,), used=True)},
    (),
    {},
)
NOTE = "example.com/note"


LETTERS = "abcdefghijklmnopq"


def said(text: str) -> Outcome:
    return Outcome("u", Decision({NOTE: text}))


def key(name: str) -> ObjectKey:
    return ObjectKey("shop", name)


class Held:
    """One collection in OPA; an object's class is the first letter of its name."""

    name = "replicasets"

    def __init__(self) -> None:
        self.members = Members()
        self.members.classify(lambda body: body[:1])
        self.learning = False
        self.names: list[str] = []
        self.moving: set[str] = set()

    def put(self, *names: str) -> None:
        for name in names:
            self.names.append(name)
            self.members.note(key(name), self.members.read(name.encode(), f"uid-{name}"))

    def keys(self) -> Iterable[ObjectKey]:
        return iter([key(name) for name in self.names])

    def is_pending(self, found: ObjectKey) -> bool:
        return found.name in self.moving


class Lane:
    """Decisions by the first letter of a name; notes what it was asked."""

    batch_size = 2

    def __init__(self) -> None:
        self.says: dict[str, str] = {}
        self.asked: list[list[str]] = []
        self.before: Callable[[], None] = lambda: None
        self.fails = 0

    async def evaluate(
        self, collection: str, keys: Iterable[ObjectKey]
    ) -> dict[ObjectKey, Outcome]:
        assert collection == "replicasets"
        names = [found.name for found in keys]
        self.asked.append(names)
        if self.fails:
            self.fails -= 1
            msg = "no answer"
            raise Retriable(msg)
        await asyncio.sleep(0)
        self.before()
        return {key(name): said(self.says[name[0]]) for name in names}

    @property
    def names(self) -> list[str]:
        return sorted(name for names in self.asked for name in names)


class Bench:
    def __init__(self) -> None:
        self.hub = DecisionHub("test")
        self.held, self.lane, self.waits = Held(), Lane(), Waits()
        self.counted: list[Counted | None] = []
        self.rests: list[float] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.shadow = Shadow(
            self.lane,
            self.hub,
            lambda: {"replicasets": GVR},
            lambda: [cast("Any", self.held)],
            Placements(),
            self.counted.append,
            backoff=self.waits.backoff(),
            sleep=self.rest,
        )

    async def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        await self.gate.wait()

    def put(self, *names: str, says: str = "now") -> None:
        self.held.put(*names)
        for name in names:
            self.decide(name, says)

    def decide(self, name: str, says: str) -> None:
        target = Target("apps", "v1", "replicasets", name, "shop")
        self.hub.publish(target.gvr, target.key, said(says), "load", "p", uid=f"uid-{name}")

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with running(self.shadow.run()):
            yield

    async def counts(self, objects: int, changes: int) -> None:
        def told() -> bool:
            last = self.counted[-1] if self.counted else None
            return last is not None and (last.objects, last.differences["changes"]) == (
                objects,
                changes,
            )

        await until(told)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_without_a_lane_nothing_is_asked(bench: Bench) -> None:
    bench.put("a1")
    async with bench.running():
        bench.shadow.written("replicasets", [key("a1")])
        await asyncio.sleep(0)
        assert bench.lane.asked == []
        assert bench.counted == []


async def test_one_of_each_class_is_asked_and_all_of_it_are_counted(bench: Bench) -> None:
    bench.put("a1", "a2", "a3", "b1", "c1")
    bench.lane.says = {"a": "then", "b": "now", "c": "then"}
    async with bench.running():
        bench.shadow.staged(READS)
        await bench.counts(5, 4)
        assert bench.lane.asked == [["a1", "b1"], ["c1"]]
        sample = REGISTRY.get_sample_value("kube_sync_shadow_differences", {"effect": "changes"})
        assert sample == 4


async def test_lane_that_goes_is_counted_no_more(bench: Bench) -> None:
    bench.put("a1")
    bench.lane.says = {"a": "then"}
    async with bench.running():
        bench.shadow.staged(READS)
        await bench.counts(1, 1)
        bench.shadow.staged(None)
        assert bench.counted[-1] is None
        labels = {"effect": "changes"}
        assert REGISTRY.get_sample_value("kube_sync_shadow_differences", labels) is None


async def test_lane_in_place_of_another_is_asked_anew(bench: Bench) -> None:
    bench.put("a1")
    bench.lane.says = {"a": "then"}
    async with bench.running():
        bench.shadow.staged(READS)
        await bench.counts(1, 1)
        bench.lane.says = {"a": "now"}
        bench.shadow.staged(READS)
        await bench.counts(1, 0)


async def test_decision_in_force_that_changes_is_compared_without_a_question(bench: Bench) -> None:
    bench.put("a1", "b1")
    bench.lane.says = {"a": "then", "b": "now"}
    async with bench.running():
        bench.shadow.staged(READS)
        await bench.counts(2, 1)
        asked = len(bench.lane.asked)
        bench.decide("a1", "then")
        await bench.counts(2, 0)
        assert len(bench.lane.asked) == asked


async def test_written_object_is_asked_about_where_its_class_is_new(bench: Bench) -> None:
    bench.put("a1")
    bench.lane.says = {"a": "then", "b": "then"}
    async with bench.running():
        bench.shadow.staged(READS)
        await bench.counts(1, 1)
        bench.put("a2", "b1")
        bench.shadow.written("replicasets", [key("a2"), key("b1")])
        await bench.counts(3, 3)
        assert bench.lane.names == ["a1", "b1"]


async def test_change_of_what_the_lane_looks_at_asks_each_class_again(bench: Bench) -> None:
    bench.put("a1", "b1")
    bench.lane.says = {"a": "then", "b": "now"}
    async with bench.running():
        bench.shadow.staged(READS)
        await bench.counts(2, 1)
        bench.lane.says = {"a": "now", "b": "now"}
        bench.shadow.written("clusters", [key("c")])
        await bench.counts(2, 0)
        assert bench.lane.names == ["a1", "a1", "b1", "b1"]


async def test_answer_that_a_change_overtook_counts_for_nothing(bench: Bench) -> None:
    """The cluster changed while OPA was asked: nobody knows on which state it answered."""
    bench.put("a1")
    bench.lane.says = {"a": "then"}

    def change() -> None:
        bench.lane.before = lambda: None
        bench.lane.says = {"a": "now"}
        bench.shadow.written("clusters", [key("c")])

    async with bench.running():
        bench.lane.before = change
        bench.shadow.staged(READS)
        await bench.counts(1, 0)
        assert [found for found in bench.counted if found is not None] == bench.counted
        assert len(bench.counted) == 1


async def test_object_on_its_way_stands_for_no_other(bench: Bench) -> None:
    bench.put("a1", "a2")
    bench.held.moving = {"a1"}
    bench.lane.says = {"a": "then"}
    async with bench.running():
        bench.shadow.staged(READS)
        await until(lambda: "a2" in bench.lane.names)
        assert "a1" in bench.lane.names


@pytest.mark.parametrize(
    "reads",
    [
        replace(READS, impure={"time.now_ns": ()}),
        replace(READS, gave_up="no"),
        replace(READS, input=Document((FieldRead((), whole=True, asked=()),), used=True)),
    ],
)
async def test_where_objects_cannot_be_told_apart_each_is_asked_about(
    bench: Bench, reads: Reads
) -> None:
    bench.put("a1", "a2")
    bench.lane.says = {"a": "then"}
    async with bench.running():
        bench.shadow.staged(reads)
        await bench.counts(2, 2)
        assert set(bench.lane.names) == {"a1", "a2"}


async def test_nothing_is_counted_while_decisions_are_held(bench: Bench) -> None:
    """Half a fleet differs from a whole one."""
    bench.put("a1")
    bench.lane.says = {"a": "then"}
    bench.hub.hold("load", "OPA is being loaded")
    async with bench.running():
        bench.shadow.staged(READS)
        await until(lambda: bench.rests)
        assert (bench.lane.asked, bench.counted) == ([], [])
        bench.hub.release("load")
        await bench.counts(1, 1)


async def test_opa_that_does_not_answer_is_asked_again_later(bench: Bench) -> None:
    bench.put("a1")
    bench.lane.says, bench.lane.fails = {"a": "then"}, 2
    async with bench.running():
        bench.shadow.staged(READS)
        await bench.counts(1, 1)
        assert len(bench.lane.asked) == 3


async def test_equal_counts_are_told_once_and_turns_rest(bench: Bench) -> None:
    bench.put("a1")
    bench.lane.says = {"a": "then"}
    async with bench.running():
        bench.shadow.staged(READS)
        await bench.counts(1, 1)
        turns = len(bench.rests)
        bench.shadow.written("replicasets", [key("a1")])
        await until(lambda: len(bench.rests) > turns)
        assert len(bench.counted) == 1
        assert min(bench.rests) >= 5.0


async def test_there_is_a_count_although_something_changes_all_the_time(bench: Bench) -> None:
    """Else a canary would never halt where clusters change more often than a count takes."""
    bench.put("a1", "b1", "c1", "d1", "e1")
    bench.lane.says = dict.fromkeys("abcde", "then")
    bench.lane.before = lambda: bench.shadow.written("clusters", [key("c")])
    async with bench.running():
        bench.shadow.staged(READS)
        await bench.counts(5, 5)
        bench.lane.says = dict.fromkeys("abcde", "now")
        await bench.counts(5, 0)


async def test_classes_that_are_gone_are_not_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_sync.replicator.shadow._SLICE", 3)
    bench.lane.says = {letter: "now" if letter in "acegikmoq" else "then" for letter in LETTERS}
    async with bench.running():
        bench.shadow.staged(replace(READS, resources={"replicasets": Document()}))
        for number, letter in enumerate(LETTERS):
            bench.held.names.clear()
            bench.put(f"{letter}1")
            bench.shadow.written("replicasets", [key(f"{letter}1")])
            await bench.counts(1, number % 2)
        kinds = {one for one in remembered(bench.shadow, tuple) if one[:1] == ("replicasets",)}
        assert 0 < len(kinds) <= 2 * 1 + 3


class Table(Lane):
    """What is in force, asked beside a lane."""


async def test_canary_is_compared_with_what_is_in_force_though_it_decides() -> None:
    """What is told of its objects is its own by then, and nothing would ever differ from that."""
    bench = Bench()
    usual = Table()
    usual.says = {"a": "now", "b": "now"}
    bench.lane.says = {"a": "then", "b": "now"}
    side = Side("p/place", "0.5")
    names = [f"{letter}{n}" for letter in "ab" for n in range(20)]
    bench.put(*names, says="then")
    on = [name for name in names if side.has(key(name))]
    moved = [name for name in on if name[0] == "a"]
    assert 0 < len(moved) < len(on) < len(names)
    metrics.shadow_differences.clear()
    shadow = Shadow(
        bench.lane,
        bench.hub,
        lambda: {"replicasets": GVR},
        lambda: [cast("Any", bench.held)],
        Placements(),
        bench.counted.append,
        in_force=usual,
        gauge=metrics.canary_differences,
        sleep=bench.rest,
    )
    async with running(shadow.run()):
        shadow.staged(READS, side, "this one")
        await bench.counts(len(on), len(moved))
        last = bench.counted[-1]
        assert last is not None
        assert (last.of, last.unknown) == ("this one", 0)
        assert set(bench.lane.names) | set(usual.names) <= set(on)
        labels = {"effect": "changes"}
        assert REGISTRY.get_sample_value("kube_sync_canary_differences", labels) == len(moved)
        assert REGISTRY.get_sample_value("kube_sync_shadow_differences", labels) is None
        # Both are asked again where what they look at changed.
        usual.says = {"a": "then", "b": "then"}
        shadow.written("clusters", [key("c")])
        await bench.counts(len(on), len(on) - len(moved))
        shadow.staged(None)
