from __future__ import annotations

from dataclasses import replace

import msgspec

from kube_sync.guard import HISTORY
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.meta import Apply
from kube_sync.ledger.reports import Report
from kube_sync.remediation.audit_log import AuditLog
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.holds import manual
from kube_sync.remediation.plan import Current, Write
from kube_sync.remediation.writer import Outcome, Writer
from tests.fakes.clients import REPLICASETS, key
from tests.unit.remediation.test_writer import Server

KEY: Key = (REPLICASETS, key("web"))
CURRENT = Current("u", {"place": "c1", "other": "1"}, version="7")
STEP = Apply("u", {"place": "c2", "other": "1"})


class Reports:
    """What was reported, and in which order with the PATCHes."""

    def __init__(self) -> None:
        self.told: list[Report] = []
        self.number = 0
        self.are_discarded = False

    def new_id(self) -> str:
        self.number += 1
        return f"me-{self.number}"

    def enqueue(self, report: Report) -> None:
        self.told.append(report)

    async def deliver(self, report: Report) -> bool:
        self.told.append(report)
        return True


def _memory(reports: Reports) -> AuditLog:
    return AuditLog(reports, lambda name: f"on ConfigMap p/q for {name}")


async def test_a_write_is_told_before_and_after_with_what_differs() -> None:
    reports = Reports()
    server = Server()

    async def patch(*arguments: object) -> None:
        assert [one.kind for one in reports.told] == ["intent"]
        await server.patch(*arguments)  # type: ignore[arg-type]

    writer = Writer(patch, FencedWriter(lambda: 9.0), recorder=_memory(reports))
    assert (await writer.write(KEY, STEP, CURRENT, "remediate apply")).status == "applied"
    intent, outcome = reports.told
    assert (intent.old, intent.new) == ({"place": "c1"}, {"place": "c2"})
    assert (intent.uid, intent.approved) == ("u", "remediate apply")
    assert (outcome.kind, outcome.id, outcome.status) == ("outcome", intent.id, "applied")


async def test_without_a_ledger_nothing_is_reported_and_everything_is_written() -> None:
    reports, server = Reports(), Server()
    reports.are_discarded = True
    writer = Writer(server.patch, FencedWriter(lambda: 9.0), recorder=_memory(reports))
    assert (await writer.write(KEY, STEP, CURRENT)).status == "applied"
    assert reports.told == []


async def test_an_outcome_without_an_intent_is_not_reported() -> None:
    """The ledger came while the PATCH was under way."""
    reports, server = Reports(), Server()
    reports.are_discarded = True

    async def patch(*arguments: object) -> None:
        reports.are_discarded = False
        await server.patch(*arguments)  # type: ignore[arg-type]

    writer = Writer(patch, FencedWriter(lambda: 9.0), recorder=_memory(reports))
    assert (await writer.write(KEY, STEP, CURRENT)).status == "applied"
    assert reports.told == []


async def test_the_approval_in_the_history_is_told_with_where_it_was_given() -> None:
    reports = Reports()
    history = msgspec.json.encode([[5, "a"], [9, "b", ["c1"], "moves-1"]]).decode()
    step: Write = replace(STEP, annotations={**STEP.annotations, HISTORY: history})
    await _memory(reports).intend(KEY, CURRENT, step, "")
    (intent,) = reports.told
    assert intent.approved == "moves-1 on ConfigMap p/q for moves-1"
    assert intent.new == {"place": "c2"}, "what is kept beside it is no news"


async def test_a_process_that_may_not_write_any_more_when_its_intent_is_told_sends_nothing() -> (
    None
):
    reports, server = Reports(), Server()
    left = [9.0, 0.0]
    writer = Writer(server.patch, FencedWriter(lambda: left.pop(0)), recorder=_memory(reports))
    assert (await writer.write(KEY, STEP, CURRENT)).status == "fenced"
    assert server.asked == 0
    assert [(one.kind, one.status) for one in reports.told] == [
        ("intent", ""),
        ("outcome", "fenced"),
    ]


async def test_what_waits_is_told_with_what_releases_it() -> None:
    reports = Reports()
    _memory(reports).held(KEY, manual(KEY, CURRENT, STEP))
    (held,) = reports.told
    assert (held.kind, held.status) == ("held", "manual")
    assert held.note.startswith("remediation is manual here; released by: kube-sync remediate app")
    assert held.new == {"place": "c2"}


async def test_a_text_that_is_too_long_is_cut() -> None:
    reports = Reports()
    outcome = Outcome("refused", written=False, error="x" * 10_000)
    _memory(reports).ended("1", KEY, CURRENT, outcome)
    assert len(reports.told[0].note) == 4_096
