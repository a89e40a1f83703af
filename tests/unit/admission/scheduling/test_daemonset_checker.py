"""DaemonSets that policies deny, among what is found out about these."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kube_sync.admission.scheduling.daemonset_checker import FINDINGS, DaemonSetChecker
from kube_sync.errors import Retriable, Undecided
from kube_sync.objects import ObjectKey
from kube_sync.policykinds.policy_cache import HeldPolicy
from kube_sync.policykinds.reports import Report

LINE = "DaemonSet team-a/agent is denied"


class Own:
    """What is said of a policy by itself."""

    def __init__(self, report: Report | Undecided) -> None:
        self.report = report
        self.readied: list[str] = []

    async def ready(self, namespace: str, policies: Sequence[HeldPolicy]) -> None:
        self.readied.append(f"{namespace}/{len(policies)}")

    async def report_on(self, policy: HeldPolicy) -> Report:
        assert policy
        if isinstance(self.report, Undecided):
            raise self.report
        return self.report


class Engine:
    """An OPA that gives one answer after the other, the last one again and again."""

    def __init__(self, *answers: bytes | Exception | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Any]] = []
        self.takes: Callable[[], None] = lambda: None

    async def query(self, path: str, body: bytes) -> bytes | None:
        self.asked.append((path, json.loads(body)))
        self.takes()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Clock:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def policy(name: str) -> HeldPolicy:
    return HeldPolicy(ObjectKey("", name), "u", 1, (), b"{}")


def answer(**lines: list[str]) -> bytes:
    return json.dumps(lines).encode()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def judge(engine: Engine, clock: Clock, own: Own | None = None) -> DaemonSetChecker:
    return DaemonSetChecker(own or Own(Report((), ("odd",))), engine, ("kube-system",), clock)


async def test_a_denied_daemonset_is_named_by_the_policy_that_denies_it(clock: Clock) -> None:
    found = judge(Engine(answer(restricted=[LINE])), clock)
    assert await found.report_on(policy("restricted")) == Report((), ("odd", LINE))
    assert await found.report_on(policy("other")) == Report((), ("odd",))


async def test_daemonsets_are_judged_once_for_all_policies_of_a_moment(clock: Clock) -> None:
    engine = Engine(answer(restricted=[LINE]), answer())
    found = judge(engine, clock)
    for name in ("restricted", "other"):
        await found.report_on(policy(name))
    assert engine.asked == [(FINDINGS, {"input": {"exempt_namespaces": ["kube-system"]}})]
    clock.now += 5.0
    assert await found.report_on(policy("restricted")) == Report((), ("odd",))
    assert len(engine.asked) == 2


async def test_many_daemonsets_are_judged_less_often(clock: Clock) -> None:
    engine = Engine(answer(restricted=[LINE]))
    engine.takes = lambda: setattr(clock, "now", clock.now + 3.0)
    found = judge(engine, clock)
    for asked in (1, 1, 2):
        await found.report_on(policy("restricted"))
        assert len(engine.asked) == asked
        clock.now += 30.0


async def test_a_policy_that_is_refused_denies_nothing(clock: Clock) -> None:
    engine = Engine(answer(wrong=[LINE]))
    report = Report(("spec.x: unknown field",), ())
    assert await judge(engine, clock, Own(report)).report_on(policy("wrong")) == report
    assert engine.asked == []


@pytest.mark.parametrize("trouble", [Retriable("OPA is away"), b"[]", b"no JSON"])
async def test_what_was_known_stands_while_it_cannot_be_found_out(
    clock: Clock, trouble: bytes | Exception
) -> None:
    found = judge(Engine(answer(restricted=[LINE]), trouble), clock)
    for _ in range(2):
        assert await found.report_on(policy("restricted")) == Report((), ("odd", LINE))
        clock.now += 5.0


async def test_rules_of_an_earlier_version_name_no_daemonset(clock: Clock) -> None:
    assert await judge(Engine(None), clock).report_on(policy("p")) == Report((), ("odd",))


async def test_a_policy_that_cannot_be_judged_by_itself_is_not_judged(clock: Clock) -> None:
    own = Own(Undecided("it fails"))
    with pytest.raises(Undecided):
        await judge(Engine(None), clock, own).report_on(policy("p"))
    await judge(Engine(None), clock, own).ready("", [policy("p")])
    assert own.readied == ["/1"]
