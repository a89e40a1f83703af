from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from aiohttp import web

from kube_sync.config import Opa
from kube_sync.decisions.batch_module import batch_module
from kube_sync.decisions.decision import Decision, parse_decision
from kube_sync.decisions.decision_reader import DecisionReader, ReadDecision
from kube_sync.decisions.evaluator import Evaluator, Outcome
from kube_sync.errors import Refused, Retriable
from kube_sync.guard import Placements
from kube_sync.guard.placements import PREFERENCES
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import opa_client
from kube_sync.runtime.httpserver import serving

PATH = "io/k8s/federation/admission"
EPOCH = "epoch-1"


@dataclass
class StandIn:
    """The batch module's contract, with decisions that the test writes down by name."""

    decisions: Mapping[str, Any]  # None: present without a decision; absent: OPA lacks the object
    failing: frozenset[str] = frozenset()
    epoch: str = EPOCH
    evaluated: object = None  # nanoseconds, as OPA tells; None: it does not
    status: int = 200
    modules: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_put("/v1/policies/{id:.*}", self._put)
        app.router.add_post("/v1/data/kube_sync/batch/decisions", self._decide)
        return app

    async def _put(self, request: web.Request) -> web.Response:
        self.modules[request.match_info["id"]] = await request.text()
        return web.json_response({})

    async def _decide(self, request: web.Request) -> web.Response:
        question = (await request.json())["input"]
        self.asked.append(question)
        if self.status != 200:
            return web.json_response({"code": "unavailable"}, status=self.status)
        if question["epoch"] != self.epoch:
            return web.json_response({})
        names = [name for _, name in question["items"]]
        if self.failing & set(names):
            body = {"code": "internal_error", "message": "m", "errors": [{"message": "conflict"}]}
            return web.json_response(body, status=500)
        told = {} if self.evaluated is None else {"timer_rego_query_eval_ns": self.evaluated}
        metrics = {"metrics": told} if "metrics" in request.query else {}
        return web.json_response({"result": self._answers(names)} | metrics)

    def _answers(self, names: list[str]) -> dict[str, Any]:
        return {
            str(index): {"uid": f"uid-{name}"}
            | ({} if self.decisions[name] is None else {"decision": self.decisions[name]})
            for index, name in enumerate(names)
            if name in self.decisions
        }


@asynccontextmanager
async def _evaluator(
    opa: StandIn,
    epoch: str = EPOCH,
    clock: Callable[[], float] = lambda: 0.0,
    read: ReadDecision = parse_decision,
) -> AsyncGenerator[Evaluator]:
    async with (
        serving(opa.app(), ("127.0.0.1", 0)) as port,
        opa_client(Opa(f"http://127.0.0.1:{port}")) as client,
    ):
        yield Evaluator(client, epoch, clock=clock, read=read)


def _keys(*names: str) -> list[ObjectKey]:
    return [ObjectKey("ns", name) for name in names]


def _decided(name: str) -> dict[str, Any]:
    return {"annotations": {"place": name}}


async def test_decisions_come_back_under_their_keys() -> None:
    opa = StandIn({"a": _decided("x"), "b": {"errors": ["no"]}})
    async with _evaluator(opa) as evaluator:
        outcomes = await evaluator.evaluate("replicasets", _keys("a", "b"))
    assert outcomes == {
        ObjectKey("ns", "a"): Outcome("uid-a", Decision({"place": "x"})),
        ObjectKey("ns", "b"): Outcome("uid-b", Decision(errors=("no",))),
    }
    assert opa.asked == [
        {"epoch": EPOCH, "collection": "replicasets", "items": [["ns", "a"], ["ns", "b"]]}
    ]


async def test_cluster_scoped_objects_are_asked_for_with_an_empty_namespace() -> None:
    opa = StandIn({"a": _decided("x")})
    async with _evaluator(opa) as evaluator:
        outcomes = await evaluator.evaluate("nodes", [ObjectKey("", "a")])
    assert outcomes == {ObjectKey("", "a"): Outcome("uid-a", Decision({"place": "x"}))}
    assert opa.asked[0]["items"] == [["", "a"]]


@pytest.mark.parametrize(
    ("evaluated", "batch_size"), [(1_000_000, 20), (200_000_000, 1), (None, 1), ("1", 1)]
)
async def test_size_goes_by_how_long_opa_evaluated_and_not_by_how_long_it_was_waited_for(
    evaluated: object, batch_size: int
) -> None:
    opa = StandIn(dict.fromkeys("abcdefghij"), evaluated=evaluated)
    waited = count(0.0, 0.5)  # seconds
    async with _evaluator(opa, clock=lambda: next(waited)) as evaluator:
        await evaluator.evaluate("replicasets", _keys(*"abcdefghij"))
        assert evaluator.batch_size == batch_size


async def test_undefined_is_an_answer_and_not_a_failure() -> None:
    async with _evaluator(StandIn({"a": None})) as evaluator:
        outcomes = await evaluator.evaluate("replicasets", _keys("a"))
    assert outcomes == {ObjectKey("ns", "a"): Outcome("uid-a", decision=None, failure=None)}


