"""Asking OPA about policies: what it knows of them, and what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube_sync.errors import Retriable, Undecided
from kube_sync.objects import ObjectKey
from kube_sync.policykinds.kinds import METADATA
from kube_sync.policykinds.opa_checker import OpaPolicyChecker
from kube_sync.policykinds.policy_cache import HeldPolicy
from kube_sync.policykinds.reports import Report

FINE = b'{"problems": [], "findings": []}'
SPEC = {"rules": [{"policyAction": {"reject": True}}]}


class Engine:
    """An OPA with what is replicated, and an answer for each name of a policy."""

    def __init__(self, data: Any = None, **answers: bytes) -> None:
        self.data = data
        self.answers = answers
        self.paths: list[Any] = []

    async def query(self, path: str, body: bytes) -> bytes | None:
        self.paths.append(path)
        return self.answers.get(json.loads(body)["input"]["object"]["metadata"]["name"] or "any")

    async def get_data(self, path: tuple[str, ...]) -> bytes | None:
        self.paths.append(path)
        return None if self.data is None else json.dumps(self.data).encode()


def policy(name: str, spec: Any = None) -> HeldPolicy:
    body = {"metadata": {"name": name}} | ({} if spec is None else {"spec": spec})
    return HeldPolicy(ObjectKey("shop", name), "u", 1, (), json.dumps(body).encode())


def judge(engine: Engine) -> OpaPolicyChecker:
    return OpaPolicyChecker(METADATA, engine, "kubernetes")


@pytest.mark.parametrize(
    ("data", "held"),
    [
        ({"a": {"spec": SPEC}, "b": {}}, [policy("a", SPEC), policy("b")]),
        ({"a": {"spec": SPEC, "metadata": {"name": "a"}}}, [policy("a", SPEC)]),
        (None, []),
    ],
    ids=["spec", "more", "none"],
)
async def test_same_policies_are_ready(data: Any, held: list[HeldPolicy]) -> None:
    engine = Engine(data)
    await judge(engine).ready("shop", held)
    assert engine.paths == [("kubernetes", "metadatapolicies", "shop")]


@pytest.mark.parametrize(
    ("data", "held"),
    [
        (None, [policy("a")]),
        ({"a": {"spec": {}}}, [policy("a", SPEC)]),
        ({"a": {"spec": SPEC}, "gone": {}}, [policy("a", SPEC)]),
    ],
    ids=["none", "older", "more"],
)
async def test_other_policies_are_waited_for(data: Any, held: list[HeldPolicy]) -> None:
    with pytest.raises(Retriable, match="all metadatapolicies of shop as they are yet"):
        await judge(Engine(data)).ready("shop", held)


async def test_what_are_no_policies_is_waited_for() -> None:
    with pytest.raises(Retriable, match="what OPA has of shop are no metadatapolicies"):
        await judge(Engine(["a"])).ready("shop", [])


async def test_report_is_what_the_rules_of_the_kind_say() -> None:
    engine = Engine(a=FINE)
    assert await judge(engine).report_on(policy("a")) == Report((), ())
    assert engine.paths == ["kube_sync/metadata/validation/report"]


async def test_rules_that_are_not_there_yet_say_nothing_of_a_policy() -> None:
    with pytest.raises(Retriable, match=r"OPA does not know data\.kube_sync\.metadata\.valid"):
        await judge(Engine()).report_on(policy("a"))


@pytest.mark.parametrize(
    ("answers", "said"),
    [({"any": FINE}, "is undefined for it"), ({"a": b"[]"}, "is no report")],
    ids=["undefined", "malformed"],
)
async def test_rules_that_fail_on_a_policy_are_told(answers: Any, said: str) -> None:
    with pytest.raises(Undecided, match=said):
        await judge(Engine(**answers)).report_on(policy("a"))


async def test_rules_that_come_between_two_queries_do_not_fail_on_a_policy() -> None:
    """Else a policy would be Stalled for a minute, and those who wait for it would give up."""

    class Loading(Engine):
        async def query(self, path: str, body: bytes) -> bytes | None:
            answer = await super().query(path, body)
            self.answers = {"a": FINE, "any": FINE}
            return answer

    assert await judge(Loading()).report_on(policy("a")) == Report((), ())
