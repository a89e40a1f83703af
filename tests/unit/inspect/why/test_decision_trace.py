"""The trace of a decision, from the stream of the replicator that made it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from kube_sync.config import Decisions
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.records import DecisionRecord, Target
from kube_sync.errors import Retriable
from kube_sync.inspect.why.decision_trace import read_records, trace_of
from tests.fakes.clients import REPLICASETS, key
from tests.fakes.decisionstream import fake_decision_stream
from tests.fakes.http import hang

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
DECISION = Decision({"a/b": "c1"}, labels={"l": "1"})
OUTCOME = Outcome("u-web", DECISION)
RECORD = DecisionRecord(
    Target.of(REPLICASETS, key("web", "shop")),
    "u-web",
    DECISION,
    3,
    "data",
    "p",
    trace=f"00-{TRACE}-00f067aa0ba902b7-01",
)


def test_recorded_decision_has_its_trace() -> None:
    assert trace_of(RECORD, OUTCOME) == TRACE
    failed = msgspec.structs.replace(RECORD, failure="no", last_good=True)
    assert trace_of(failed, Outcome("u-web", failure="no")) == TRACE


@pytest.mark.parametrize(
    "outcome",
    [
        replace(OUTCOME, uid="u-other"),
        replace(OUTCOME, decision=Decision({"a/b": "c2"}, labels={"l": "1"})),
        replace(OUTCOME, decision=Decision({"a/b": "c1"})),
        replace(OUTCOME, decision=None, failure="no"),
        replace(OUTCOME, decision=None),
    ],
)
def test_another_decision_than_the_recorded_one_has_none(outcome: Outcome) -> None:
    assert trace_of(RECORD, outcome) == ""


def test_decision_whose_trace_is_not_sampled_has_none() -> None:
    assert trace_of(msgspec.structs.replace(RECORD, trace=msgspec.UNSET), OUTCOME) == ""


async def test_records_of_the_named_objects_are_read_up_to_the_first_bookmark() -> None:
    web, gone = (REPLICASETS, key("web", "shop")), (REPLICASETS, key("gone", "shop"))
    async with fake_decision_stream() as stream:
        stream.say(RECORD)
        stream.say(msgspec.structs.replace(RECORD, object=Target.of(REPLICASETS, key("b", "shop"))))
        url = f"{stream.http.url}/v1/decisions"
        assert await read_records(Decisions(url=url), [web, gone]) == {web: RECORD}


async def test_stream_that_does_not_answer_or_end_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(Retriable, match="decision stream"):
        await read_records(Decisions(url="http://127.0.0.1:1/v1/decisions"), [])
    monkeypatch.setattr("kube_sync.inspect.why.decision_trace._SECONDS", 0.05)
    async with fake_decision_stream() as stream:
        stream.http.fault(lambda _: True, hang())
        with pytest.raises(Retriable, match="not read within"):
            await read_records(Decisions(url=f"{stream.http.url}/v1/decisions"), [])
