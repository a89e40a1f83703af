"""Trials of policies on a sample of objects, and how the sample is taken."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import REGISTRY

from kube_sync.errors import Retriable, SyncError, TooExpensive
from kube_sync.objects import ObjectKey
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Cause, Modules
from kube_sync.policies.trial_run import Sample, Sampler, Trial

MODULES = {"ns/p/m.rego": "package p"}
EXPENSIVE = TooExpensive("opa eval", "more than 1 MiB of memory")
BROKEN: Cause = {"code": "rego_parse_error", "message": "oops"}


class Evaluator:
    """A scratch OPA; `failing` by the names of the objects that it is asked for."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self.failing: dict[str, Retriable] = {}
        self.checked = 0
        self.asked: list[list[str]] = []

    async def check(self, modules: Modules, given: Collection[str] = ()) -> list[Cause]:
        assert (modules, given) == (MODULES, ())
        self.checked += 1
        return self.causes

    async def evaluated(
        self,
        modules: Modules,
        data: Mapping[str, Any],
        asked: Any,
        query: str,
        given: Collection[str] = (),
    ) -> Any:
        assert (modules, "kube_sync" in data, given) == (MODULES, True, ())
        assert "data.kube_sync.batch.decisions" in query
        names = [name for ask in asked for _, name in ask["items"]]
        self.asked.append(names)
        for name in names:
            if name in self.failing:
                raise self.failing[name]
        return [len(names), 0]


@pytest.fixture
def evaluator() -> Evaluator:
    return Evaluator()


def trial(evaluator: Evaluator, *names: str) -> Trial:
    async def take() -> Sample | None:
        items = [["ns", name] for name in names]
        ask = {"epoch": "trial", "collection": "replicasets", "items": items}
        return Sample(asks=[ask]) if names else None

    found = Trial(cast("Any", evaluator))
    found.begin(take)
    return found


def counted(outcome: str) -> float:
    value = REGISTRY.get_sample_value("kube_sync_policy_trials_total", {"outcome": outcome})
    return value or 0.0


async def test_set_that_decides_is_compiled_by_that_alone(evaluator: Evaluator) -> None:
    before = counted("passed")
    assert await trial(evaluator, "a", "b").check(MODULES) == []
    assert evaluator.asked == [["a", "b"]]
    assert evaluator.checked == 0
    assert counted("passed") == before + 1


async def test_set_that_exceeds_a_limit_is_refused_with_the_limit(evaluator: Evaluator) -> None:
    evaluator.failing["b"] = EXPENSIVE
    (cause,) = await trial(evaluator, "a", "b").check(MODULES)
    message = "too expensive to evaluate (more than 1 MiB of memory)"
    assert cause == {"code": "too_expensive", "message": message}


async def test_set_that_is_too_expensive_to_compile_says_so(evaluator: Evaluator) -> None:
    evaluator.failing["a"] = EXPENSIVE
    evaluator.causes = [{"code": "too_expensive", "message": "too expensive to compile (20 s)"}]
    assert await trial(evaluator, "a").check(MODULES) == evaluator.causes


async def test_set_that_does_not_compile_is_told_by_the_compiler(evaluator: Evaluator) -> None:
    evaluator.failing["a"] = Retriable("rego_parse_error")
    evaluator.causes = [BROKEN]
    assert await trial(evaluator, "a").check(MODULES) == [BROKEN]
    assert evaluator.asked == [["a"]]


async def test_failing_decision_refuses_nothing(evaluator: Evaluator) -> None:
    evaluator.failing["a"] = Retriable("eval_conflict_error")
    before = counted("failed")
    assert await trial(evaluator, "a", "b").check(MODULES) == []
    assert counted("failed") == before + 1


async def test_failing_decision_hides_no_other_that_exceeds_a_limit(evaluator: Evaluator) -> None:
    evaluator.failing |= {"a": Retriable("eval_conflict_error"), "b": EXPENSIVE}
    (cause,) = await trial(evaluator, "a", "b").check(MODULES)
    assert cause["code"] == "too_expensive"
    assert evaluator.asked == [["a", "b"], ["a"], ["b"]]


