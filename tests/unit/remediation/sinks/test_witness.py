from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from kube_sync.errors import Conflict, Refused, SyncError, Terminal
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import EVENTS, Reporter
from kube_sync.kube.kueue import Workload
from kube_sync.observability import metrics
from kube_sync.remediation.plan import Unusable
from kube_sync.remediation.sinks.nomination import Nomination
from kube_sync.remediation.sinks.witness import FIELD, NominationWitness
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import key, kube_of
from tests.unit.async_tools import running, until
from tests.unit.remediation.test_audit_log import Reports

FOUND = Workload("u", nominated=("a",))
WANTED = Nomination(("a", "b"), "a did not admit it within 60 s: b is nominated too")


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        api.define(EVENTS, "Event")
        yield api


@pytest.fixture
async def recorder(api: FakeApiServer, tmp_path: Path) -> AsyncGenerator[EventRecorder]:
    async with kube_of(api, tmp_path) as client:
        recorder = EventRecorder(client, Reporter("c", "i"), metrics.remediation_events)
        async with running(recorder.run()):
            yield recorder


async def told(api: FakeApiServer) -> Any:
    await until(lambda: api.objects(EVENTS))
    (event,) = api.objects(EVENTS).values()
    return event


async def test_a_nomination_is_reported_before_and_after_and_told_as_an_event(
    api: FakeApiServer, recorder: EventRecorder
) -> None:
    reports = Reports()
    witness = NominationWitness(recorder, reports)
    name = await witness.intend(key("w"), FOUND, WANTED)
    witness.ended(name, key("w"), "u", WANTED.reason)
    intent, outcome = reports.told
    assert (intent.kind, intent.old, intent.new) == ("intent", {FIELD: "a"}, {FIELD: "a,b"})
    assert (outcome.id, outcome.status, outcome.note) == (intent.id, "applied", WANTED.reason)
    event = await told(api)
    assert (event["reason"], event["type"]) == ("RemediationNominated", "Normal")
    assert (event["note"], event["regarding"]["kind"]) == (WANTED.reason, "Workload")


async def test_a_hold_is_told_as_a_warning(api: FakeApiServer, recorder: EventRecorder) -> None:
    reports = Reports()
    NominationWitness(recorder, reports).held(key("w"), "u", Unusable("inactive", "why"))
    assert [(one.kind, one.status, one.note) for one in reports.told] == [
        ("held", "inactive", "why")
    ]
    event = await told(api)
    assert (event["reason"], event["type"]) == ("RemediationNotNominated", "Warning")


@pytest.mark.parametrize("error", [Terminal("no"), Refused("no")])
async def test_what_a_retry_does_not_help_is_told(
    api: FakeApiServer, recorder: EventRecorder, error: SyncError
) -> None:
    reports = Reports()
    NominationWitness(recorder, reports).failed("w1", key("w"), "u", error)
    assert [(one.id, one.status) for one in reports.told] == [("w1", "failed")]
    assert (await told(api))["note"] == "no"


async def test_what_is_tried_again_is_only_reported_if_it_was_begun(
    api: FakeApiServer, recorder: EventRecorder
) -> None:
    reports = Reports()
    witness = NominationWitness(recorder, reports)
    witness.failed("", key("w"), "u", Conflict("changed"))
    assert reports.told == []
    witness.failed("w1", key("w"), "u", Conflict("changed"))
    assert [one.note for one in reports.told] == ["changed"]
    assert not api.objects(EVENTS)
