from __future__ import annotations

import asyncio
import math

import pytest
from prometheus_client import REGISTRY

from kube_sync.errors import Conflict, NotFound, Refused, Retriable, SyncError, Terminal
from kube_sync.kube.fencedwriter import Fenced, FencedWriter
from kube_sync.observability import metrics


def counted(outcome: str) -> float:
    labels = {"operation": "apply", "outcome": outcome}
    return REGISTRY.get_sample_value("kube_sync_policy_sync_writes_total", labels) or 0.0


def fenced(seconds_left: float) -> FencedWriter:
    return FencedWriter(lambda: seconds_left, metrics.policy_sync_writes)


async def answer() -> str:
    return "done"


@pytest.mark.parametrize("left", [5.0, math.inf])
async def test_who_may_write_does(left: float) -> None:
    before = counted("done")
    assert await fenced(left).send("apply", answer) == "done"
    assert fenced(left).may_write
    assert counted("done") == before + 1


async def test_who_may_not_does_not_begin() -> None:
    assert not fenced(0.0).may_write
    with pytest.raises(Fenced, match="another one") as raised:
        await fenced(0.0).send("apply", _never)
    assert not raised.value.sent


async def test_what_is_under_way_ends_with_the_permission() -> None:
    before = counted("fenced")
    with pytest.raises(Fenced, match="while this one may write") as raised:
        await fenced(0.01).send("apply", lambda: asyncio.sleep(60))
    assert raised.value.sent
    assert counted("fenced") == before + 1


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (NotFound("x"), "gone"),
        (Conflict("x"), "conflict"),
        (Refused("x"), "forbidden"),
        (Terminal("x"), "refused"),
        (Retriable("x"), "failed"),
    ],
)
async def test_what_fails_is_counted_by_why(error: SyncError, word: str) -> None:
    async def fail() -> None:
        raise error

    before = counted(word)
    with pytest.raises(type(error)):
        await fenced(5.0).send("apply", fail)
    assert counted(word) == before + 1


async def _never() -> None:
    pytest.fail("it was begun")


async def test_a_counter_may_have_a_word_of_its_own_for_success_or_be_left_out() -> None:
    labels = {"operation": "picture", "outcome": "written"}
    name = "kube_sync_topology_writes_total"
    before = REGISTRY.get_sample_value(name, labels) or 0.0
    writer = FencedWriter(lambda: 5.0, metrics.topology_writes, success="written")
    assert await writer.send("picture", answer) == "done"
    assert REGISTRY.get_sample_value(name, labels) == before + 1
    assert await FencedWriter(lambda: 5.0).send("picture", answer) == "done"
