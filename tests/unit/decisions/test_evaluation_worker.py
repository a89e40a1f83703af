from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from kube_sync.decisions.basis import BasisPublisher
from kube_sync.decisions.collections import TrackedCollections
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluation_queue import OBJECT_CHANGED, Cause, EvaluationQueue
from kube_sync.decisions.evaluation_worker import EvaluationWorker
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.sharing import Sharing
from kube_sync.errors import Retriable
from kube_sync.objects import ObjectKey
from kube_sync.observability import tracing
from tests.fakes.otlp import recorded
from tests.unit.async_tools import Waits
from tests.unit.decisions.test_tracker import READS, REPLICASETS, Collection, turn


class World:
    """A worker, and itself as the evaluator."""

    batch_size = 2

    def __init__(self, *names: str) -> None:
        self.hub = DecisionHub("me")
        self.sets = Collection("replicasets", *names)
        self.collections = TrackedCollections(self.hub, {"replicasets": REPLICASETS}, [self.sets])
        self.queue = EvaluationQueue()
        self.sharing = Sharing(self.hub, BasisPublisher(self.hub.basis, tuple, static=False))
        self.sharing.policies_changed("p1", READS)
        self.waits = Waits()
        self.asked: list[list[str]] = []
        self.known: list[int] = []  # how many decisions there were at each question
        self.decision = Decision({})
        self.meanwhile: Callable[[], None] = lambda: None
        self.worker = EvaluationWorker(
            self,
            self.hub,
            self.collections,
            self.queue,
            self.sharing,
            budget_watcher=None,
            backoff=self.waits.backoff(0.1, 5.0),
        )

    async def evaluate(
        self, _collection: str, keys: Iterable[ObjectKey]
    ) -> dict[ObjectKey, Outcome]:
        asked = [*keys]
        self.asked.append([key.name for key in asked])
        self.known.append(self.hub.count)
        await asyncio.sleep(0)
        self.meanwhile()
        return {key: Outcome(f"uid-{key.name}", self.decision) for key in asked}

    def change(self, *names: str) -> None:
        self.queue.add("replicasets", [ObjectKey("ns", name) for name in names], OBJECT_CHANGED)

    def sweep(self) -> None:
        cause = Cause("policy")
        self.queue.replace_sweep(self.sharing.group_by_class(self.sets, [*self.sets.keys()], cause))

    def fail_once(self) -> None:
        self.meanwhile = lambda: None
        msg = "away"
        raise Retriable(msg)

    @property
    def decided(self) -> dict[str, str]:
        return {target.name: record.cause for target, record in self.hub.records.items()}


async def test_objects_that_changed_are_asked_about_once_and_before_a_sweep() -> None:
    world = World("a", "b", "c")
    world.sweep()
    world.change("c")
    while world.queue.is_due:
        await world.worker.process_next()
    assert world.asked == [["c"], ["a", "b"]]
    assert world.decided == {"a": "policy", "b": "policy", "c": "object"}
    assert world.queue.is_empty


@pytest.mark.parametrize("wanted", ["changed", "sweep"])
async def test_question_that_fails_is_asked_again_until_it_is_answered(wanted: str) -> None:
    world = World("a")
    world.change("a") if wanted == "changed" else world.sweep()
    world.meanwhile = world.fail_once
    await world.worker.process_next()
    assert world.asked == [["a"], ["a"]]
    assert world.waits.seconds == [0.1]
    assert not world.hub.notes
    assert not world.hub.freshness.sources


@pytest.mark.parametrize("wanted", ["changed", "sweep"])
@pytest.mark.parametrize("fails", [False, True])
async def test_answer_about_a_withdrawn_collection_is_told_to_nobody(
    wanted: str, *, fails: bool
) -> None:
    world = World("a")
    world.change("a") if wanted == "changed" else world.sweep()

    def withdraw() -> None:
        world.collections.retarget("replicasets", None)
        if fails:
            world.fail_once()

    world.meanwhile = withdraw
    await world.worker.process_next()
    assert world.decided == {}
    assert world.asked == [["a"]]
    assert world.queue.is_empty


def _world_of_three_classes() -> World:
    world = World(*"abcdef")
    world.sets.knows(a="one", b="one", c="two", d="two", e="three", f="three")
    world.sweep()
    return world


async def test_classes_are_published_while_the_next_ones_are_decided_on() -> None:
    world = _world_of_three_classes()
    await world.worker.process_next()
    await world.worker.process_next()
    assert world.asked == [["a", "c"], ["e"]]
    assert world.known == [0, 2]
    assert not world.queue.is_due
    assert world.decided.keys() == set("abcde")
    assert await world.worker.finish()
    assert not await world.worker.finish()
    told = sorted(world.hub.records.values(), key=lambda record: record.seq)
    assert [record.object.name for record in told] == [*"acbdef"]


async def test_question_that_fails_keeps_no_decision_of_the_last_one_back() -> None:
    world = _world_of_three_classes()
    await world.worker.process_next()
    world.meanwhile = world.fail_once
    await world.worker.process_next()
    assert world.asked == [["a", "c"], ["e"], ["e"]]
    assert world.known == [0, 2, 4]
    await world.worker.finish()
    assert world.decided.keys() == set("abcdef")


async def test_object_that_changes_is_decided_on_after_its_class_was_published() -> None:
    """Or what was decided of the class before would be told last."""
    world = _world_of_three_classes()
    await world.worker.process_next()
    world.sharing.invalidate()
    world.decision = Decision({"place": "new"})
    world.change("b")
    await world.worker.process_next()
    await world.worker.finish()
    found = {target.name: record.decision for target, record in world.hub.records.items()}
    assert found["b"] == Decision({"place": "new"})
    assert found["d"] == Decision({})


async def test_object_that_cannot_be_read_is_a_failure_that_opa_is_not_asked_about() -> None:
    world = World("a", "b")
    turn(world.sets, "a", unreadable=True)
    world.change("a", "b")
    await world.worker.process_next()
    assert world.asked == [["b"]]
    failed = [target.name for target, record in world.hub.records.items() if record.failure]
    assert failed == ["a"]


async def test_one_span_of_a_query_has_the_writes_that_caused_it() -> None:
    """A span for each object would be as many as there are objects."""
    world = World("a", "b")
    with recorded("replicate") as collected:
        for name in "ab":
            with tracing.span(f"write {name}"):
                cause = Cause("object", trace=tracing.context())
            world.queue.add("replicasets", [ObjectKey("ns", name)], cause)
        await world.worker.process_next()
    [a], [b], [evaluate] = map(collected.named, ("write a", "write b", "evaluate"))
    assert (evaluate.trace, evaluate.parent) == (a.trace, a.span)
    assert evaluate.links == ((b.trace, b.span),)
    assert evaluate.attributes["kube_sync.objects"] == ["replicasets ns/a", "replicasets ns/b"]
    # Each decision is in the trace of its own change: b was decided in that of a.
    traces = {t.name: str(record.trace).split("-")[1:3] for t, record in world.hub.records.items()}
    assert traces == {"a": [a.trace, evaluate.span], "b": [b.trace, b.span]}


async def test_a_sweep_that_no_write_caused_begins_a_trace() -> None:
    world = World("a")
    world.sweep()
    with recorded("replicate") as collected:
        await world.worker.process_next()
        await world.worker.finish()
    [evaluate] = collected.spans
    assert evaluate.parent == ""
    [record] = world.hub.records.values()
    assert str(record.trace).split("-")[1:3] == [evaluate.trace, evaluate.span]