async def test_objects_that_opa_does_not_hold_are_left_out() -> None:
    async with _evaluator(StandIn({"b": _decided("x")})) as evaluator:
        outcomes = await evaluator.evaluate("replicasets", _keys("gone", "b"))
    assert list(outcomes) == _keys("b")
    assert outcomes[ObjectKey("ns", "b")].uid == "uid-b"


async def test_labels_come_back_and_warnings_do_not() -> None:
    """Nobody is there to be warned, and a warning that changes is no news to anybody."""
    opa = StandIn({"a": {"labels": {"tier": "gold"}, "warnings": ["no owner"]}})
    async with _evaluator(opa) as evaluator:
        outcomes = await evaluator.evaluate("replicasets", _keys("a"))
    assert outcomes[ObjectKey("ns", "a")].decision == Decision(labels={"tier": "gold"})


async def test_objects_that_are_told_the_same_share_one_decision() -> None:
    """What is known by its identity, a text or the end of a line, is made once for all of them."""
    opa = StandIn({"a": _decided("x"), "b": _decided("x"), "c": _decided("y")}, evaluated=1_000)
    async with _evaluator(opa) as evaluator:
        await evaluator.evaluate("replicasets", _keys("a"))  # it is quick: all fit into the next
        outcomes = await evaluator.evaluate("replicasets", _keys("a", "b", "c"))
    one, same, other = (outcomes[key] for key in _keys("a", "b", "c"))
    assert one.decision is same.decision
    assert (one.uid, same.uid) == ("uid-a", "uid-b")
    assert other.decision == Decision({"place": "y"})


async def test_many_resources_are_asked_for_in_slices() -> None:
    """One long query and one write stall every client of OPA."""
    names = [f"n{i}" for i in range(120)]
    opa = StandIn({name: _decided(name) for name in names})
    async with _evaluator(opa) as evaluator:
        outcomes = await evaluator.evaluate("replicasets", _keys(*names))
    assert [len(question["items"]) for question in opa.asked] == [10, 20, 40, 50]
    assert {key.name: outcome.decision for key, outcome in outcomes.items()} == {
        name: Decision({"place": name}) for name in names
    }


async def test_nothing_to_ask_asks_nothing() -> None:
    opa = StandIn({})
    async with _evaluator(opa) as evaluator:
        assert await evaluator.evaluate("replicasets", []) == {}
    assert opa.asked == []


async def test_an_evaluation_error_fails_only_the_resource_it_belongs_to() -> None:
    opa = StandIn(
        {name: _decided(name) for name in ("a", "b", "bad", "c")}, failing=frozenset({"bad"})
    )
    async with _evaluator(opa) as evaluator:
        outcomes = await evaluator.evaluate("replicasets", _keys("a", "b", "bad", "c"))
    failed = outcomes.pop(ObjectKey("ns", "bad"))
    assert (failed.decision, failed.failure) == (None, "conflict")
    assert {key.name: outcome.decision for key, outcome in outcomes.items()} == {
        name: Decision({"place": name}) for name in ("a", "b", "c")
    }


async def test_a_decision_of_a_wrong_shape_fails_only_its_resource() -> None:
    opa = StandIn({"a": {"annotations": {"k": None}}, "b": _decided("b")})
    async with _evaluator(opa) as evaluator:
        outcomes = await evaluator.evaluate("replicasets", _keys("a", "b"))
    assert outcomes[ObjectKey("ns", "a")] == Outcome(
        "uid-a", failure="the policy's annotation k is null"
    )
    assert outcomes[ObjectKey("ns", "b")].failure is None


async def test_an_opa_that_lost_the_epoch_is_asked_again_later() -> None:
    """Half of the data gives no decision, and no decision on half of the data."""
    async with _evaluator(StandIn({"a": _decided("x")}), epoch="another") as evaluator:
        with pytest.raises(Retriable, match="does not hold all"):
            await evaluator.evaluate("replicasets", _keys("a"))


@pytest.mark.parametrize(("status", "error"), [(503, Retriable), (403, Refused)])
async def test_a_failure_of_opa_itself_is_no_failure_of_a_policy(
    status: int, error: type[Exception]
) -> None:
    async with _evaluator(StandIn({"a": None}, status=status)) as evaluator:
        with pytest.raises(error):
            await evaluator.evaluate("replicasets", _keys("a", "b"))


def test_the_module_asks_for_the_configured_decision_over_the_configured_root() -> None:
    module = batch_module("my-root", 'team-a/x"y')
    assert 'data["team-a"]["x\\"y"] with input as _asked(object)' in module
    assert 'data["my-root"][input.collection][namespace][name]' in module
    assert json.dumps("kubernetes") not in module


async def test_placement_that_cannot_be_read_is_a_failure_of_its_object_alone() -> None:
    good: dict[str, Any] = {"annotations": {PREFERENCES: {"clusters": {"c1": {}}}}}
    opa = StandIn({"a": {"annotations": {PREFERENCES: ["c1"]}}, "b": good})
    async with _evaluator(opa, read=DecisionReader(Placements().unreadable)) as evaluator:
        outcomes = await evaluator.evaluate("replicasets", _keys("a", "b"))
    failure = outcomes[ObjectKey("ns", "a")].failure
    assert failure is not None
    assert failure.startswith(f"the policy's annotation {PREFERENCES}: expected ")
    assert outcomes[ObjectKey("ns", "b")].failure is None
