"""What a verdict makes of every answer and every silence; a stand-in engine gives them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from kube_sync.admission import breaker
from kube_sync.admission.decision_client import (
    Admitted,
    DecisionClient,
    DecisionReference,
    Denied,
    Undecidable,
    waits,
)
from kube_sync.admission.engine import engine_client
from kube_sync.admission.engine_errors import NoAnswer
from kube_sync.admission.policygate import PolicyGate
from kube_sync.admission.review import Review
from kube_sync.decisions.decision import Decision
from kube_sync.errors import Undecided
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.policymaps import PolicyMaps
from kube_sync.objects import ObjectKey
from tests.fakes.engine import PATH, WEB, StandIn, review, stand_in
from tests.fakes.http import Handler, answer, hang, lose_answer
from tests.fakes.listing import Listing, listed
from tests.unit.async_tools import PATIENCE, Waits

ASKED = DecisionReference("r1")


def _policies(*modules: str) -> PolicyMaps:
    """Return what a webhook knows of one policy ConfigMap for each of these modules."""
    maps = PolicyMaps("ns", lambda: None)
    items = [
        Item(
            ObjectKey("ns", f"p{index}"),
            "u",
            ResourceVersion("1"),
            json.dumps({"metadata": {}, "data": {"policy.rego": source}}).encode(),
        )
        for index, source in enumerate(modules)
    ]
    listed(maps, Listing(items, ResourceVersion("1")))
    return maps


@dataclass
class World:
    """A judge, the stand-in that it asks, and the waits between attempts."""

    judge: DecisionClient
    engine: StandIn
    waits: Waits

    def next(self, handler: Handler, times: int = 1) -> None:
        """Let the engine answer so for the next `times` attempts."""
        self.engine.http.fault(lambda _: True, handler, times)


@asynccontextmanager
async def _world(
    decision: object = None, *modules: str, policies: bool = True, **judging: Any
) -> AsyncGenerator[World]:
    clock = Waits()
    async with (
        asyncio.timeout(PATIENCE),
        stand_in(lambda _: decision or {}) as engine,
        engine_client(engine.target(timeout_seconds=0.2)) as client,
    ):
        gate = PolicyGate([_policies(*modules)], static=policies)
        judge = DecisionClient(client, gate, **{"backoff": clock.backoff} | judging)
        yield World(judge, engine, clock)


async def test_the_policy_is_given_the_whole_resource_as_its_input() -> None:
    async with _world() as world:
        await world.judge.verdict(review(), 5.0)
        assert world.engine.inputs == [WEB]


async def test_the_policy_is_given_what_it_is_to_see_of_the_resource() -> None:
    async with _world(
        view=lambda asked: msgspec.Raw(b'{"uid":"%s"}' % asked.uid.encode())
    ) as world:
        await world.judge.verdict(review(), 5.0)
        assert world.engine.inputs == [{"uid": "r1"}]


async def test_a_resource_that_cannot_be_shown_to_the_policy_is_denied() -> None:
    def view(_: Review) -> msgspec.Raw:
        msg = "what was asked for is no JSON"
        raise Undecided(msg)

    async with _world(view=view) as world:
        verdict = await world.judge.verdict(review(), 5.0)
    reason = "what was asked for is no JSON; the policy has to be mended"
    assert verdict == Undecidable(reason, "malformed", ASKED)


async def test_decided_annotations_are_admitted_with() -> None:
    async with _world({"annotations": {"a": {"c": 1, "b": 2}}, "errors": []}) as world:
        decision = Decision({"a": '{"b":2,"c":1}'})
        assert await world.judge.verdict(review(), 5.0) == Admitted(decision, ASKED)


async def test_errors_of_the_policy_deny() -> None:
    async with _world({"errors": ["no PCI", "no EU"], "annotations": {}}) as world:
        assert await world.judge.verdict(review(), 5.0) == Denied(("no PCI", "no EU"), ASKED)


async def test_the_engines_decision_id_and_policies_are_told() -> None:
    body: dict[str, Any] = {
        "result": {},
        "decision_id": "d1",
        "provenance": {"bundles": {"kube-sync": {"revision": "0a1b"}}},
    }
    async with _world() as world:
        world.next(answer(200, json.dumps(body).encode()))
        verdict = await world.judge.verdict(review(), 5.0)
        assert verdict == Admitted(Decision(), DecisionReference("d1", "kube-sync=0a1b"))
        body["result"] = 7
        world.next(answer(200, json.dumps(body).encode()))
        assert (await world.judge.verdict(review(), 5.0)).asked.decision_id == "d1"


@pytest.mark.parametrize("handler", [answer(404), answer(200, b"{}"), answer(500), hang()])
async def test_without_a_policy_everything_is_admitted_and_nobody_is_asked(
    handler: Handler,
) -> None:
    async with _world(policies=False) as world:
        world.next(handler)
        assert await world.judge.verdict(review(), 5.0) == Admitted(Decision(), ASKED)
        assert world.engine.http.requests == []


@pytest.mark.parametrize(
    ("handler", "why", "reason"),
    [
        (answer(404), "undefined", "is undefined (404); is the policy loaded"),
        (answer(200, b"{}"), "undefined", "the decision is undefined; is the policy loaded"),
        (answer(401), "unauthorized", ": 401; the webhook needs a token"),
        (answer(403), "unauthorized", ": 403; the webhook needs a token"),
        (answer(200, b"{"), "malformed", "the policy has to be mended"),
        (answer(200, b'{"result":null}'), "malformed", "the policy's answer is null"),
        (answer(200, b'{"result":[]}'), "malformed", "the policy's answer is an array"),
        (answer(200, b'{"result":{"annotations":{"a":null}}}'), "malformed", "a is null"),
        (answer(200, b'{"result":{"errors":"no"}}'), "malformed", "`errors` are a string"),
        (answer(418), "rejected", ": 418; is this the address of a policy engine?"),
    ],
)
async def test_with_a_policy_an_answer_that_decides_nothing_denies_at_once(
    handler: Handler, why: str, reason: str
) -> None:
    async with _world() as world:
        world.next(handler)
        verdict = await world.judge.verdict(review(), 5.0)
        assert isinstance(verdict, Undecidable)
        assert verdict.why == why
        assert verdict.reason.startswith(f"policy engine {world.engine.http.url}{PATH}: ")
        assert reason in verdict.reason
        assert "\n" not in verdict.reason
        assert len(world.engine.http.requests) == 1
        assert world.waits.seconds == []


async def test_two_policies_that_disagree_are_named_with_their_configmaps_at_once() -> None:
    conflict = {
        "code": "internal_error",
        "message": "error(s) occurred while evaluating query",
        "errors": [
            {
                "code": "eval_conflict_error",
                "message": "complete rules must not produce multiple outputs",
                "location": {"file": "ns/p0/policy.rego", "row": 2, "col": 1},
            }
        ],
    }
    modules = ("package a\nmode := 1", "package a\nmode := 2", "package b\nmode := 3")
    async with _world(None, *modules) as world:
        world.next(answer(500, json.dumps(conflict).encode()))
        verdict = await world.judge.verdict(review(), 5.0)
        assert verdict == Undecidable(
            "policies give one rule different values: policy.rego row 2 of ConfigMap ns/p0 and "
            "policy.rego of ConfigMap ns/p1; the policy has to be mended",
            "evaluation-error",
            ASKED,
        )
        assert len(world.engine.http.requests) == 1


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (answer(500, b"boom"), "failing"),
        (answer(503), "overloaded"),
        (answer(429), "overloaded"),
        (lose_answer(), "unreachable"),
    ],
)
async def test_what_may_pass_is_tried_as_often_as_configured_and_then_denied(
    handler: Handler, why: str
) -> None:
    async with _world(attempts=3) as world:
        world.next(handler, times=9)
        verdict = await world.judge.verdict(review(), 5.0)
        assert isinstance(verdict, Undecidable)
        assert verdict.why == why
        assert verdict.reason.endswith("; try again later")
        assert len(world.engine.http.requests) == 3
        assert world.waits.seconds == [0.1, 0.2]


async def test_an_engine_that_recovers_in_time_decides() -> None:
    async with _world({"annotations": {"a": "1"}}) as world:
        world.next(answer(503), times=2)
        verdict = await world.judge.verdict(review(), 5.0)
        assert verdict == Admitted(Decision({"a": "1"}), ASKED)
        assert world.waits.seconds == [0.1, 0.2]


async def test_an_engine_that_asks_for_time_gets_it() -> None:
    async with _world() as world:
        world.next(answer(429, retry_after="3"))
        assert await world.judge.verdict(review(), 5.0) == Admitted(Decision(), ASKED)
        assert world.waits.seconds == [3.0]


async def test_an_engine_that_asks_for_more_time_than_there_is_is_not_waited_for() -> None:
    async with _world() as world:
        world.next(answer(429, retry_after="6"))
        verdict = await world.judge.verdict(review(), 5.0)
        assert isinstance(verdict, Undecidable)
        assert verdict.why == "overloaded"
        assert world.waits.seconds == []


async def test_an_attempt_that_hangs_is_given_up_and_the_next_one_may_decide() -> None:
    async with _world() as world:
        world.next(hang())
        assert await world.judge.verdict(review(), 5.0) == Admitted(Decision(), ASKED)
        assert world.waits.seconds == [0.1]


async def test_an_engine_that_hangs_denies_when_the_time_is_up() -> None:
    async with _world() as world:
        world.next(hang())
        verdict = await world.judge.verdict(review(), 0.05)
        where = f"policy engine {world.engine.http.url}{PATH}"
    reason = f"{where}: no decision within 0.1 s; try again later"
    assert verdict == Undecidable(reason, "timeout", ASKED)


async def test_a_review_that_ends_between_two_attempts_tells_of_the_last_one() -> None:
    class Endless(Waits):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(PATIENCE + seconds)

    async with _world(backoff=Endless().backoff) as world:
        world.next(answer(500, b"boom"))
        verdict = await world.judge.verdict(review(), 0.5)
    assert isinstance(verdict, Undecidable)
    assert verdict.why == "failing"
    assert verdict.reason.endswith(": 500 boom: no decision within 0.5 s; try again later")


@pytest.mark.parametrize(("first", "steps"), [(0.1, [0.1, 0.2, 0.4, 0.8, 1.0]), (3.0, [3.0] * 3)])
def test_waits_grow_to_a_second_or_are_as_long_as_configured(
    first: float, steps: list[float]
) -> None:
    backoff = waits(first)()
    for step in steps:
        assert step / 2 <= backoff.next_delay() <= step


async def test_each_review_begins_with_a_short_wait() -> None:
    """One that waited long must not make the next one wait."""
    async with _world() as world:
        for _ in range(2):
            world.next(answer(503))
            await world.judge.verdict(review(), 5.0)
        assert world.waits.seconds == [0.1, 0.1]


async def test_an_engine_that_is_known_to_be_down_denies_at_once_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(breaker, "_SILENCE", 0.0)
    async with _world() as world:
        await world.engine.http.stop()
        await world.judge.verdict(review(), 5.0)
        assert world.judge.engine_is_down
        world.waits.seconds.clear()
        verdict = await world.judge.verdict(review(), 5.0)
        assert isinstance(verdict, Undecidable)
        assert verdict.why == "unreachable"
        assert "known to be down" in verdict.reason
        assert world.waits.seconds == []
        await world.engine.http.start()
        assert await world.judge.verdict(review(), 5.0) == Admitted(Decision(), ASKED)
        assert not world.judge.engine_is_down


async def test_a_probe_that_is_answered_opens_the_way_for_reviews(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(breaker, "_SILENCE", 0.0)
    async with _world() as world:
        await world.engine.http.stop()
        for _ in range(5):
            with pytest.raises(NoAnswer):
                await world.judge.probe()
        assert world.judge.engine_is_down
        await world.engine.http.start()
        await world.judge.probe()
        assert not world.judge.engine_is_down
