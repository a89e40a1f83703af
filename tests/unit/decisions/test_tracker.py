from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube_sync.decisions.classes import Members
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import DecisionRecord, Source, Target, Unreadable
from kube_sync.decisions.sharing import OBJECTS_PER_YIELD
from kube_sync.decisions.tracker import Tracker
from kube_sync.errors import Refused, Retriable
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.opa.analysis.analyzer import analyze
from tests.fakes.untimed import Untimed
from tests.unit.async_tools import PATIENCE, Waits, running, until

READS = analyze([], "p", {})
REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")


def _key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def _target(name: str) -> Target:
    return Target("apps", "v1", "replicasets", name, "ns")


class Collection:
    def __init__(self, name: str, *names: str) -> None:
        self.name = name
        self.gvr: GroupVersionResource | None = GroupVersionResource("g", "v1", name)
        self.known = True
        self.loaded = True
        self.pending = 0
        self.learning = False
        self.members = Members()
        self.moving: set[str] = set()
        self.names = list(names)
        self.unreadable: dict[ObjectKey, tuple[str, str]] = {}
        self.turns: set[ObjectKey] = set()

    def take_readability_changes(self) -> set[ObjectKey]:
        found, self.turns = self.turns, set()
        return found

    def keys(self) -> Iterable[ObjectKey]:
        return [_key(name) for name in self.names]

    @property
    def object_count(self) -> int:
        return len(self.names)

    def is_pending(self, key: ObjectKey) -> bool:
        return key.name in self.moving

    def knows(self, **kinds: str) -> None:
        """Have objects be of these classes."""
        if not self.members.is_classifying:
            self.members.classify(bytes)
        for name, kind in kinds.items():
            self.members.note(_key(name), self.members.read(kind.encode(), f"uid-{name}"))


class Opa(Untimed):
    """Decides `<text>` for every object it holds, and remembers what it was asked for."""

    def __init__(self, replicasets: Collection) -> None:
        self.replicasets = replicasets
        self.text = "one"
        self.asked: list[list[str]] = []
        self.failures: list[Exception] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.seconds = 0.0  # how long a query takes
        self.meanwhile: Callable[[], None] = lambda: None
        self.clock = 0.0

    async def query(self, path: str, body: bytes) -> bytes | None:
        assert path == "kube_sync/batch/decisions"
        names = [name for _, name in json.loads(body)["input"]["items"]]
        self.asked.append(names)
        await self.answers.wait()
        await asyncio.sleep(0)
        self.meanwhile()
        self.clock += self.seconds
        if self.failures:
            raise self.failures.pop(0)
        return json.dumps(self._decided(names)).encode()

    def _decided(self, names: list[str]) -> dict[str, Any]:
        decision = {"annotations": {"place": self.text}}
        return {
            str(index): {"uid": f"uid-{name}", "decision": decision}
            for index, name in enumerate(names)
            if name in self.replicasets.names
        }


class World:
    """A tracker over two collections: `replicasets`, which are decided on, and `clusters`."""

    def __init__(self, *names: str, static: bool = False) -> None:
        self.replicasets = Collection("replicasets", *names)
        self.clusters = Collection("clusters", "c1")
        self.opa = Opa(self.replicasets)
        self.hub = DecisionHub("me")
        self.waits = Waits()
        self.policies = asyncio.Event()
        self.tracker = Tracker(
            Evaluator(self.opa, "e", clock=lambda: self.opa.clock),
            self.hub,
            {"replicasets": REPLICASETS},
            [self.replicasets, self.clusters],
            backoff=self.waits.backoff(0.1, 5.0),
            clock=lambda: self.opa.clock,
            static=static,
        )
        self.tracker.policies_changed("p1", 1, READS)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with running(self.tracker.run(self.policies)):
            yield

    @asynccontextmanager
    async def loaded(self) -> AsyncGenerator[None]:
        """Run with everything decided once, and what was asked for so far forgotten."""
        self.policies.set()
        async with self.running():
            await until(lambda: self.hub.records and not self.hub.held)
            await self.idle()
            self.opa.asked.clear()
            yield

    async def idle(self) -> None:
        """Wait until the tracker waits."""
        for _ in range(30):
            await asyncio.sleep(0)

    @property
    def causes(self) -> dict[str, str]:
        return {target.name: record.cause for target, record in self.hub.records.items()}

    @property
    def texts(self) -> dict[str, str | None]:
        return {t.name: _text(record) for t, record in self.hub.records.items()}

    @property
    def sources(self) -> dict[str, Source | None]:
        return {target.name: record.source for target, record in self.hub.records.items()}


