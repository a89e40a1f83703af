from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.decisions.budget_watcher import LONGEST, BudgetWatcher
from kube_sync.decisions.evaluator import Evaluator, Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import Budget, DecisionRecord, Record, StatusRecord
from kube_sync.decisions.tracker import Tracker
from kube_sync.errors import Retriable, Undecided
from kube_sync.guard import stricter
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.analyzer import analyze
from kube_sync.opa.analysis.result import Ask, Document, Reads
from tests.unit.async_tools import Waits, running, until
from tests.unit.decisions.test_tracker import REPLICASETS, Collection, Opa, _key

NOTHING = analyze([], "p", {})
SLOW, FAST = 6.0, 0.001
DECISIONS, LIMITS = "kube_sync/batch/decisions", "kube_sync/batch/budget"


def reads(**used: bool) -> Reads:
    """Return what limits read: of the decision itself nothing is known."""
    looked_at = {"replicasets": False, "clusters": False} | used
    resources = {name: Document(used=used) for name, used in looked_at.items()}
    return replace(NOTHING, resources=resources)


def checked(document: Any) -> None:
    if document == "bad":
        msg = "bad"
        raise Undecided(msg)


class World(Opa):
    """An OPA that decides and limits, and what it was asked for, in order."""

    def __init__(self, *names: str, policies: int = 1, static: bool = False) -> None:
        self.replicasets = Collection("replicasets", *names)
        self.clusters = Collection("clusters", "c1")
        super().__init__(self.replicasets)
        self.document: Any = None  # what policies say
        self.answer: bytes | None = b""  # that is not JSON of a document
        self.broken: Exception | None = None
        self.took = FAST
        self.questions: list[str] = []
        self.hub = DecisionHub("me", stricter=self.stricter)
        self.beside = Collection("data-configmaps")
        beside, clock = [self.beside], lambda: self.clock
        self.budget_watcher = BudgetWatcher(
            self, "e", self.hub, checked, other_data=beside, clock=clock
        )
        self.waits = Waits()
        self.policies = asyncio.Event()
        self.tracker = Tracker(
            Evaluator(self, "e", clock=lambda: self.clock),
            self.hub,
            {"replicasets": REPLICASETS},
            [self.replicasets, self.clusters],
            static=static,
            budget_watcher=self.budget_watcher,
            backoff=self.waits.backoff(0.1, 5.0),
            clock=lambda: self.clock,
        )
        self.policies_changed(policies)

    @staticmethod
    def stricter(one: Any, other: Any) -> Any:
        return stricter(one, other)

    def policies_changed(self, policies: int = 1, **used: bool) -> None:
        both = replace(reads(clusters=True), beside=reads(**{"clusters": True} | used))
        self.tracker.policies_changed("p1", policies, both)

    async def query(self, path: str, body: bytes) -> bytes | None:
        self.questions.append(path)
        if path == DECISIONS:
            return await super().query(path, body)
        assert (path, json.loads(body)) == (LIMITS, {"input": {"epoch": "e"}})
        found = self.document
        self.clock += self.took
        await asyncio.sleep(0)
        if self.broken is not None:
            raise self.broken
        if self.answer != b"":
            return self.answer
        return json.dumps({} if found is None else {"document": found}).encode()

    @property
    def asked_limits(self) -> int:
        return self.questions.count(LIMITS)

    @asynccontextmanager
    async def loaded(self) -> AsyncGenerator[None]:
        self.policies.set()
        async with running(self.tracker.run(self.policies)):
            await until(lambda: not self.hub.held)
            await self.idle()
            self.questions.clear()
            yield

    async def idle(self) -> None:
        for _ in range(40):
            await asyncio.sleep(0)

    async def told(self) -> list[Record]:
        with self.hub.subscribe() as reader:
            return await reader.read(100, 0.0)


async def test_nothing_is_released_before_the_limits_were_asked_for() -> None:
    world = World("a")
    world.document = {"moves_burst": 1}
    async with world.loaded():
        assert world.hub.budget == Budget({"moves_burst": 1})
        begin, *_, release, _ = await world.told()
    assert isinstance(release, StatusRecord)
    assert (release.held, release.budget) == ((), Budget({"moves_burst": 1}))
    assert isinstance(begin, StatusRecord)


