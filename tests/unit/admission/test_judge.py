"""The old plugin's own table, and what it did not ask: deadlines, waits, odd answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiohttp import web

from kube_sync.admission.judge import Admitted, Denied, Judge, Undecidable
from kube_sync.admission.policygate import PolicyGate
from kube_sync.admission.review import Review
from kube_sync.decisions.decision import Decision
from kube_sync.kube.collection import ResourceVersion
from kube_sync.kube.policymaps import PolicyMaps
from kube_sync.opa.client import opa_client
from kube_sync.runtime.httpserver import serving
from kube_sync.settings import Opa
from tests.fakes.listing import Listing, listed
from tests.unit.async_tools import PATIENCE, Waits

PATH = "io/k8s/federation/admission"
RESOURCE = Review(
    "r1", "CREATE", msgspec.Raw(b'{"metadata":{"name":"web"},"spec":{"replicas":3}}'), None
)

Answer = Callable[[], Awaitable[web.Response]]


def _says(body: str, status: int = 200, **headers: str) -> Answer:
    async def answer() -> web.Response:
        return web.Response(
            text=body, status=status, content_type="application/json", headers=headers
        )

    return answer


def _result(result: object) -> Answer:
    return _says(json.dumps({"result": result}))


async def _never() -> web.Response:
    await asyncio.sleep(PATIENCE)
    return web.Response()


UNDEFINED = _says("{}")
MISSING = _says('{"code":"undefined_document","message":"no"}', 404)
EVALUATION_ERROR = _says(
    json.dumps(
        {
            "code": "internal_error",
            "message": "error(s) occurred while evaluating query",
            "errors": [
                {
                    "code": "eval_conflict_error",
                    "message": "complete rules must not produce multiple outputs",
                    "location": {"file": "ns/p/policy.rego", "row": 7, "col": 1},
                }
            ],
        }
    ),
    500,
)


@dataclass
class World:
    """An OPA that answers in this order (the last answer for ever), and a judge that asks it."""

    judge: Judge
    waits: Waits
    asked: list[dict[str, Any]] = field(default_factory=list)


@asynccontextmanager
async def _world(*answers: Answer, policies: bool = True) -> AsyncGenerator[World]:
    left = list(answers)

    async def handle(request: web.Request) -> web.Response:
        world.asked.append(await request.json())
        return await (left.pop(0) if len(left) > 1 else left[0])()

    app = web.Application()
    app.router.add_post(f"/v1/data/{PATH}", handle)
    maps = PolicyMaps("policies", lambda: None)
    listed(maps, Listing([], ResourceVersion("1")))
    waits = Waits()
    async with (
        asyncio.timeout(PATIENCE),
        serving(app, ("127.0.0.1", 0), grace=0.05) as port,
        opa_client(Opa(f"http://127.0.0.1:{port}")) as opa,
    ):
        gate = PolicyGate([maps], static=policies)
        world = World(Judge(opa, PATH, gate, waits.backoff), waits)
        yield world


async def test_the_policy_is_given_the_whole_resource_as_its_input() -> None:
    async with _world(_result({})) as world:
        await world.judge.verdict(RESOURCE, 5.0)
        assert world.asked == [{"input": {"metadata": {"name": "web"}, "spec": {"replicas": 3}}}]


async def test_an_answer_without_errors_and_annotations_admits_unchanged() -> None:
    async with _world(_result({})) as world:
        assert await world.judge.verdict(RESOURCE, 5.0) == Admitted(Decision())


async def test_decided_annotations_are_admitted_with() -> None:
    async with _world(_result({"annotations": {"a": {"c": 1, "b": 2}}, "errors": []})) as world:
        assert await world.judge.verdict(RESOURCE, 5.0) == Admitted(
            Decision({"a": '{"b":2,"c":1}'})
        )


async def test_errors_of_the_policy_deny() -> None:
    async with _world(_result({"errors": ["no PCI", "no EU"], "annotations": {}})) as world:
        assert await world.judge.verdict(RESOURCE, 5.0) == Denied(("no PCI", "no EU"))


@pytest.mark.parametrize("answer", [MISSING, UNDEFINED, EVALUATION_ERROR, _says("{")])
async def test_without_a_policy_everything_is_admitted_and_nobody_is_asked(answer: Answer) -> None:
    async with _world(answer, policies=False) as world:
        assert await world.judge.verdict(RESOURCE, 5.0) == Admitted(Decision())
        assert world.asked == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (MISSING, "404"),
        (UNDEFINED, f"the policy decision {PATH} is undefined"),
        (
            EVALUATION_ERROR,
            "ns/p/policy.rego:7: complete rules must not produce multiple outputs",
        ),
        (_says("", 401), "401"),
        (_result(None), "the policy's answer is null"),
        (_result([]), "the policy's answer is an array"),
        (_result({"annotations": {"a": None}}), "annotation a is null"),
        (_result({"errors": "no"}), "`errors` are a string"),
    ],
)
async def test_with_a_policy_an_answer_that_decides_nothing_denies_at_once(
    answer: Answer, reason: str
) -> None:
    async with _world(answer) as world:
        verdict = await world.judge.verdict(RESOURCE, 5.0)
        assert isinstance(verdict, Undecidable)
        assert reason in verdict.reason
        assert len(world.asked) == 1
        assert world.waits.seconds == []


@pytest.mark.parametrize("answer", [_says("boom", 500), _says("{"), _says("", 503)])
async def test_with_a_policy_an_opa_that_keeps_failing_denies_after_more_than_one_try(
    answer: Answer,
) -> None:
    async with _world(answer) as world:
        verdict = await world.judge.verdict(RESOURCE, 0.5)
        assert isinstance(verdict, Undecidable)
        assert verdict.reason.startswith("no policy decision within 0.5 s (")
        assert len(world.asked) > 1


async def test_an_opa_that_recovers_in_time_decides() -> None:
    failing = _says("", 503)
    async with _world(failing, failing, _result({"annotations": {"a": "1"}})) as world:
        assert await world.judge.verdict(RESOURCE, 5.0) == Admitted(Decision({"a": "1"}))
        assert len(world.asked) == 3
        assert world.waits.seconds == [0.1, 0.2]


async def test_an_opa_that_asks_for_time_gets_it() -> None:
    busy = _says("", 429, **{"Retry-After": "3"})
    async with _world(busy, _result({})) as world:
        assert await world.judge.verdict(RESOURCE, 5.0) == Admitted(Decision())
        assert world.waits.seconds == [3.0]


async def test_an_opa_that_hangs_denies_when_the_time_is_up() -> None:
    async with _world(_never) as world:
        verdict = await world.judge.verdict(RESOURCE, 0.05)
    assert verdict == Undecidable("no policy decision within 0.1 s")


async def test_an_opa_that_is_away_denies_and_says_so() -> None:
    maps = [PolicyMaps("policies", lambda: None)]  # not listed yet: a policy may exist
    waits = Waits()
    async with opa_client(Opa("http://127.0.0.1:1")) as opa:
        judge = Judge(opa, PATH, PolicyGate(maps, static=False), waits.backoff)
        verdict = await judge.verdict(RESOURCE, 0.1)
    assert isinstance(verdict, Undecidable)
    assert "Cannot connect to host 127.0.0.1:1" in verdict.reason


async def test_each_review_begins_with_a_short_wait() -> None:
    """One that waited long must not make the next one wait."""
    failing = _says("", 503)
    async with _world(failing, _result({}), failing, _result({})) as world:
        await world.judge.verdict(RESOURCE, 5.0)
        await world.judge.verdict(RESOURCE, 5.0)
        assert world.waits.seconds == [0.1, 0.1]
