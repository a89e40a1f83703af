"""One decision for each object, by the set of its side, as a canary comes, changes and goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from kube_sync.decisions.canary import Canary, CanaryDecider
from kube_sync.decisions.classes import Members
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.tracker import Tracker
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.opa.analysis.result import Document, FieldRead, Reads
from kube_sync.opa.sides import Side
from tests.unit.async_tools import running, until

REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
LABELS = FieldRead(("metadata", "labels"), whole=True, asked=())
READS = Reads(
    Document((LABELS,), used=True), {"replicasets": Document(), "clusters": Document()}, (), {}
)
SMALL, LARGE = Side("p/place", "0.2"), Side("p/place", "0.5")
KEYS = [ObjectKey("shop", f"{'ab'[n % 2]}{n}") for n in range(60)]
NAMES = {key.name for key in KEYS}


def on(side: Side) -> set[str]:
    return {key.name for key in KEYS if side.has(key)}


def canary(side: Side = SMALL, policy: str = "c1", reads: Reads = READS) -> Canary:
    return Canary(side, policy, reads, {})


class Held:
    """What OPA holds; an object's class is the first letter of its name."""

    known = loaded = True
    learning = False
    pending = 0

    def __init__(self, name: str, keys: Iterable[ObjectKey] = ()) -> None:
        self.name = name
        self.gvr: GroupVersionResource | None = None
        self.members = Members()
        self.members.classify(lambda body: body[:1])
        self._keys = [*keys]
        for key in self._keys:
            self.note(key)

    def note(self, key: ObjectKey) -> None:
        self.members.note(key, self.members.read(key.name.encode(), f"uid-{key.name}"))

    @property
    def object_count(self) -> int:
        return len(self._keys)

    def keys(self) -> Iterable[ObjectKey]:
        return iter(self._keys)

    @property
    def unreadable(self) -> dict[ObjectKey, tuple[str, str]]:
        return {}

    def take_readability_changes(self) -> set[ObjectKey]:
        return set()

    def is_pending(self, _key: ObjectKey) -> bool:
        return False