async def test_without_targets_they_are_asked_for_all_the_same() -> None:
    world = World()
    world.document = {"moves_burst": 1}
    async with world.loaded():
        assert world.hub.budget == Budget({"moves_burst": 1})


async def test_undefined_limits_nothing() -> None:
    world = World("a")
    async with world.loaded():
        assert world.hub.budget is None


async def test_without_policies_nobody_is_asked() -> None:
    world = World("a", policies=0)
    world.hub.set_limits({"moves_burst": 1})  # by an earlier epoch
    world.document = {"moves_burst": 1}
    async with world.loaded():
        assert world.hub.budget is None
        world.tracker.written("clusters", [ObjectKey("", "c1")])
        await world.idle()
        assert world.questions == []


async def test_policies_that_nobody_tells_of_are_asked() -> None:
    world = World(policies=0, static=True)
    world.document = {"moves_burst": 1}
    async with world.loaded():
        assert world.hub.budget == Budget({"moves_burst": 1})


async def test_other_policies_have_other_limits_before_they_decide() -> None:
    world = World("a")
    async with world.loaded():
        world.text, world.document = "two", {"moves_burst": 1}
        budgets: list[Budget | None] = []
        world.hub.listeners.append(lambda _: budgets.append(world.hub.budget))
        world.policies_changed()
        await until(lambda: budgets)
        assert budgets == [Budget({"moves_burst": 1})]
        world.document = None
        world.policies_changed()
        await until(lambda: world.hub.budget is None)


async def test_policies_that_come_while_opa_decides_limit_what_they_decided() -> None:
    """OPA may have answered by the new ones, although nobody was told yet that they are in."""
    world = World("a")
    async with world.loaded():
        world.tracker.policies_changing()
        world.text, world.document = "two", {"moves_burst": 1}
        budgets: list[Budget | None] = []
        world.hub.listeners.append(lambda _: budgets.append(world.hub.budget))
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: budgets)
        assert budgets == [Budget({"moves_burst": 1})]
        assert world.questions == [DECISIONS, LIMITS]


async def test_data_that_comes_while_opa_decides_limits_what_it_decided() -> None:
    world = World("a")
    async with world.loaded():
        world.text, world.document = "two", {"moves_burst": 1}
        world.clusters.pending = 1
        budgets: list[Budget | None] = []
        world.hub.listeners.append(lambda _: budgets.append(world.hub.budget))
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: budgets)
    assert budgets == [Budget({"moves_burst": 1})]


async def test_what_is_written_beside_while_opa_decides_limits_what_it_decided() -> None:
    world = World("a")
    async with world.loaded():
        world.text, world.document = "two", {"moves_burst": 1}
        world.beside.pending = 1
        budgets: list[Budget | None] = []
        world.hub.listeners.append(lambda _: budgets.append(world.hub.budget))
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: budgets)
        assert budgets == [Budget({"moves_burst": 1})]
        assert world.questions == [DECISIONS, LIMITS]


async def test_a_collection_that_is_being_withdrawn_limits_what_is_decided_meanwhile() -> None:
    world = World("a")
    async with world.loaded():
        world.tracker.forget("clusters")
        await world.idle()
        world.questions.clear()
        world.text, world.document = "two", {"moves_burst": 1}
        budgets: list[Budget | None] = []
        world.hub.listeners.append(lambda _: budgets.append(world.hub.budget))
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: budgets)
        assert budgets == [Budget({"moves_burst": 1})]
        world.tracker.written("clusters", ())
        await world.idle()
        world.questions.clear()
        world.tracker.written("replicasets", [_key("a")])
        await world.idle()
        assert world.questions == [DECISIONS]


async def test_the_end_of_a_limit_is_told_after_the_decisions_of_the_same_data() -> None:
    """As when maintenance ends: else what they take back would go without it."""
    world = World("a", "b", "c")
    world.document = {"moves_burst": 1}
    async with world.loaded():
        world.text, world.document = "two", None
        budgets: list[Budget | None] = []
        world.hub.listeners.append(lambda _: budgets.append(world.hub.budget))
        with world.hub.subscribe() as reader:
            await reader.read(100, 0.0)
            world.tracker.written("clusters", [ObjectKey("", "c1")])
            await until(lambda: world.hub.budget is None)
            *decided, status, _ = await reader.read(100, 0.0)
    assert budgets == [Budget({"moves_burst": 1})] * 3
    assert [type(record) for record in decided] == [DecisionRecord] * 3
    assert status == StatusRecord((), "me")