def _text(record: DecisionRecord) -> str | None:
    return record.decision.annotations["place"] if record.decision else None


async def test_nothing_is_asked_before_the_first_policies_are_in() -> None:
    """A decision without policies is undefined, and would look like one."""
    world = World("a")
    async with world.running():
        await world.idle()
        assert world.opa.asked == []
        assert world.hub.held == ("OPA is being loaded",)
        world.policies.set()
        await until(lambda: not world.hub.held)
    assert world.causes == {"a": "load"}


async def test_what_is_written_before_the_first_decisions_is_decided_on_with_all_others() -> None:
    """Or half a million objects would be taken for changed ones, and each be looked at twice."""
    world = World("a", "b")
    async with world.loaded():
        pass
    world.opa.text = "two"
    world.policies.clear()
    async with world.running():
        await world.idle()
        world.tracker.written("replicasets", [_key("a"), _key("b")])
        world.policies.set()
        await until(lambda: not world.hub.held)
        assert world.texts == {"a": "two", "b": "two"}
        assert world.causes == {"a": "load", "b": "load"}
        assert world.opa.asked == [["a", "b"]]


async def test_the_load_hold_ends_only_when_everything_was_decided() -> None:
    world = World("a", "b")
    world.policies.set()
    world.opa.answers.clear()
    async with world.running():
        await until(lambda: world.opa.asked)
        assert world.hub.held == ("OPA is being loaded",)
        world.opa.answers.set()
        await until(lambda: not world.hub.held)
        assert world.texts == {"a": "one", "b": "one"}


async def test_a_load_forgets_what_went_while_opa_was_away() -> None:
    """The hub outlives epochs, and nobody tells what was deleted between two of them."""
    world = World("a")
    async with world.loaded():
        pass
    world.replicasets.names.remove("a")
    async with world.running():
        await until(lambda: not world.hub.records)
        await until(lambda: not world.hub.held)


async def test_a_load_ends_once_all_was_decided_on_though_policies_change_without_end() -> None:
    world = World("a", "b")
    world.opa.meanwhile = lambda: world.tracker.policies_changed("p2", 1, READS)
    world.policies.set()
    async with world.running():
        await until(lambda: world.hub.records and not world.hub.held)
        assert world.texts == {"a": "one", "b": "one"}
        world.opa.meanwhile = lambda: None
        await world.idle()


async def test_a_load_does_not_end_before_all_was_decided_on() -> None:
    world = World("a", *(f"b{number}" for number in range(30)))
    world.policies.set()
    held: list[tuple[str, ...]] = []

    def meanwhile() -> None:
        held.append(world.hub.held)
        world.tracker.policies_changed("p2", 1, READS)

    world.opa.meanwhile = meanwhile
    async with world.running():
        await until(lambda: world.hub.records and not world.hub.held)
        assert len(world.hub.records) == 31
        world.opa.meanwhile = lambda: None
        await world.idle()
    assert held[1]  # after the first of several queries


async def test_nothing_is_told_of_a_kind_that_was_withdrawn_while_opa_answered_a_sweep() -> None:
    world = World("a", "b")
    world.opa.meanwhile = lambda: world.tracker.retarget("replicasets", None)
    world.policies.set()
    async with world.running():
        await until(lambda: world.opa.asked)
        await world.idle()
        assert not world.hub.records


async def test_nothing_more_is_told_of_a_kind_that_was_withdrawn_while_its_class_was_told() -> None:
    names = [f"n{number}" for number in range(2 * OBJECTS_PER_YIELD)]
    world = World(*names)
    world.replicasets.knows(**dict.fromkeys(names, "k"))
    world.policies.set()
    async with world.running():
        await until(lambda: len(world.hub.records) >= OBJECTS_PER_YIELD)
        assert len(world.hub.records) < 2 * OBJECTS_PER_YIELD
        world.tracker.retarget("replicasets", None)
        await world.idle()
        assert not world.hub.records
        assert len(world.opa.asked) == 1


