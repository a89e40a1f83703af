from __future__ import annotations

import asyncio
import math

import pytest

from kube_sync.errors import (
    Conflict,
    NotFound,
    Overloaded,
    Refused,
    Retriable,
    SyncError,
    Terminal,
)
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.meta import Apply
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.plan import Write
from kube_sync.remediation.writer import Outcome, Writer
from tests.fakes.clients import REPLICASETS, key

KEY = (REPLICASETS, key("web"))
STEP = Apply("u", {"a": "1"})


class Server:
    def __init__(self, answer: SyncError | None = None, *, hangs: bool = False) -> None:
        self.answer, self.hangs = answer, hangs
        self.asked = 0

    async def patch(self, _gvr: GroupVersionResource, _key: ObjectKey, _step: Write) -> None:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.answer is not None:
            raise self.answer


async def test_a_process_that_may_not_write_sends_nothing() -> None:
    server = Server()
    writer = Writer(server.patch, FencedWriter(lambda: 0.0))
    outcome = await writer.write(KEY, STEP)
    assert (outcome.status, outcome.written, server.asked, writer.may) == (
        "fenced",
        False,
        0,
        False,
    )


async def test_an_answer_is_only_waited_for_as_long_as_this_process_may_write() -> None:
    """What became of it nobody knows."""
    writer = Writer(Server(hangs=True).patch, FencedWriter(lambda: 0.01))
    outcome = await writer.write(KEY, STEP)
    assert (outcome.status, outcome.written) == ("fenced", None)


@pytest.mark.parametrize("left", [10.0, math.inf])
async def test_a_patch_that_is_answered_was_written(left: float) -> None:
    assert await Writer(Server().patch, FencedWriter(lambda: left)).write(KEY, STEP) == Outcome(
        "applied", written=True
    )


@pytest.mark.parametrize(
    ("error", "status", "written", "retry_after"),
    [
        (NotFound("404"), "gone", False, 0),
        (Terminal("422"), "refused", False, 0),
        (Refused("403"), "forbidden", False, 0),
        (Conflict("409"), "retried", False, 0),
        (Retriable("429", 7.0), "retried", None, 7.0),
        (Retriable("503"), "retried", None, 0),
    ],
)
async def test_an_error_is_told_by_what_to_do_next(
    error: SyncError, status: str, written: object, retry_after: float
) -> None:
    outcome = await Writer(Server(error).patch, FencedWriter(lambda: math.inf)).write(KEY, STEP)
    assert (outcome.status, outcome.written, outcome.retry_after) == (status, written, retry_after)
    assert outcome.error == str(error)


class Pace:
    def __init__(self) -> None:
        self.heard: list[tuple[str, float, float | None]] = []

    def now(self) -> float:
        return 5.0

    def answered(self, started: float) -> None:
        self.heard.append(("answered", started, None))

    def overloaded(self, started: float, retry_after: float | None = None) -> None:
        self.heard.append(("overloaded", started, retry_after))


@pytest.mark.parametrize(
    ("error", "heard"),
    [
        (None, [("answered", 5.0, None)]),
        (Overloaded("429", 7.0), [("overloaded", 5.0, 7.0)]),
        (Overloaded("no answer in time"), [("overloaded", 5.0, None)]),
        # None of these says how much the API server has to do.
        (Retriable("500 a webhook failed"), []),
        (Conflict("409"), []),
        (NotFound("404"), []),
        (Refused("403"), []),
        (Terminal("422"), []),
    ],
)
async def test_the_pace_hears_of_successes_and_of_a_server_with_too_much_to_do(
    error: SyncError | None, heard: list[tuple[str, float, float | None]]
) -> None:
    pace = Pace()
    writer = Writer(Server(error).patch, FencedWriter(lambda: math.inf), pace=pace)
    await writer.write(KEY, STEP)
    assert pace.heard == heard


async def test_a_patch_that_ended_with_the_lease_says_nothing_of_the_server() -> None:
    pace = Pace()
    await Writer(Server(hangs=True).patch, FencedWriter(lambda: 0.01), pace=pace).write(KEY, STEP)
    assert pace.heard == []