async def test_the_end_of_a_limit_is_told_after_the_decisions_of_the_same_policies() -> None:
    world = World("a")
    world.document = {"moves_burst": 1}
    async with world.loaded():
        world.text, world.document = "two", None
        world.tracker.policies_changing()
        world.tracker.written("replicasets", [_key("a")])
        await world.idle()
        world.clock += 99
        assert world.budget_watcher.seconds is None, "only the news of the policies ends it"
        world.tracker.wake()
        await world.idle()
        assert world.hub.budget == Budget({"moves_burst": 1})
        world.policies_changed()
        await until(lambda: world.hub.budget is None)


async def test_the_end_of_a_limit_waits_for_what_opa_may_hold_already() -> None:
    """Nobody knows yet that there is to be decided on it."""
    world = World("a")
    world.document = {"moves_burst": 1}
    async with world.loaded():
        world.document = None
        world.clusters.pending = 1
        world.tracker.written("replicasets", [_key("a")])
        await world.idle()
        assert world.asked_limits
        assert world.hub.budget == Budget({"moves_burst": 1})
        world.text, world.clusters.pending = "two", 0
        budgets: list[Budget | None] = []
        world.hub.listeners.append(lambda _: budgets.append(world.hub.budget))
        world.tracker.written("clusters", [ObjectKey("", "c1")])
        await until(lambda: world.hub.budget is None)
    assert budgets == [Budget({"moves_burst": 1})]


async def test_writes_without_end_keep_no_limit_for_ever() -> None:
    world = World("a")
    world.document = {"moves_burst": 1}
    async with world.loaded():
        world.document = None
        world.clusters.pending = 1
        world.tracker.written("replicasets", [_key("a")])
        await world.idle()
        assert world.budget_watcher.seconds == pytest.approx(10.0, abs=0.1)
        world.clock += 9.9
        world.tracker.wake()
        await world.idle()
        assert world.hub.budget == Budget({"moves_burst": 1})
        world.clock += 0.2
        world.tracker.wake()
        await until(lambda: world.hub.budget is None)
        assert world.budget_watcher.seconds is None


async def test_what_is_queued_while_opa_is_asked_for_limits_is_decided_before_they_end() -> None:
    world = World("a")
    world.document = {"moves_burst": 1}
    async with world.loaded():
        world.document = None
        keep = world.budget_watcher.refresh

        async def kept() -> None:
            await keep()
            world.budget_watcher.refresh = keep  # type: ignore[method-assign]
            world.text = "two"
            world.tracker.written("replicasets", [_key("a")])

        budgets: list[Budget | None] = []
        world.hub.listeners.append(lambda _: budgets.append(world.hub.budget))
        world.budget_watcher.refresh = kept  # type: ignore[method-assign]
        world.budget_watcher.written("clusters")
        world.tracker.wake()
        await until(lambda: world.hub.budget is None)
    assert budgets == [Budget({"moves_burst": 1})]


async def test_data_that_limits_do_not_look_at_asks_for_none() -> None:
    world = World("a")
    async with world.loaded():
        world.replicasets.pending = 1
        world.tracker.written("replicasets", [_key("a")])
        await world.idle()
        assert world.questions == [DECISIONS]
        world.tracker.written("clusters", [ObjectKey("", "c1")])
        await world.idle()
        assert world.asked_limits == 1


async def test_targets_that_limits_look_at_ask_for_them_before_they_are_told() -> None:
    world = World("a")
    async with world.loaded():
        world.policies_changed(replicasets=True)
        await world.idle()
        world.questions.clear()
        world.text, world.document = "two", {"moves_burst": 1}
        budgets: list[Budget | None] = []
        world.hub.listeners.append(lambda _: budgets.append(world.hub.budget))
        world.tracker.written("replicasets", [_key("a")])
        await until(lambda: budgets)
    assert budgets == [Budget({"moves_burst": 1})]


async def test_limits_that_take_long_are_asked_for_a_tenth_of_the_time_at_most() -> None:
    world = World("a")
    world.took = 1.0
    async with world.loaded():
        world.tracker.written("clusters", [ObjectKey("", "c1")])
        await world.idle()
        assert world.questions == [DECISIONS]  # not delayed
        world.document = {"moves_burst": 1}
        world.clock += 9.9
        world.tracker.wake()
        await world.idle()
        assert world.asked_limits == 0
        world.clock += 0.2
        world.tracker.wake()
        await until(lambda: world.hub.budget == Budget({"moves_burst": 1}))


