from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from aiohttp import web

from kube_sync.errors import Refused, Retriable
from kube_sync.kube.access import REVIEWS
from kube_sync.policysync.policy_reflectors import Permissions
from kube_sync.policysync.validation import Faulty, Valid
from kube_sync.runtime.backoff import Backoff
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import kube_of
from tests.fakes.copies import AUTH
from tests.fakes.http import Proceed
from tests.fakes.hubs import with_status
from tests.unit.async_tools import LoopTime, running, until
from tests.unit.policysync.test_hubstate import TLS, World

ALL = ("get", "list", "watch", "patch", "patch status")


class Rig:
    def __init__(self, api: FakeApiServer) -> None:
        self.api = api
        self.world = World(allowed=False)
        self.granted = {*ALL}
        self.failing = 0
        api.http.fault(lambda r: r.path == REVIEWS.path(), self._answer, times=10**6)

    async def _answer(self, request: web.Request, _proceed: Proceed) -> web.StreamResponse:
        if self.failing:
            self.failing -= 1
            return web.json_response({}, status=500)
        asked = (await request.json())["spec"]["resourceAttributes"]
        verb = " ".join(filter(None, (asked["verb"], asked.get("subresource"))))
        body = json.dumps({"status": {"allowed": verb in self.granted}})
        return web.Response(text=body, status=201, content_type="application/json")

    @property
    def is_valid(self) -> bool:
        return isinstance(self.world.state.verdict(AUTH), Valid)

    @property
    def is_faulty(self) -> bool:
        return isinstance(self.world.state.verdict(AUTH), Faulty)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncGenerator[tuple[Rig, Permissions]]:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        found = Rig(api)
        quick = Permissions(
            client, found.world.state, resync_seconds=0.02, backoff=lambda: Backoff(0.001, 0.001)
        )
        async with running(quick.run()):
            yield found, quick


async def test_a_kind_that_is_listed_is_asked_for(rig: tuple[Rig, Permissions]) -> None:
    found, permissions = rig
    permissions.update()
    await until(lambda: found.is_valid)


@pytest.mark.parametrize("taken", ["list", "watch", "patch", "patch status"])
async def test_a_permission_that_is_taken_or_given_is_noticed(
    rig: tuple[Rig, Permissions], taken: str
) -> None:
    found, permissions = rig
    with_status(found.world)
    permissions.update()
    await until(lambda: found.is_valid)
    found.granted = {*ALL} - {taken}
    await until(lambda: found.is_faulty)
    found.granted = {*ALL}
    await until(lambda: found.is_valid)


async def test_a_request_that_fails_says_nothing_of_a_permission(
    rig: tuple[Rig, Permissions],
) -> None:
    found, permissions = rig
    found.failing = 3
    permissions.update()
    await until(lambda: found.is_valid)
    found.failing = 1
    await until(lambda: not found.failing)
    assert found.is_valid


async def test_a_refusal_has_it_asked_again_at_once(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        found = Rig(api)
        slow = Permissions(
            client, found.world.state, resync_seconds=1e6, backoff=lambda: Backoff(0.001, 0.001)
        )
        async with running(slow.run()):
            slow.update()
            await until(lambda: found.is_valid)
            found.granted = set()
            slow.enqueue_refused(AUTH, Retriable("no answer"))
            slow.enqueue_refused(TLS, Refused("of a kind that nobody lists"))
            asked = len(api.http.requests)
            slow.enqueue_refused(AUTH, Refused("forbidden"))
            await until(lambda: found.is_faulty)
            assert {r.json()["spec"]["resourceAttributes"]["resource"]
                    for r in api.http.requests[asked:]} == {AUTH.resource}  # fmt: skip


async def test_a_kind_that_no_class_lists_is_asked_for_no_more(
    rig: tuple[Rig, Permissions], monkeypatch: pytest.MonkeyPatch
) -> None:
    time = LoopTime(monkeypatch)
    found, permissions = rig
    permissions.update()
    await until(lambda: found.is_valid)
    found.world.listen()
    permissions.update()
    found.granted = set()
    await until(lambda: not time.timers)
    asked = len(found.api.http.requests)
    permissions.update()
    assert len(found.api.http.requests) == asked