async def test_policies_that_decide_alike_cost_no_question() -> None:
    world = World("a", "b")
    async with world.loaded():
        world.tracker.policies_renamed("p2", 2)
        await world.idle()
        assert world.opa.asked == []
        world.opa.text = "two"
        world.tracker.written("replicasets", [_key("b")])
        await until(lambda: world.texts["b"] == "two")
        policies = {target.name: record.policy for target, record in world.hub.records.items()}
        assert policies == {"a": "p1", "b": "p2"}


async def test_a_changed_target_is_asked_for_alone_and_at_once() -> None:
    world = World("a", "b", "c")
    async with world.loaded():
        world.opa.text = "two"
        world.tracker.written("replicasets", [_key("b")])
        await until(lambda: world.causes["b"] == "object")
        await world.idle()
    assert world.opa.asked == [["b"]]
    assert world.texts == {"a": "one", "b": "two", "c": "one"}


async def test_a_changed_target_asks_for_all_others_a_little_later() -> None:
    """A policy may compare targets with each other, as the resolving style does."""
    world = World("a", "b")
    async with world.loaded():
        world.opa.text = "two"
        world.tracker.written("replicasets", [_key("b")])
        await until(lambda: world.opa.asked)
        await world.idle()
        world.opa.clock += 1.9
        world.tracker.wake()
        await world.idle()
        assert world.opa.asked == [["b"]]
        world.opa.clock += 0.2
        world.tracker.wake()
        await until(lambda: world.texts == {"a": "two", "b": "two"})
    assert world.opa.asked == [["b"], ["a", "b"]]
    assert world.causes == {"a": "object", "b": "object"}


async def test_sweeps_for_the_targets_own_sake_take_a_tenth_of_the_time_at_most() -> None:
    world = World("a")
    world.opa.seconds = 1.0
    async with world.loaded():
        world.opa.seconds = 0.0
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: world.opa.asked)
        world.opa.clock += 9.9
        world.tracker.wake()
        await world.idle()
        assert len(world.opa.asked) == 1
        world.opa.clock += 0.2
        world.tracker.wake()
        await until(lambda: len(world.opa.asked) == 2)


async def test_more_changed_targets_do_not_put_the_sweep_off() -> None:
    """A fleet that changes all the time must be swept all the same."""
    world = World("a")
    async with world.loaded():
        world.tracker.written("replicasets", [_key("a")])
        await world.idle()
        world.opa.clock += 1.5
        world.tracker.written("replicasets", [_key("a")])
        await world.idle()
        world.opa.asked.clear()
        world.opa.clock += 0.6
        world.tracker.wake()
        await world.idle()
        assert world.opa.asked == [["a"]]


async def test_a_change_elsewhere_asks_for_all_targets() -> None:
    world = World("a", "b")
    async with world.loaded():
        world.opa.text = "two"
        world.tracker.written("clusters", [ObjectKey("", "c1")])
        await until(lambda: world.texts == {"a": "two", "b": "two"})
    assert world.causes == {"a": "data", "b": "data"}
    assert world.opa.asked == [["a", "b"]]


async def test_the_first_of_the_changes_that_caused_a_sweep_is_named() -> None:
    world = World("a")
    async with world.loaded():
        world.opa.text = "two"
        world.tracker.written("clusters", [ObjectKey("fleet", "c1"), ObjectKey("fleet", "c2")])
        world.tracker.written("clusters", [ObjectKey("fleet", "c3")])
        await until(lambda: world.texts == {"a": "two"})
    assert world.sources == {"a": Source("clusters", "fleet/c1", 3)}


async def test_a_change_of_the_policy_beside_one_of_data_is_the_cause_that_came_last() -> None:
    world = World("a")
    async with world.loaded():
        world.opa.text = "two"
        world.tracker.written("clusters", [ObjectKey("", "c1")])
        world.tracker.policies_changed("digest-2", 1, READS)
        await until(lambda: world.texts == {"a": "two"})
    assert (world.causes, world.sources) == ({"a": "policy"}, {"a": None})


async def test_a_target_that_caused_others_to_be_asked_for_is_named() -> None:
    world = World("a", "b")
    async with world.loaded():
        world.tracker.written("replicasets", [_key("b")])
        await until(lambda: world.opa.asked)
        world.opa.text = "two"
        world.opa.clock += 2.1
        world.tracker.wake()
        await until(lambda: world.texts == {"a": "two", "b": "two"})
    assert world.causes == {"a": "object", "b": "object"}
    assert world.sources["a"] == Source("replicasets", "ns/b")


