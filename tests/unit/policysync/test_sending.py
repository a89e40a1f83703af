from __future__ import annotations

import asyncio
import math

import pytest
from prometheus_client import REGISTRY

from kube_sync.errors import Conflict, NotFound, Refused, Retriable, SyncError, Terminal
from kube_sync.kube.sending import Fenced
from kube_sync.policysync.sending import sending


def counted(outcome: str) -> float:
    labels = {"operation": "apply", "outcome": outcome}
    return REGISTRY.get_sample_value("kube_sync_policy_sync_writes_total", labels) or 0.0


async def answer() -> str:
    return "done"


@pytest.mark.parametrize("left", [5.0, math.inf])
async def test_who_may_write_does(left: float) -> None:
    before = counted("done")
    assert await sending(lambda: left).send("apply", answer) == "done"
    assert counted("done") == before + 1


async def test_who_may_not_does_not_begin() -> None:
    with pytest.raises(Fenced, match="another one"):
        await sending(lambda: 0.0).send("apply", _never)


async def test_what_is_under_way_ends_with_the_permission() -> None:
    before = counted("fenced")
    with pytest.raises(Fenced, match="while this one may write"):
        await sending(lambda: 0.01).send("apply", lambda: asyncio.sleep(60))
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
        await sending(lambda: 5.0).send("apply", fail)
    assert counted(word) == before + 1


async def _never() -> None:
    pytest.fail("it was begun")