class World:
    """A tracker that asks an OPA with two sets, each of which says its own word of each class."""

    def __init__(self) -> None:
        self.says = {"kube_sync/batch": "now", "kube_sync_stage/batch/canary": "then"}
        self.asked: list[tuple[str, list[str]]] = []
        self.hub = DecisionHub("me")
        self.found, self.clusters = Held("replicasets", KEYS), Held("clusters")
        sets = Evaluator(self, "e"), Evaluator(self, "e", lane="canary")
        self.tracker = Tracker(
            sets[0], self.hub, {"replicasets": REPLICASETS}, [self.found, self.clusters]
        )
        self.canary = CanaryDecider(self.tracker, *sets)
        self.tracker.policies_changed("p1", 1, READS)

    async def query(self, path: str, body: bytes) -> bytes | None:
        where = path.removesuffix("/decisions")
        names = [name for _, name in json.loads(body)["input"]["items"]]
        self.asked.append((self.says[where], names))
        await asyncio.sleep(0)
        said = {"annotations": {"place": self.says[where]}}
        found = {n: {"uid": f"uid-{name}", "decision": said} for n, name in enumerate(names)}
        return json.dumps(found).encode()

    async def timed_query(self, path: str, body: bytes) -> tuple[bytes | None, float | None]:
        return await self.query(path, body), None

    def decide_by(self, found: Canary | None) -> None:
        self.canary.changed(found)

    @asynccontextmanager
    async def loaded(self) -> AsyncGenerator[None]:
        policies = asyncio.Event()
        policies.set()
        async with running(self.tracker.run(policies)):
            await until(lambda: len(self.hub.records) == len(KEYS) and not self.hub.held)
            await self.idle()
            self.asked.clear()
            yield

    async def idle(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)

    def told(self, word: str) -> set[str]:
        """Return of which objects this is told."""
        return {t.name for t, record in self.hub.records.items() if _word(record) == word}

    @property
    def policies(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for target, record in self.hub.records.items():
            found.setdefault(record.policy, set()).add(target.name)
        return found


def _word(record: Any) -> str | None:
    return record.decision.annotations["place"] if record.decision else None


@pytest.fixture
def world() -> World:
    return World()


async def test_canary_that_comes_has_its_side_and_only_that_is_asked_about(world: World) -> None:
    async with world.loaded():
        before = world.hub.seq
        world.decide_by(canary())
        await until(lambda: world.told("then") == on(SMALL))
        await world.idle()
        assert world.told("now") == NAMES - on(SMALL)
        assert world.hub.seq == before + len(on(SMALL))
        # One of each class, and nothing of who is not on its side.
        # In one batch or two: how many are asked at once goes by how long OPA takes.
        assert {word for word, _ in world.asked} == {"then"}
        assert sum(len(names) for _, names in world.asked) == 2
        assert world.policies == {"c1": on(SMALL), "p1": NAMES - on(SMALL)}


async def test_larger_share_asks_about_those_alone_who_come_to_it(world: World) -> None:
    world.decide_by(canary())
    async with world.loaded():
        assert world.told("then") == on(SMALL)
        before = world.hub.seq
        world.decide_by(canary(LARGE))
        await until(lambda: world.told("then") == on(LARGE))
        assert world.hub.seq == before + len(on(LARGE) - on(SMALL))
        assert world.asked == []  # what it says of their classes is known
        world.decide_by(canary())
        await until(lambda: world.told("now") == NAMES - on(SMALL))
        assert world.asked == []


async def test_canary_that_goes_gives_back_what_was_there_before(world: World) -> None:
    async with world.loaded():
        former = {t: record.decision for t, record in world.hub.records.items()}
        world.decide_by(canary())
        await until(lambda: world.told("then") == on(SMALL))
        world.decide_by(None)
        await until(lambda: world.told("now") == NAMES)
        assert {t: record.decision for t, record in world.hub.records.items()} == former
        assert world.policies == {"p1": NAMES}


async def test_another_lane_is_asked_about_its_side_anew(world: World) -> None:
    world.decide_by(canary())
    async with world.loaded():
        world.says["kube_sync_stage/batch/canary"] = "else"
        world.canary.changing()
        world.decide_by(canary(policy="c2"))
        await until(lambda: world.told("else") == on(SMALL))
        await world.idle()
        assert {word for word, _ in world.asked} == {"else"}
        assert world.policies["c2"] == on(SMALL)


async def test_all_are_decided_by_their_sides_from_the_first_question_on(world: World) -> None:
    world.decide_by(canary())
    async with world.loaded():
        assert world.told("then") == on(SMALL)
        assert world.hub.seq == len(KEYS)  # of none was anything else told before


async def test_change_of_what_the_canary_alone_looks_at_asks_again(world: World) -> None:
    used = {**READS.resources, "clusters": Document((LABELS,), used=True)}
    world.decide_by(canary(reads=replace(READS, resources=used)))
    async with world.loaded():
        world.says["kube_sync_stage/batch/canary"] = "else"
        world.tracker.written("clusters", [ObjectKey("", "c1")])
        await until(lambda: world.told("else") == on(SMALL))


async def test_written_object_is_decided_by_its_side(world: World) -> None:
    world.decide_by(canary())
    async with world.loaded():
        for key in KEYS:
            world.hub.delete(next(t for t in world.hub.records if t.key == key))
        world.tracker.written("replicasets", KEYS)
        await until(lambda: len(world.hub.records) == len(KEYS))
        assert world.told("then") == on(SMALL)


async def test_nothing_is_shared_while_the_canary_changes(world: World) -> None:
    """Objects of one class by what the old one reads may be told apart by the new."""
    world.decide_by(canary())
    async with world.loaded():
        world.canary.changing()
        world.tracker.written("replicasets", KEYS[:6])
        await until(lambda: sum(len(names) for _, names in world.asked) == 6)


async def test_edit_of_what_is_in_force_keeps_each_on_its_side(world: World) -> None:
    world.decide_by(canary())
    async with world.loaded():
        world.says["kube_sync/batch"] = "later"
        world.tracker.policies_changing()
        world.tracker.policies_changed("p2", 1, READS)
        await until(lambda: world.told("later") == NAMES - on(SMALL))
        assert world.told("then") == on(SMALL)