async def test_a_decision_says_on_which_data_it_was_asked_for() -> None:
    """Writes that end while OPA decides may be in the answer: the number is a lower bound."""
    world = World("a")
    async with world.loaded():
        assert world.hub.data == 0
        world.opa.answers.clear()
        world.opa.text = "two"
        world.tracker.written("clusters", [ObjectKey("", "c1")])
        await until(lambda: world.opa.asked)
        world.tracker.written("nothing that is read or decided on", [ObjectKey("", "x")])
        world.tracker.written("replicasets", [_key("a")])
        world.opa.answers.set()
        await until(lambda: world.texts == {"a": "two"})
    assert [record.data for record in world.hub.records.values()] == [1]


async def test_delayed_decisions_are_noted_until_they_are_made() -> None:
    world = World("a")
    async with world.loaded():
        world.opa.failures = [Retriable("503") for _ in range(20)]
        with world.hub.subscribe() as reader:
            await reader.read(100, 0.0)
            world.tracker.written("replicasets", [_key("a")])
            await until(lambda: world.hub.notes)
            assert world.hub.notes == ("decisions are delayed: 503",)
            (late,) = world.hub.freshness.sources
            assert (late.source, late.reason) == ("decisions", "503")
            await until(lambda: not world.hub.notes)
            assert not world.hub.freshness.sources


async def test_another_set_of_policies_asks_for_all_targets_in_its_name() -> None:
    world = World("a", "b")
    async with world.loaded():
        world.opa.text = "two"
        world.tracker.policies_changed("digest-2", 1, READS)
        await until(lambda: world.texts == {"a": "two", "b": "two"})
    assert {r.policy for r in world.hub.records.values()} == {"digest-2"}
    assert world.causes == {"a": "policy", "b": "policy"}


async def test_a_deleted_target_is_forgotten() -> None:
    world = World("a", "b")
    async with world.loaded():
        world.replicasets.names.remove("a")
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: set(world.causes) == {"b"})


async def test_a_target_that_changes_while_opa_answers_is_asked_for_again() -> None:
    world = World("a")
    async with world.loaded():
        world.opa.answers.clear()
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: len(world.opa.asked) == 1)
        world.tracker.written("replicasets", [_key("a")])
        world.opa.answers.set()
        await until(lambda: len(world.opa.asked) == 2)


async def test_a_changed_target_does_not_wait_for_a_sweep() -> None:
    names = [f"n{i:03}" for i in range(120)]
    world = World(*names)
    async with world.loaded():
        world.opa.answers.clear()
        world.tracker.written("clusters", [ObjectKey("", "c1")])
        await until(lambda: world.opa.asked)
        world.tracker.written("replicasets", [_key("n119")])
        world.opa.answers.set()
        await until(lambda: len(world.opa.asked) == 4)
    assert [asked[-1] for asked in world.opa.asked] == ["n049", "n119", "n099", "n118"]


async def test_a_failed_question_is_asked_again_until_it_is_answered() -> None:
    world = World("a", "b")
    async with world.loaded():
        world.opa.failures = [Retriable("503", 7.0), Refused("403")]
        world.opa.text = "two"
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: world.texts["a"] == "two")
    assert world.opa.asked == [["a"], ["a"], ["a"]]
    assert world.waits.seconds == [7.0, 0.2]
    assert world.causes == {"a": "object", "b": "load"}


async def test_a_failed_sweep_goes_on_where_it_failed() -> None:
    world = World("a", "b")
    async with world.loaded():
        world.opa.failures = [Retriable("503")]
        world.opa.text = "two"
        world.tracker.policies_changed("p2", 1, READS)
        await until(lambda: world.texts == {"a": "two", "b": "two"})
    assert world.causes == {"a": "policy", "b": "policy"}


async def test_a_change_that_comes_while_a_question_fails_is_not_lost() -> None:
    world = World("a", "b")
    async with world.loaded():
        world.opa.answers.clear()
        world.opa.failures = [Retriable("503")]
        world.opa.text = "two"
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: world.opa.asked)
        world.tracker.written("replicasets", [_key("b")])
        world.opa.answers.set()
        await until(lambda: world.texts == {"a": "two", "b": "two"})