async def test_waiting_for_the_limits_ends_in_no_sweep() -> None:
    """Although one is to come: the decisions change by themselves."""
    world = World("a")
    async with world.loaded():
        world.took = 0.06
        impure = {"time.now_ns": (Ask("p", "r", 1, "called"),)}
        decided = replace(reads(clusters=True), impure=impure)
        both = replace(decided, beside=reads(clusters=True))
        world.tracker.policies_changed("p1", 1, both)
        await world.idle()
        world.questions.clear()
        world.took = FAST
        world.budget_watcher.written("clusters")
        world.clock += 0.599
        world.tracker.wake()
        await world.idle()
        await until(lambda: world.asked_limits or _moves_on(world))
        await world.idle()
    assert world.questions == [LIMITS]


def _moves_on(world: World) -> bool:
    """Let time pass as the loop's own does."""
    world.clock += 0.001
    return False


async def test_limits_that_change_by_themselves_are_asked_for_now_and_then() -> None:
    world = World("a")
    async with world.loaded():
        ask = Ask("p", "r", 1, "called")
        impure = replace(reads(clusters=True), impure={"time.now_ns": (ask,)})
        both = replace(reads(clusters=True), beside=impure)
        world.tracker.policies_changed("p1", 1, both)
        await world.idle()
        assert world.budget_watcher.seconds == pytest.approx(30.0)
        world.questions.clear()
        world.clock += 30.1
        world.tracker.wake()
        await until(lambda: world.asked_limits)
        assert DECISIONS not in world.questions


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'{"document":"bad"}', "bad"),
        (b'{"document":1e999}', "cannot be read"),
        (b'{"document":' + b"[" * 5000 + b"]" * 5000 + b"}", "cannot be read"),
        (json.dumps({"document": {"not_before": "x" * LONGEST}}).encode(), "longer than"),
    ],
    ids=["shape", "number", "depth", "size"],
)
async def test_what_cannot_be_used_changes_nothing_and_delays_nothing(
    answer: bytes, said: str
) -> None:
    world = World("a")
    world.document = {"moves_burst": 1}
    async with world.loaded():
        world.answer, world.text = answer, "two"
        world.policies_changed()
        await until(lambda: world.hub.budget and world.hub.budget.failure)
        await world.idle()
        assert world.hub.budget is not None
        assert (world.hub.budget.document, world.hub.budget.last_good) == ({"moves_burst": 1}, True)
        assert said in str(world.hub.budget.failure)
        assert world.questions == [LIMITS, DECISIONS]
        (record,) = world.hub.records.values()
        assert record.decision is not None
        assert record.decision.annotations == {"place": "two"}


async def test_an_evaluation_error_without_good_limits_before_says_so() -> None:
    world = World("a")
    world.broken = Undecided("a conflict")
    async with world.loaded():
        assert world.hub.budget == Budget(None, "a conflict", last_good=False)
        world.broken = None
        world.tracker.written("clusters", [ObjectKey("", "c1")])
        await until(lambda: world.hub.budget is None)
        assert world.hub.notes == ()


async def test_opa_that_does_not_answer_delays_what_is_decided_meanwhile() -> None:
    """It is told after the limits are known, not before."""
    world = World("a")
    async with world.loaded():
        world.document, world.text = {"moves_burst": 1}, "two"
        world.took = 0.1
        world.answer = None  # what it loaded is not whole
        budgets: list[Budget | None] = []
        world.hub.listeners.append(lambda _: budgets.append(world.hub.budget))
        world.policies_changed()
        await until(lambda: world.waits.seconds)
        assert not budgets
        world.broken, world.answer = Retriable("503"), b""
        await until(lambda: len(world.waits.seconds) > 2)
        assert not budgets
        world.broken = None
        await until(lambda: budgets)
    assert budgets == [Budget({"moves_burst": 1})]


