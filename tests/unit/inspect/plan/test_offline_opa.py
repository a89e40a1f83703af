from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from kube_sync.decisions.decision import Decision, parse_decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.errors import Retriable, Undecided
from kube_sync.inspect.plan.offline_opa import INPUTS_MODULE, OfflineOpa, gather_both, inputs_module
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaClient
from kube_sync.opa.paths import object_path


class Client:
    """An OPA that answers with what a function makes of the inputs."""

    def __init__(self, answer: Callable[[list[Any]], bytes | None]) -> None:
        self._answer = answer
        self.asked: list[int] = []

    async def query(self, path: str, body: bytes) -> bytes | None:
        assert path == "kube_sync/inputs/answers"
        inputs = json.loads(body)["input"]["inputs"]
        self.asked.append(len(inputs))
        return self._answer(inputs)


def _opa(client: Client) -> OfflineOpa:
    return OfflineOpa(cast("OpaClient", client), {}, "kubernetes", "a/b", parse_decision)


async def test_inputs_are_decided_on_in_one_query_without_warnings_or_are_undefined() -> None:
    answer = {"0": {"labels": {"a": "b"}, "warnings": ["w"]}, "2": {"annotations": 1}}
    client = Client(lambda _: json.dumps(answer).encode())
    decided, undefined, wrong = await _opa(client).evaluate_inputs([{"asked": n} for n in range(3)])
    assert (decided, undefined) == (Outcome("", Decision(labels={"a": "b"})), Outcome(""))
    assert wrong.failure is not None
    assert client.asked == [3]


async def test_input_that_fails_keeps_no_other_from_being_decided_on() -> None:
    def answer(inputs: list[Any]) -> bytes | None:
        if any(one["asked"] == 1 for one in inputs):
            msg = "conflict"
            raise Undecided(msg)
        return None

    client = Client(answer)
    found = await _opa(client).evaluate_inputs([{"asked": 0}, {"asked": 1}])
    assert found == [Outcome(""), Outcome("", failure="conflict")]
    assert client.asked == [2, 1, 1]


async def test_answer_that_cannot_be_read_is_asked_for_again() -> None:
    with pytest.raises(Retriable, match="OPA's decisions cannot be read"):
        await _opa(Client(lambda _: b"[]")).evaluate_inputs([{"asked": 0}])


def test_inputs_come_with_objects_at_places_of_the_data() -> None:
    place = object_path("kubernetes", "clusters", ObjectKey("fleet", 'c"1'))
    source = inputs_module("a/b", [place, object_path("r", "n", ObjectKey("", "x"))])[INPUTS_MODULE]
    assert 'decision := data["a"]["b"] with input as one.asked' in source
    assert 'with data["kubernetes"]["clusters"]["fleet"]["c\\"1"] as one.objects[0]' in source
    assert 'with data["r"]["n"]["x"] as one.objects[1]' in source


async def test_both_return_what_they_return() -> None:
    async def number() -> int:
        return 1

    async def text() -> str:
        return "a"

    assert await gather_both(number(), text()) == (1, "a")


async def test_first_that_fails_ends_the_other_and_is_no_group() -> None:
    ended = asyncio.Event()

    async def fails() -> None:
        reason = "gone"
        raise Retriable(reason)

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(Retriable, match="gone"):
        await gather_both(waits(), fails())
    assert ended.is_set()