async def test_success_makes_the_next_wait_the_first_one_again() -> None:
    world = World("a")
    async with world.loaded():
        for _ in range(2):
            world.opa.asked.clear()
            world.opa.failures = [Retriable("503")]
            world.tracker.written("replicasets", [_key("a")])
            await until(lambda: len(world.opa.asked) == 2)
            await world.idle()
    assert world.waits.seconds == [0.1, 0.1]


@pytest.mark.parametrize("turns", range(5))
async def test_a_tracker_that_is_cancelled_while_news_arrive_ends(turns: int) -> None:
    """asyncio.wait_for of Python 3.11 swallows such a cancellation."""
    world = World("a")
    world.policies.set()
    tracker = asyncio.create_task(world.tracker.run(world.policies))
    await world.idle()
    world.tracker.written("replicasets", [_key("a")])
    for _ in range(turns):
        await asyncio.sleep(0)
    tracker.cancel()
    _, pending = await asyncio.wait([tracker], timeout=PATIENCE)
    tracker.cancel()
    assert not pending


async def test_a_missing_kind_holds_and_says_which() -> None:
    """It looks empty, and would empty every placement."""
    world = World("a")
    async with world.loaded():
        world.clusters.known = False
        world.tracker.wake()
        assert world.hub.held == ("clusters: the API server does not know this resource",)


async def test_a_kind_that_came_back_is_released_only_when_decided_on() -> None:
    world = World("a")
    async with world.loaded():
        world.clusters.known = False
        world.tracker.wake()
        await until(lambda: world.hub.held)
        world.clusters.known, world.clusters.pending = True, 1  # listed, not yet written to OPA
        world.tracker.wake()
        await world.idle()
        assert world.hub.held
        world.clusters.pending = 0
        world.opa.answers.clear()
        world.tracker.written("clusters", [ObjectKey("", "c1")])
        await until(lambda: world.opa.asked)
        await world.idle()
        assert world.hub.held, "written, but nothing was decided on it"
        world.opa.answers.set()
        await until(lambda: not world.hub.held)


async def test_a_kind_that_is_missing_from_the_start_keeps_its_hold_after_the_load() -> None:
    world = World("a")
    world.clusters.known = False
    world.policies.set()
    async with world.running():
        await until(lambda: world.hub.records)
        await world.idle()
        assert world.hub.held == ("clusters: the API server does not know this resource",)


@pytest.mark.parametrize("kind", ["replicasets", "clusters"])
async def test_an_unchanged_decision_is_no_news(kind: str) -> None:
    world = World("a")
    async with world.loaded():
        seq = world.hub.seq
        world.tracker.written(kind, [_key("a")])
        await until(lambda: world.opa.asked)
        await world.idle()
        assert world.hub.seq == seq
        assert world.hub.records[_target("a")].decision == Decision({"place": "one"})


async def test_without_any_policy_nobody_is_asked() -> None:
    """Ten thousand questions after each change, to be told nothing each time."""
    world = World("a", "b")
    world.tracker.policies_changed("none", 0, READS)
    world.policies.set()
    async with world.running():
        await until(lambda: not world.hub.held)
        world.tracker.written("replicasets", [_key("a")])
        world.tracker.written("clusters", [_key("c1")])
        await world.idle()
        assert world.opa.asked == []
        world.tracker.policies_changed("p1", 1, READS)
        await until(lambda: len(world.hub.records) == 2)


async def test_policies_that_were_there_at_opas_start_are_asked_for() -> None:
    world = World("a", static=True)
    world.tracker.policies_changed("none", 0, READS)
    async with world.loaded():
        assert len(world.hub.records) == 1


DAEMONSETS = GroupVersionResource("apps", "v1", "daemonsets")


def _arriving(name: str, *names: str) -> Collection:
    found = Collection(name, *names)
    found.loaded = False
    return found


