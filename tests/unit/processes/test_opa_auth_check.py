from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from kube_sync.config import Opa
from kube_sync.errors import Refused, Retriable, SyncError
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import opa_client
from kube_sync.processes.opa_auth_check import CONDITION, watch_authorization
from tests.fakes.http import answer
from tests.fakes.opa import fake_opa

OPEN, CLOSED = True, False


class Ended(Exception):
    """The test has seen enough."""


class Looks:
    """An OPA that is found open, closed or away, look by look."""

    def __init__(self, *found: bool | SyncError) -> None:
        self.found = list(found)

    async def answers_strangers(self) -> bool:
        found = self.found.pop(0)
        if isinstance(found, SyncError):
            raise found
        return found


def until(looks: Looks, pauses: list[float]) -> Callable[[float], Awaitable[None]]:
    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if not looks.found:
            raise Ended

    return sleep


async def watched(readiness: Readiness, *found: bool | SyncError) -> list[float]:
    looks, pauses = Looks(*found), list[float]()
    with pytest.raises(Ended):
        await watch_authorization(looks, "https://opa", readiness, sleep=until(looks, pauses))
    return pauses


async def test_an_open_opa_is_told_of_until_it_is_closed() -> None:
    readiness = Readiness()
    await watched(readiness, OPEN)
    assert "OPA https://opa answers whoever has no token" in readiness.reasons[CONDITION]
    await watched(readiness, CLOSED)
    assert readiness.reasons == {}


async def test_what_is_known_stands_while_opa_is_away() -> None:
    readiness = Readiness()
    await watched(readiness, OPEN, Retriable("away"))
    assert CONDITION in readiness.reasons
    await watched(readiness, CLOSED, Retriable("away"))
    assert readiness.conditions == {CONDITION: "ok"}


async def test_it_looks_sooner_while_something_is_wrong() -> None:
    pauses = await watched(Readiness(), OPEN, Refused("?"), CLOSED)
    assert pauses[0] == pauses[1] < pauses[2]


async def test_a_stranger_shows_no_token() -> None:
    async with fake_opa() as opa:
        opa.config = {}
        async with opa_client(Opa(url=opa.http.url)) as client:
            assert await client.answers_strangers()
            for status in (401, 403, 404):
                opa.http.fault(lambda _: True, answer(status, b"{}"))
                assert not await client.answers_strangers()
            opa.http.fault(lambda _: True, answer(500, b"{}"))
            with pytest.raises(SyncError):
                await client.answers_strangers()
