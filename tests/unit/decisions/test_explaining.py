"""Of what OPA prints; that it prints so is tested on a real one (tests/integration)."""

from __future__ import annotations

import asyncio

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.explaining import MOST_WAITING, Explaining, Rule, rules
from kube_sync.errors import Retriable
from kube_sync.opa.client import Explained

ID = "policies/placement/policy.rego"
MODULES = {ID: 'package a\n\nerrors contains "x" if input.a\n\n  _helper(x) := 1\n'}
TRACE = [
    "query:1                            Enter data.a = _",
    "query:1                            | Index data.a.errors (matched 1 rule)",
    f"{ID}:3     | Enter data.a.errors",
    f"{ID}:3     | | Eval input.a",
    f"{ID}:5     | | Enter data.a._helper",
    f"{ID}:5     | | | Exit data.a._helper",
    f"{ID}:3     | Exit data.a.errors",
    f"{ID}:3     Redo data.a.errors",
    f'{ID}:9     | Enter data.a.annotations["x.io/a b"]',
    f'{ID}:9     | | Fail input.kind = "x"',
    f"{ID}:12     | Exit data.a.b(__local1__); plus(1, 2)",
    f"{ID}:13     | Exit data.a.f(__local1__, __local2__)",
    "nonsense",
]


class Opa:
    """Answers as it is told, and counts who asks at the same time."""

    def __init__(self, answer: Explained | Exception) -> None:
        self.answer = answer
        self.asked: list[bytes] = []
        self.now = self.most = 0

    async def explain(self, path: str, body: bytes, longest: int, seconds: float) -> Explained:
        assert (path, longest > 0, seconds > 0) == ("a", True, True)
        self.asked.append(body)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_rules_are_told_by_file_and_row_and_whether_they_applied() -> None:
    assert rules(TRACE, MODULES) == (
        Rule(ID, 3, "a.errors", applied=True, text='errors contains "x" if input.a'),
        Rule(ID, 5, "a._helper", applied=True, text="_helper(x) := 1"),
        Rule(ID, 9, 'a.annotations["x.io/a b"]', applied=False),
    )


def test_file_of_a_bundle_and_shortened_names_are_found() -> None:
    def file(shown: str, *others: str) -> str:
        modules = {ID: "package a", **dict.fromkeys(others, "")}
        return rules([f"{shown}:1 | Exit data.a.b"], modules)[0].file

    assert file(f"/{ID}") == ID
    assert file("policies/.../policy.rego") == ID
    assert file("policies/.../policy.rego", "policies/b/policy.rego") == "policies/.../policy.rego"
    assert file("elsewhere.rego") == "elsewhere.rego"


async def test_explanation_has_the_decision_that_was_made_for_it() -> None:
    opa = Opa(Explained(msgspec.Raw(b'{"annotations":{"a":"b"},"warnings":["w"]}'), TRACE))
    found = await Explaining(opa, "a").explain(b'{"kind":"x"}', MODULES)
    assert found.decision == Decision({"a": "b"})
    assert [rule.row for rule in found.rules] == [3, 5, 9]
    assert opa.asked == [b'{"input":{"kind":"x"}}']


async def test_undefined_and_failures_are_told() -> None:
    assert (await Explaining(Opa(Explained()), "a").explain(b"{}", {})).decision is None
    found = await Explaining(Opa(Retriable("too much")), "a").explain(b"{}", {})
    assert (found.failure, found.rules) == ("too much", ())
    malformed = Opa(Explained(msgspec.Raw(b"1")))
    assert "not an object" in str((await Explaining(malformed, "a").explain(b"{}", {})).failure)


async def test_one_question_at_a_time_and_few_that_wait() -> None:
    opa = Opa(Explained())
    explaining = Explaining(opa, "a")
    asked = (explaining.explain(b"{}", {}) for _ in range(MOST_WAITING + 2))
    failures = [one.failure for one in await asyncio.gather(*asked)]
    assert (len(opa.asked), opa.most) == (MOST_WAITING, 1)
    assert failures[MOST_WAITING:] == ["OPA is being asked about others, try again"] * 2
    assert (await explaining.explain(b"{}", {})).failure is None