async def test_collection_that_is_expected_holds_until_it_is_in_and_decided_on() -> None:
    world = World("a")
    async with world.loaded():
        added = _arriving("nodes")
        world.tracker.expect(added, None)
        assert world.hub.held == ("nodes: is being loaded",)
        world.tracker.written("clusters", [_key("c1")])
        await world.idle()
        assert world.hub.held
        world.opa.text = "two"
        added.loaded, added.pending = True, 1
        world.tracker.written("nodes", [])
        await until(lambda: world.texts == {"a": "two"})
        await world.idle()
        assert world.hub.held  # some of it is not in yet
        added.pending = 0
        world.opa.answers.clear()
        world.opa.asked.clear()
        world.tracker.written("nodes", [_key("n")])
        await until(lambda: world.opa.asked)
        assert world.hub.held
        world.opa.answers.set()
        await until(lambda: not world.hub.held)


async def test_target_that_is_exchanged_is_swept_before_its_hold_ends() -> None:
    world = World("a", "b", "c")
    async with world.loaded():
        world.replicasets = _arriving("replicasets", "a", "b")
        world.opa.replicasets = world.replicasets
        world.tracker.expect(world.replicasets, REPLICASETS)
        assert set(world.texts) == {"a", "b", "c"}
        world.opa.text = "two"
        world.replicasets.loaded = True
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: not world.hub.held)
        assert world.texts == {"a": "two", "b": "two"}


async def test_target_that_is_forgotten_takes_its_decisions_and_holds_along() -> None:
    world = World("a")
    async with world.loaded():
        world.clusters.known = False
        world.tracker.wake()
        world.tracker.expect(_arriving("replicasets"), REPLICASETS)
        assert any("clusters" in reason for reason in world.hub.held)
        world.tracker.written("replicasets", [_key("a")])
        for name in ("replicasets", "clusters", "never heard of"):
            world.tracker.forget(name)
        assert not world.hub.held
        assert world.texts == {}
        world.tracker.written("replicasets", [_key("a")])
        await world.idle()
        assert world.texts == {}


async def test_target_that_is_forgotten_while_opa_answers_stays_forgotten() -> None:
    world = World("a")
    async with world.loaded():
        world.opa.answers.clear()
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: world.opa.asked)
        world.tracker.forget("replicasets")
        world.opa.answers.set()
        await world.idle()
        assert world.texts == {}


async def test_target_that_is_forgotten_while_opa_fails_is_not_asked_for_again() -> None:
    world = World("a")
    async with world.loaded():
        world.opa.answers.clear()
        world.opa.failures = [Retriable("away")]
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: world.opa.asked)
        world.tracker.forget("replicasets")
        world.opa.answers.set()
        await world.idle()
        assert world.opa.asked == [["a"]]
        assert world.texts == {}
        world.tracker.retarget("clusters", DAEMONSETS)
        await until(lambda: len(world.opa.asked) == 2)


async def test_collection_that_becomes_a_target_is_decided_on() -> None:
    world = World("a")
    async with world.loaded():
        world.opa.replicasets = Collection("both", "a", "c1")
        world.tracker.retarget("clusters", DAEMONSETS)
        await until(lambda: set(world.texts) == {"a", "c1"})
        world.opa.asked.clear()
        world.tracker.retarget("clusters", DAEMONSETS)
        await world.idle()
        assert world.opa.asked == []


async def test_target_of_another_name_keeps_the_decisions_of_its_kind() -> None:
    world = World("a")
    async with world.loaded():
        sets = _arriving("sets", "a")
        with world.hub.subscribe() as reader:
            world.tracker.expect(sets, REPLICASETS)
            world.tracker.forget("replicasets")
            assert world.texts == {"a": "one"}
            sets.loaded = True
            world.tracker.written("sets", [_key("a")])
            await until(lambda: not world.hub.held)
            told = await reader.read(10, 1.0)
        assert "DeletedRecord" not in {type(record).__name__ for record in told}


DEEP = "it is nested too deeply to be read"


def turn(found: Collection, name: str, *, unreadable: bool, namespace: str = "ns") -> None:
    where = ObjectKey(namespace, name)
    if unreadable:
        found.unreadable[where] = f"uid-{name}", DEEP
    else:
        del found.unreadable[where]
    found.members.note(where, None)
    found.turns.add(where)


