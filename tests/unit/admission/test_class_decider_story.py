"""In any sequence of changes, reports and reviews, reused answers are those of the last second."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kube_sync.admission.answer_origin import AnswerOrigin
from kube_sync.admission.basis_client import BasisFollower
from kube_sync.admission.class_decider import Answers, ClassDecider
from kube_sync.admission.decision_client import Admitted, DecisionReference, Verdict
from kube_sync.admission.review import Review, parse_review
from kube_sync.decisions.basis import Basis
from kube_sync.decisions.decision import Decision
from tests.fakes.fleet import Fleet, Policy, reads
from tests.fakes.reviews import body
from tests.parts import examples
from tests.unit.async_tools import Waits

BOUND = 1.0  # seconds that an answer may be older than one of OPA
VALUES = (0, 1)
POLICIES = (
    Policy(lambda body, cluster, _: f"{body.get('a')} in {cluster}", reads(("a",))),
    Policy(lambda body, cluster, _: f"{body.get('b')} in {cluster}", reads(("b",))),
    Policy(lambda body, *_: f"always {body.get('a')}", reads(("a",), clusters=False)),
    Policy(lambda body, cluster, _: f"{body} {cluster}", reads(("a",), impure=["time.now_ns"])),
)


class World:
    """OPA with its replicator, a follower of the basis, and the webhook; all of it in steps."""

    def __init__(self) -> None:
        self.fleet = Fleet(POLICIES[0])
        self.said: dict[tuple[int, int], list[tuple[float, str]]] = {}  # by OPA, since when
        self.unacknowledged: list[Any] = []
        self.reports: deque[asyncio.Future[None]] = deque()  # on their way to the webhook
        self.answers: deque[asyncio.Future[None]] = deque()
        self.follower = BasisFollower(
            self.report, clock=lambda: self.fleet.clock, backoff=Waits().backoff()
        )
        self.asked = 0
        self.decider = ClassDecider(
            self,
            self.follower,
            Answers(),
            AnswerOrigin(lambda _: None),
            lambda review: review.object,
            lambda: True,
            mode="on",
            outage_seconds=60.0,
            clock=lambda: self.fleet.clock,
        )
        self.engine_is_down = False
        self.elsewhere = False  # the next question comes to another OPA, which is far behind
        self.note()

    # As the replicator's server, and as OPA

    async def report(self, _known: Basis) -> Basis:
        found = self.fleet.hub.basis.present
        self.reports.append(asyncio.get_running_loop().create_future())
        await self.reports[-1]
        return found

    async def verdict(self, review: Review, seconds: float, *, always: bool = False) -> Verdict:
        del seconds, always
        self.asked += 1
        text = self.decision(json.loads(bytes(review.object)))
        epoch = "e"
        if self.elsewhere:
            text, epoch, self.elsewhere = "long ago", "another", False
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]
        return Admitted(Decision({"place": text}), DecisionReference(epoch=epoch))

    def decision(self, found: dict[str, Any]) -> str:
        text = self.fleet.policy.decide(found, self.fleet.cluster, self.fleet.data)
        assert text is not None
        return text

    def note(self) -> None:
        """Note what OPA answers from now on."""
        for a in VALUES:
            for b in VALUES:
                since = self.said.setdefault((a, b), [])
                since.append((self.fleet.clock, self.decision(_object(a, b))))

    def recent(self, a: int, b: int) -> set[str]:
        """Return what OPA answered within the bound."""
        since = self.said[a, b]
        ends = [*(time for time, _ in since[1:]), float("inf")]
        earliest = self.fleet.clock - BOUND
        return {text for (_, text), end in zip(since, ends, strict=True) if end >= earliest}

    # The steps

    async def step(self, what: str, number: int) -> None:
        fleet = self.fleet
        fleet.clock += 1e-6  # nothing happens at the same time
        match what:
            case "cluster":  # OPA has it; the acknowledgement is on its way
                fleet.cluster = number
                self.note()
                self.unacknowledged.append(fleet.pend_cluster())
            case "acknowledge" if self.unacknowledged:
                self.unacknowledged.pop(0)()
            case "policy":
                fleet.begin_policy(POLICIES[number % len(POLICIES)])
                self.note()
            case "loaded":
                fleet.end_policy()
            case "report" if self.reports:
                self.reports.popleft().set_result(None)
            case "answer" if self.answers:
                self.answers.popleft().set_result(None)
            case "elsewhere":
                self.elsewhere = True
            case "time":
                fleet.clock += number / 10
            case "review":
                await self.review(number // 2 % 2, number % 2)
        await fleet.settle()

    async def review(self, a: int, b: int) -> None:
        """Review an object; what is answered at once is checked."""
        before = self.asked
        found = parse_review(body(_object(a, b)))
        waiting = asyncio.ensure_future(self.decider.verdict(found, 1.0))
        await self.fleet.settle()
        if self.asked == before:
            verdict = await waiting
            assert isinstance(verdict, Admitted)
            assert verdict.decision.annotations["place"] in self.recent(a, b)


def _object(a: int, b: int) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "a": a, "b": b}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["review"] * 4
            + ["report"] * 4
            + ["answer"] * 2
            + ["acknowledge"] * 2
            + ["cluster", "policy", "loaded", "loaded", "time", "elsewhere"]
        ),
        st.integers(0, 7),
    ),
    min_size=5,
    max_size=80,
)
BEHIND = ("report", "elsewhere", "review", "answer", "report", "report", "review")


@settings(max_examples=examples(1000), suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
@example([(step, 0) for step in BEHIND])
async def test_what_is_reused_is_what_opa_answered_within_the_last_second(
    steps: list[tuple[str, int]],
) -> None:
    world = World()
    following = asyncio.ensure_future(world.follower.run())
    await world.fleet.settle()
    for what, number in steps:
        await world.step(what, number)
    following.cancel()
    for waiting in world.answers:
        waiting.cancel()
    await asyncio.wait([following])


@pytest.mark.parametrize("policy", POLICIES[:3])
async def test_opa_is_not_asked_again_about_confirmed_classes(policy: Policy) -> None:
    world = World()
    world.fleet.change_policy(policy)
    world.note()
    following = asyncio.ensure_future(world.follower.run())
    await world.fleet.settle()
    asked = []
    for _ in range(20):
        await world.step("report", 0)
        for number in range(4):
            await world.step("review", number)
            await world.step("answer", 0)
        asked.append(world.asked)
    # The second report was asked for before the first answers, so it does not confirm them.
    assert asked == [4] + [8] * 19
    following.cancel()
    await asyncio.wait([following])
