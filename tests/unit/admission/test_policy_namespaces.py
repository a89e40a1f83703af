"""Whether anybody is asked, by the namespace that an object is in."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from kube_sync.admission.decision_client import (
    Admitted,
    DecisionReference,
    Denied,
    Undecidable,
    Verdict,
)
from kube_sync.admission.policy_namespaces import ByNamespace, Places, is_pod, nothing
from kube_sync.admission.review import Review
from kube_sync.decisions.decision import Decision
from tests.fakes.engine import review

POD = {"group": "", "version": "v1", "kind": "Pod"}
DENIED = Denied(("no",))
NO_ANSWER = Undecidable("nobody is there", "unreachable", DecisionReference("r1"))


@dataclass
class World:
    """Policies in one namespace, and a judge that says what the test says."""

    is_blind: bool = False
    answer: Verdict = DENIED
    seconds: list[float] = field(default_factory=list)

    def any_in(self, namespace: str) -> bool:
        return namespace == "shop"

    async def verdict(self, _: Review, seconds: float, *, always: bool = False) -> Verdict:
        assert always  # whether to ask has been decided
        self.seconds.append(seconds)
        return self.answer

    @property
    def judge(self) -> ByNamespace:
        return ByNamespace(self, Places(self, self), is_pod)


@pytest.fixture
def world() -> World:
    return World()


async def test_where_there_is_a_policy_it_decides(world: World) -> None:
    world.answer = NO_ANSWER
    assert await world.judge.verdict(review(namespace="shop"), 3.0) == NO_ANSWER
    assert world.seconds == [3.0]


async def test_where_there_is_none_nobody_is_asked(world: World) -> None:
    found = await world.judge.verdict(review(namespace="other"), 3.0)
    assert found == Admitted(Decision(), DecisionReference("r1"))
    assert world.seconds == []


async def test_where_a_policy_may_be_unseen_it_decides(world: World) -> None:
    world.is_blind = True
    assert await world.judge.verdict(review(namespace="other"), 3.0) == DENIED


async def test_a_policy_itself_is_judged_where_there_is_none_yet(world: World) -> None:
    assert await world.judge.verdict(review(namespace="other"), 3.0, always=True) == DENIED


async def test_a_pod_has_its_class_everywhere_and_soon(world: World) -> None:
    world.answer = Admitted(Decision(), ruled=True)
    assert await world.judge.verdict(review(namespace="other", kind=POD), 3.0) == world.answer
    assert world.seconds == [1.0]
    await world.judge.verdict(review(namespace="other", kind=POD), 0.5)
    assert world.seconds[1:] == [0.5]


async def test_a_pod_that_nobodys_policy_is_about_is_not_refused_for_want_of_an_answer(
    world: World,
) -> None:
    world.answer = NO_ANSWER
    with capture_logs() as logs:
        found = await world.judge.verdict(review(namespace="other", kind=POD), 3.0)
    assert found == Admitted(Decision(), DecisionReference("r1"))
    (line,) = logs
    assert (line["event"], line["why"]) == ("admitted_undecided", "unreachable")


async def test_a_pod_that_cannot_be_right_is_refused_everywhere(world: World) -> None:
    assert await world.judge.verdict(review(namespace="other", kind=POD), 3.0) == DENIED


def test_a_pod_is_a_pod_of_the_core() -> None:
    assert is_pod(review(kind=POD))
    assert not is_pod(review(kind=POD | {"group": "example.com"}))
    assert not is_pod(review())
    assert not nothing(review(kind=POD))