async def test_object_that_cannot_be_read_has_no_decision_and_says_why() -> None:
    """What OPA holds of it is of the past; the last decision stands, and nobody acts on it."""
    world = World("a", "b")
    async with world.loaded():
        turn(world.replicasets, "a", unreadable=True)
        world.tracker.wake()
        await until(lambda: any(record.failure for record in world.hub.records.values()))
        ((target, failed),) = ((t, r) for t, r in world.hub.records.items() if r.failure)
        assert (target.name, failed.failure, failed.uid) == ("a", DEEP, "uid-a")
        assert failed.decision is not None  # what was said when it could be read
        world.opa.text = "two"
        world.tracker.policies_changed("p2", 1, READS)
        await until(lambda: world.texts["b"] == "two")
        await world.idle()
        assert world.texts["a"] == "one"
        assert world.opa.asked == [["b"]]
        assert not world.hub.freshness.sources  # so the remediator tells of it as of what failed
        turn(world.replicasets, "a", unreadable=False)
        world.tracker.wake()
        await until(lambda: world.texts == {"a": "two", "b": "two"})
        assert not any(record.failure for record in world.hub.records.values())
        assert not world.hub.freshness.sources


async def test_object_that_shared_a_decision_shares_none_once_it_cannot_be_read() -> None:
    world = World("a", "b", "c")
    world.replicasets.knows(a="x", b="x", c="x")
    async with world.loaded():
        world.opa.answers.clear()
        world.opa.text = "two"
        world.tracker.policies_changed("p2", 1, READS)
        await until(lambda: world.opa.asked)
        for name in ("a", "b"):
            turn(world.replicasets, name, unreadable=True)
        world.tracker.wake()
        world.opa.answers.set()
        await until(lambda: world.texts["c"] == "two")
        await world.idle()
        failures = {target.name: r.failure for target, r in world.hub.records.items()}
        assert failures == {"a": DEEP, "b": DEEP, "c": None}
        assert {world.texts["a"], world.texts["b"]} == {"one"}


async def test_object_that_could_never_be_read_is_told_of_until_it_is_gone() -> None:
    world = World("b")
    turn(world.replicasets, "a", unreadable=True)
    async with world.loaded():
        failures = {target.name: r.failure for target, r in world.hub.records.items()}
        assert failures == {"a": DEEP, "b": None}
        turn(world.replicasets, "a", unreadable=False)
        world.tracker.wake()
        await until(lambda: world.causes.keys() == {"b"})


async def test_what_decisions_look_at_and_cannot_be_read_is_not_current() -> None:
    world = World("a")
    async with world.loaded():
        for name in ("c1", "c2"):
            turn(world.clusters, name, unreadable=True, namespace="")
        world.tracker.wake()
        (late,) = world.hub.freshness.sources
        assert (late.source, late.reason) == ("clusters that cannot be read", f"c1: {DEEP}; 1 more")
        assert late.details == tuple(
            Unreadable(Target("g", "v1", "clusters", name), f"uid-{name}", DEEP)
            for name in ("c1", "c2")
        )
        turn(world.clusters, "c1", unreadable=False, namespace="")
        world.tracker.wake()
        assert [one.reason for one in world.hub.freshness.sources] == [f"c2: {DEEP}"]
        turn(world.clusters, "c2", unreadable=False, namespace="")
        world.tracker.wake()
        assert not world.hub.freshness.sources


async def test_object_that_cannot_be_read_is_told_as_its_collection_is_decided_on_or_not() -> None:
    world = World("b")
    turn(world.replicasets, "a", unreadable=True)
    async with world.loaded():
        assert not world.hub.freshness.sources
        world.tracker.retarget("replicasets", None)
        (late,) = world.hub.freshness.sources
        assert [one.object.name for one in late.details] == ["a"]
        world.tracker.retarget("replicasets", REPLICASETS)
        assert not world.hub.freshness.sources


async def test_collection_in_place_of_another_says_nothing_of_what_that_one_had() -> None:
    world = World("a")
    async with world.loaded():
        turn(world.clusters, "c1", unreadable=True, namespace="")
        world.tracker.wake()
        assert world.hub.freshness.sources
        world.tracker.expect(Collection("clusters"), None)
        assert not world.hub.freshness.sources


async def test_collection_that_goes_takes_what_could_not_be_read_along() -> None:
    world = World("a")
    async with world.loaded():
        turn(world.clusters, "c1", unreadable=True, namespace="")
        world.tracker.wake()
        world.tracker.forget("clusters")
        assert not world.hub.freshness.sources
