from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kube_sync.admission.decision_client import Admitted, DecisionReference, Undecidable, Verdict
from kube_sync.admission.review import Review, parse_review
from kube_sync.admission.singleflight import InFlight
from kube_sync.decisions.decision import Decision
from tests.fakes.reviews import body

POD = {"group": "", "version": "v1", "kind": "Pod"}
GOOD = Admitted(Decision(), DecisionReference("one"), ruled=True)
NONE = Undecidable("OPA is away", "unreachable")


class Judge:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.answers: asyncio.Queue[Verdict] = asyncio.Queue()

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        self.asked.append((review.name, seconds))
        return await self.answers.get()


@pytest.fixture
def judge() -> Judge:
    return Judge()


def _review(
    name: str, spec: Any = None, labels: Any = None, owners: Any = None, **request: Any
) -> Review:
    spec = {"schedulerName": "a", "volumes": [name]} | (spec or {})
    metadata = {"name": name, "labels": labels, "ownerReferences": owners}
    document = {"metadata": metadata, "spec": spec}
    return parse_review(body(document, **{"name": name, "kind": POD, **request}))


async def _asking(asked: InFlight, *reviews: Review) -> list[asyncio.Task[Verdict]]:
    tasks = [asyncio.create_task(asked.verdict(review, 5.0)) for review in reviews]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_equal_questions_of_one_moment_are_asked_once(judge: Judge) -> None:
    tasks = await _asking(InFlight(judge), *(_review(name) for name in "abc"))
    judge.answers.put_nowait(GOOD)
    assert await asyncio.gather(*tasks) == [GOOD] * 3
    assert judge.asked == [("a", 5.0)]


@pytest.mark.parametrize(
    "other",
    [
        _review("b", {"containers": [{"name": "main", "resources": {"claims": [{"name": "x"}]}}]}),
        _review("b", {"containers": ["main", {"resources": None}], "initContainers": "none"}),
        _review("b", owners=[{"kind": "ReplicaSet", "name": "web"}, "nobody"]),
    ],
)
async def test_what_no_rule_looks_at_makes_no_other_question(judge: Judge, other: Review) -> None:
    tasks = await _asking(InFlight(judge), _review("a"), other)
    judge.answers.put_nowait(GOOD)
    assert await asyncio.gather(*tasks) == [GOOD] * 2


async def test_an_answer_is_never_kept(judge: Judge) -> None:
    asked = InFlight(judge)
    for name in "ab":
        judge.answers.put_nowait(GOOD)
        assert await asked.verdict(_review(name), 5.0) == GOOD
    assert [name for name, _ in judge.asked] == ["a", "b"]


@pytest.mark.parametrize(
    "other",
    [
        _review("b", {"schedulerName": "b"}),
        _review("b", {"priority": 0}),
        _review("b", {"nodeName": "node-1"}),
        _review("b", {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}),
        _review("b", owners=[{"kind": "DaemonSet", "name": "agent"}]),
        _review("b", kind={"group": "policy.kube-sync.io", "kind": "SchedulingPolicy"}),
        _review("b", labels={"app": "x"}),
        _review("b", namespace="other"),
        _review("b", userInfo={"username": "bob"}),
        _review("b", operation="UPDATE"),
        _review("b", subResource="binding"),
    ],
)
async def test_questions_that_differ_are_asked_each(judge: Judge, other: Review) -> None:
    tasks = await _asking(InFlight(judge), _review("a"), other)
    judge.answers.put_nowait(GOOD)
    judge.answers.put_nowait(NONE)
    await asyncio.gather(*tasks)
    assert sorted(name for name, _ in judge.asked) == ["a", "b"]


async def test_who_joined_and_got_no_decision_asks_with_the_time_that_is_left(judge: Judge) -> None:
    tasks = await _asking(InFlight(judge), _review("a"), _review("b"))
    judge.answers.put_nowait(NONE)
    judge.answers.put_nowait(GOOD)
    assert await asyncio.gather(*tasks) == [NONE, GOOD]
    (_, (name, seconds)) = judge.asked
    assert name == "b"
    assert 0 < seconds <= 5.0


async def test_who_joined_waits_no_longer_than_it_may(judge: Judge) -> None:
    asked = InFlight(judge)
    (first,) = await _asking(asked, _review("a"))
    late = await asked.verdict(_review("b"), 0.0)
    assert isinstance(late, Undecidable)
    assert (late.why, late.asked) == ("timeout", DecisionReference("r1"))
    judge.answers.put_nowait(GOOD)
    assert await first == GOOD


async def test_who_asked_first_may_go_away(judge: Judge) -> None:
    first, second = await _asking(InFlight(judge), _review("a"), _review("b"))
    first.cancel()
    judge.answers.put_nowait(GOOD)
    assert await second == GOOD
    assert [name for name, _ in judge.asked] == ["a"]
