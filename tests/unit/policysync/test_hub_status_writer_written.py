from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kube_sync.errors import Conflict, Retriable
from kube_sync.kube.conditions import Condition
from kube_sync.kube.fencedwriter import Fenced, FencedWriter
from kube_sync.objects import ObjectKey
from kube_sync.policysync.copies import MANAGER, PLACED, STATUS
from kube_sync.policysync.hub_status_writer import CONTROLLER, HubStatusWriter
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import kube_of
from tests.fakes.copies import AUTH
from tests.fakes.http import answer

KEY = ObjectKey("shop", "login")
SYNCED = Condition("kube-sync.io/Synced", "True", "Synced", "synced to east")


class World:
    def __init__(self, api: FakeApiServer, telling: HubStatusWriter) -> None:
        self.api = api
        self.telling = telling
        self.left = 10.0

    @property
    def writes(self) -> list[Any]:
        return [one for one in self.api.http.requests if one.method != "GET"]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.define(AUTH, "AuthPolicy", builtin=False)
        api.put(AUTH, KEY, metadata={"annotations": {PLACED: "[]", "other": "x"}}, spec={})
        fenced = FencedWriter(lambda: found.left)
        now = datetime(2026, 1, 1, tzinfo=UTC)
        found = World(api, HubStatusWriter(client, fenced, lambda: now))
        yield found


async def test_annotations_are_written_where_they_differ(world: World) -> None:
    body = world.api.get(AUTH, KEY)
    assert await world.telling.annotate(AUTH, body, {PLACED: "[]", STATUS: None}) == body
    assert world.writes == []
    after = await world.telling.annotate(AUTH, body, {PLACED: "[1]", STATUS: None})
    assert after["metadata"]["annotations"] == {PLACED: "[1]", "other": "x"}
    (write,) = world.writes
    assert write.json()["metadata"]["annotations"] == {PLACED: "[1]"}


async def test_conditions_are_applied_in_our_name(world: World) -> None:
    body = world.api.get(AUTH, KEY)
    after = await world.telling.conditions(AUTH, body, [SYNCED], kind="AuthPolicy")
    (write,) = world.writes
    assert write.path.endswith("/login/status")
    assert write.query["fieldManager"] == MANAGER
    assert after["status"]["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert await world.telling.conditions(AUTH, after, [SYNCED]) == after
    assert len(world.writes) == 1
    await world.telling.conditions(AUTH, after, [])
    assert world.writes[-1].json()["status"] == {}


async def test_ancestors_are_written_on_what_was_read(world: World) -> None:
    body = world.api.get(AUTH, KEY)
    web = ObjectKey("shop", "web")
    after = await world.telling.ancestors(AUTH, body, [web], [SYNCED])
    (entry,) = after["status"]["ancestors"]
    assert entry["controllerName"] == CONTROLLER
    assert await world.telling.ancestors(AUTH, after, [web], [SYNCED]) == after
    with pytest.raises(Conflict):
        await world.telling.ancestors(AUTH, body, [web], [SYNCED])


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": {"name": 5, "annotations": []}, "status": []},
        {"metadata": [], "status": {"ancestors": [], "conditions": 3}},
    ],
)
async def test_what_cannot_be_read_is_left_as_it_is(world: World, broken: Any) -> None:
    assert await world.telling.annotate(AUTH, broken, {PLACED: "[1]"}) == broken
    assert await world.telling.conditions(AUTH, broken, [SYNCED]) == broken
    assert await world.telling.ancestors(AUTH, broken, [], [SYNCED]) == broken
    assert world.writes == []


async def test_an_answer_that_is_no_object_is_tried_again(world: World) -> None:
    world.api.http.fault(lambda r: r.method == "PATCH", answer(200, b"[]"))
    with pytest.raises(Retriable, match="no object"):
        await world.telling.annotate(AUTH, world.api.get(AUTH, KEY), {PLACED: None})


async def test_nothing_is_written_by_who_may_not(world: World) -> None:
    world.left = 0.0
    body = world.api.get(AUTH, KEY)
    for what in (
        world.telling.annotate(AUTH, body, {PLACED: None}),
        world.telling.conditions(AUTH, body, [SYNCED]),
        world.telling.ancestors(AUTH, body, [KEY], [SYNCED]),
    ):
        with pytest.raises(Fenced):
            await what
    assert world.writes == []