async def test_limits_that_are_too_slow_delay_no_decision() -> None:
    world = World("a")
    world.document = {"moves_burst": 1}
    async with world.loaded():
        world.broken, world.took, world.text = Retriable("no answer in time"), SLOW, "two"
        world.tracker.policies_changing()
        world.policies_changed()
        await until(lambda: world.hub.budget and world.hub.budget.failure)
        world.tracker.policies_changing()
        world.tracker.written("clusters", [ObjectKey("", "c1")])
        await world.idle()
        assert world.asked_limits == 1
        assert world.waits.seconds == []
        (record,) = world.hub.records.values()
        assert record.decision is not None
        assert record.decision.annotations == {"place": "two"}
        world.broken, world.took = None, FAST
        world.clock += 60.1
        world.tracker.wake()
        await until(lambda: world.hub.budget == Budget({"moves_burst": 1}))


class Racing(World):
    """Decisions and limits of one version, which changes while OPA is asked for either.

    Each version limits more than the one before.
    """

    _stricter = max

    @classmethod
    def stricter(cls, one: Any, other: Any) -> Any:
        found = [document["version"] for document in (one, other) if document is not None]
        return {"version": cls._stricter(found)}

    def __init__(self) -> None:
        super().__init__("a", "b")
        self.version = 0
        self.versions: list[
            tuple[int, int]
        ] = []  # versions of each decision, and of the limits then
        publish = self.hub.publish_shared

        def noted(gvr: Any, members: Any, outcome: Outcome, *arguments: Any, **also: Any) -> None:
            assert outcome.decision is not None
            document = self.hub.budget.document if self.hub.budget else {"version": -1}
            decided = int(outcome.decision.annotations["place"])
            self.versions.append((decided, document["version"]))
            publish(gvr, members, outcome, *arguments, **also)

        self.hub.publish_shared = noted  # type: ignore[method-assign]
        self.settled: list[tuple[int, int]] = []  # the version in force, the oldest decision
        settle = self.hub.settle

        def settling() -> None:
            settle()
            places = [
                int(record.decision.annotations["place"])
                for record in self.hub.records.values()
                if record.decision is not None
            ]
            assert self.hub.budget is not None
            self.settled.append((self.hub.budget.document["version"], min(places)))

        self.hub.settle = settling  # type: ignore[method-assign]

    async def query(self, path: str, body: bytes) -> bytes | None:
        for _ in range(3):
            await asyncio.sleep(0)
        self.document, self.text = {"version": self.version}, str(self.version)
        found = await super().query(path, body)
        for _ in range(3):
            await asyncio.sleep(0)
        return found

    async def do(self, what: str) -> None:
        """Take one step of a story."""
        match what:
            case "object":
                self.tracker.written("replicasets", [_key("a")])
            case "data":  # a write is under way, and may be there
                self.clusters.pending = 1
                self.version += 1
            case "configmap":
                self.beside.pending = 1
                self.version += 1
            case "policies":
                self.tracker.policies_changing()
                self.changing = True
                self.version += 1
            case "end":  # it is known to be there
                if self.clusters.pending:
                    self.clusters.pending = 0
                    self.tracker.written("clusters", [ObjectKey("", "c1")])
                if self.beside.pending:
                    self.beside.pending = 0
                    self.tracker.written("data-configmaps", [_key("data")])
                if self.changing:
                    self.changing = False
                    self.policies_changed()
            case "idle":
                await self.idle()
            case _:
                await asyncio.sleep(0)

    changing = False


_steps = st.sampled_from(
    ["object", "data", "configmap", "policies", "end", "idle", "idle", "", "", ""]
)


@given(st.lists(_steps, min_size=5, max_size=60))
async def test_no_decision_is_told_before_the_limits_of_its_time(steps: list[str]) -> None:
    world = Racing()
    async with world.loaded():
        for step in steps:
            await world.do(step)
        await world.do("end")
        await world.idle()
    assert world.versions, "decisions were published"
    assert [pair for pair in world.versions if pair[1] < pair[0]] == []


class Easing(Racing):
    """As that, where each version limits less than the one before."""

    _stricter = min


@given(st.lists(_steps, min_size=5, max_size=60))
async def test_no_limit_ends_before_the_decisions_of_that_time_are_told(steps: list[str]) -> None:
    world = Easing()
    async with world.loaded():
        for step in steps:
            await world.do(step)
        await world.do("end")
        await until(lambda: world.hub.is_settled)
        await world.idle()
        assert world.hub.budget == Budget({"version": world.version})
    assert [pair for pair in world.settled if pair[0] > pair[1]] == []
