from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import pytest
from structlog.testing import capture_logs

from kube_sync.errors import SyncError
from kube_sync.topology.controller.events import EventType, ResourceEvent
from kube_sync.topology.controller.workflow import Reconcile, Reconciliation, Workflow
from kube_sync.topology.gateway import GATEWAY, ROUTES
from tests.fakes.topologies import NS, gateway, route, topology

NOTHING = Reconciliation((), topology([]))


class Calls:
    """Functions that remember that they were called, and what with."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.seen: dict[str, Reconciliation] = {}

    def step(self, name: str, error: BaseException | None = None) -> Reconcile:
        async def reconcile(reconciliation: Reconciliation) -> None:
            self.names.append(name)
            self.seen[name] = reconciliation
            await asyncio.sleep(0)
            if error is not None:
                raise error

        return reconcile


@pytest.fixture
def calls() -> Calls:
    return Calls()


async def test_phases_run_one_after_the_other(calls: Calls) -> None:
    tasks = [calls.step("one"), calls.step("two")]
    await Workflow(calls.step("before"), tasks, calls.step("after"))(NOTHING)
    assert calls.names == ["before", "one", "two", "after"]


async def test_a_precondition_that_fails_ends_the_workflow(calls: Calls) -> None:
    failing = calls.step("before", SyncError("no"))
    with pytest.raises(SyncError, match="no"):
        await Workflow(failing, [calls.step("one")], calls.step("after"))(NOTHING)
    assert calls.names == ["before"]


async def test_all_tasks_run_to_their_end_and_the_first_error_is_told(calls: Calls) -> None:
    tasks = [calls.step("one", SyncError("first")), calls.step("two", SyncError("second"))]
    with capture_logs() as logs, pytest.raises(SyncError, match="first"):
        await Workflow(None, tasks, calls.step("after"))(NOTHING)
    assert calls.names == ["one", "two"]
    assert [(entry["event"], entry["error"]) for entry in logs] == [("task_failed_too", "second")]


async def test_the_error_that_is_told_is_that_of_the_task_that_failed_first(calls: Calls) -> None:
    early = calls.step("early", SyncError("early"))

    async def late(_: Reconciliation) -> None:
        for _turn in range(10):
            await asyncio.sleep(0)
        msg = "late"
        raise SyncError(msg)

    with capture_logs() as logs, pytest.raises(SyncError, match="early"):
        await Workflow(tasks=[late, early])(NOTHING)
    assert [entry["error"] for entry in logs] == ["late"]


async def test_what_a_task_returns_is_nobodys_business(calls: Calls) -> None:
    async def drawn(_: Reconciliation) -> bool:
        return True

    step = cast("Reconcile", drawn)
    await Workflow(step, [step], calls.step("after"))(NOTHING)
    assert calls.names == ["after"]


async def test_a_task_that_fails_does_not_cut_its_siblings_off(calls: Calls) -> None:
    ended: list[str] = []

    async def slow(_: Reconciliation) -> None:
        for _turn in range(10):
            await asyncio.sleep(0)
        ended.append("slow")

    with pytest.raises(SyncError):
        await Workflow(tasks=[calls.step("one", SyncError("no")), slow])(NOTHING)
    assert ended == ["slow"]


async def test_tasks_run_beside_each_other() -> None:
    meeting = asyncio.Barrier(2)

    async def meet(_: Reconciliation) -> None:
        await meeting.wait()

    async with asyncio.timeout(30):
        await Workflow(tasks=[meet, meet])(NOTHING)


async def test_a_handler_that_returns_lets_the_next_phase_run(calls: Calls) -> None:
    await Workflow(
        calls.step("before", SyncError("no")),
        [calls.step("one", SyncError("nor this"))],
        calls.step("after", SyncError("nor that")),
        calls.step("handler"),
    )(NOTHING)
    assert calls.names == ["before", "handler", "one", "handler", "after", "handler"]


async def test_a_handler_that_raises_ends_the_workflow(calls: Calls) -> None:
    handler = calls.step("handler", SyncError("really"))
    tasks = [calls.step("one", SyncError("no"))]
    with pytest.raises(SyncError, match="really"):
        await Workflow(None, tasks, calls.step("after"), handler)(NOTHING)
    assert calls.names == ["one", "handler"]


async def test_a_handler_gets_what_was_carried_in_and_what_was_raised(calls: Calls) -> None:
    carried, raised = SyncError("loop"), SyncError("no")
    workflow = Workflow(
        calls.step("before", raised), [calls.step("one")], error_handler=calls.step("handler")
    )
    await workflow(replace(NOTHING, error=carried))
    joined = calls.seen["handler"].error
    assert isinstance(joined, ExceptionGroup)
    assert joined.exceptions == (carried, raised)
    # What was suppressed is not carried on; what was carried in is.
    assert calls.seen["one"].error is carried


async def test_a_handler_gets_the_error_alone_where_none_was_carried_in(calls: Calls) -> None:
    raised = SyncError("no")
    await Workflow(calls.step("before", raised), error_handler=calls.step("handler"))(NOTHING)
    assert calls.seen["handler"].error is raised


async def test_all_that_one_reconcile_calls_share_a_state(calls: Calls) -> None:
    async def write(reconciliation: Reconciliation) -> None:
        reconciliation.state["paths"] = 3

    failing = [calls.step("one", SyncError("no"))]
    await Workflow(write, failing, calls.step("after"), calls.step("handler"))(
        replace(NOTHING, state={})
    )
    states = [calls.seen[name].state for name in ("one", "handler", "after")]
    assert states == [{"paths": 3}] * 3
    assert Reconciliation((), NOTHING.topology).state == {}


async def test_an_empty_workflow_does_nothing() -> None:
    await Workflow()(NOTHING)


async def test_a_workflow_is_a_task_of_another(calls: Calls) -> None:
    inner = Workflow(tasks=[calls.step("one", SyncError("no"))])
    with pytest.raises(SyncError, match="no"):
        await Workflow(tasks=[inner], postcondition=calls.step("after"))(NOTHING)
    assert calls.names == ["one"]


async def test_a_cancellation_is_no_error_of_a_task(calls: Calls) -> None:
    workflow = Workflow(
        tasks=[calls.step("one", asyncio.CancelledError())], error_handler=calls.step("handler")
    )
    with pytest.raises(asyncio.CancelledError):
        await workflow(NOTHING)
    assert calls.names == ["one"]


async def test_a_workflow_that_is_cancelled_cancels_its_tasks() -> None:
    begun = asyncio.Event()
    cut: list[bool] = []

    async def endless(_: Reconciliation) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cut.append(True)

    running = asyncio.create_task(Workflow(tasks=[endless])(NOTHING))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cut == [True]


def made(event: str, kind: str) -> ResourceEvent:
    body = gateway() if kind == "Gateway" else route("my-gateway")
    old, new = event != "create", event != "delete"
    id_ = GATEWAY if kind == "Gateway" else next(iter(ROUTES))
    return ResourceEvent(id_, NS, "my-gateway", body if old else None, body if new else None)


async def test_a_step_may_be_about_one_type_of_events_alone(calls: Calls) -> None:
    act = calls.step("gone")

    async def on_deletes(reconciliation: Reconciliation) -> None:
        gone = [e for e in reconciliation.events if (e.kind, e.type) == (GATEWAY, EventType.DELETE)]
        if gone:
            await act(replace(reconciliation, events=gone))

    workflow = Workflow(tasks=[on_deletes, calls.step("all")])
    await workflow(
        replace(NOTHING, events=[made("update", "Gateway"), made("delete", "HTTPRoute")])
    )
    assert calls.names == ["all"]
    events = [made("delete", "Gateway"), made("create", "HTTPRoute")]
    await workflow(replace(NOTHING, events=events))
    assert calls.seen["gone"].events == events[:1]
    assert calls.seen["all"].events == events