async def test_without_objects_sets_are_compiled_and_that_is_counted(evaluator: Evaluator) -> None:
    before = counted("skipped")
    assert await trial(evaluator).check(MODULES) == []
    untried = Trial(cast("Any", evaluator))
    assert await untried.check(MODULES) == []
    assert (evaluator.checked, evaluator.asked) == (2, [])
    assert counted("skipped") == before + 2


@dataclass
class Held:
    """What OPA holds of one collection."""

    name: str
    number: int
    namespace: str = ""

    @property
    def object_count(self) -> int:
        return self.number

    def keys(self) -> Iterable[ObjectKey]:
        return (ObjectKey(self.namespace, f"{self.name}-{index}") for index in range(self.number))


@dataclass
class Opa:
    """Answers with the path itself."""

    missing: set[str] = field(default_factory=set)
    size: int = 0
    failure: SyncError | None = None
    asked: list[str] = field(default_factory=list)

    async def get_data(self, path: DataPath) -> bytes | None:
        if self.failure is not None:
            raise self.failure
        self.asked.append("/".join(path))
        body = msgspec.json.encode({"at": "/".join(path), "padding": "x" * self.size})
        return None if path[-1] in self.missing else body


def sampler(opa: Opa, *held: Held, now: list[float] | None = None) -> Sampler:
    clock = (lambda: now[0]) if now else (lambda: 0.0)
    targets = ("replicasets",)
    return Sampler(
        cast("Any", opa),
        "kubernetes",
        lambda: cast("Any", held),
        lambda: targets,
        lambda: [("ns", "map")],
        clock=clock,
    )


async def test_sample_has_some_of_each_collection_and_all_of_a_small_one() -> None:
    opa = Opa(missing={"replicasets-40"})
    found = await sampler(
        opa, Held("replicasets", 1000, "ns"), Held("clusters", 100), Held("nodes", 101)
    ).sample()
    assert found is not None
    (ask,) = found.asks
    assert ask["collection"] == "replicasets"
    names = [name for _, name in ask["items"]]
    assert names[:2] == ["replicasets-0", "replicasets-50"]
    assert len(names) == 20
    kubernetes = found.data["kubernetes"]
    assert set(kubernetes["replicasets"]["ns"]) == set(names)
    assert b"kubernetes/clusters" in bytes(kubernetes["clusters"])
    assert len(kubernetes["nodes"]) == 20
    assert b"ns/map" in bytes(found.data["ns"]["map"])
    assert found.data["kube_sync"]["epoch"] == {ask["epoch"]: "loaded"}
    assert len(opa.asked) == 20 + 1 + 20 + 1


async def test_object_that_went_meanwhile_or_is_too_large_is_not_asked_for() -> None:
    found = await sampler(Opa(missing={"replicasets-1"}), Held("replicasets", 3, "ns")).sample()
    assert found is not None
    names = [name for _, name in found.asks[0]["items"]]
    assert names == ["replicasets-0", "replicasets-2"]
    large = await sampler(Opa(size=1_500_000), Held("replicasets", 5, "ns")).sample()
    assert large is not None
    assert len(large.asks[0]["items"]) == 2
    assert large.size < 4 * 2**20


async def test_sample_is_read_again_after_five_minutes() -> None:
    opa, now = Opa(), [0.0]
    taking = sampler(opa, Held("replicasets", 1, "ns"), now=now)
    first = await taking.sample()
    assert await taking.sample() is first
    now[0] = 301.0
    assert await taking.sample() is not first


async def test_without_objects_or_without_an_answer_there_is_no_sample() -> None:
    assert await sampler(Opa(), Held("replicasets", 0), Held("clusters", 3)).sample() is None
    opa = Opa(failure=Retriable("away"))
    taking = sampler(opa, Held("replicasets", 1, "ns"))
    assert await taking.sample() is None
    opa.failure = None
    assert await taking.sample() is not None
