from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kube_sync.kube.events import Occurrence
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.objects import ObjectKey
from kube_sync.policysync.events import PolicySyncEvents
from kube_sync.policysync.gateway_class_status import GatewayClassReconciler
from kube_sync.policysync.hub_status_writer import CONTROLLER, HubStatusWriter
from kube_sync.policysync.hubstate import GATEWAY_CLASSES
from kube_sync.policysync.validation import VERBS
from kube_sync.runtime.backoff import Backoff
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import kube_of
from tests.fakes.copies import AUTH
from tests.fakes.http import failing
from tests.unit.async_tools import running
from tests.unit.policysync.test_hubstate import DEFINITION, TLS, World, drop, put, ref

MULTI = ObjectKey("", "multi")
TYPE = "kube-sync.io/PolicySync"


class Rig:
    def __init__(
        self, api: FakeApiServer, telling: HubStatusWriter, *, allowed: bool = True
    ) -> None:
        self.api = api
        self.now = 0.0
        self.world = World(allowed=allowed)
        self.held = True
        self.events: list[Occurrence] = []
        self.news = PolicySyncEvents(
            lambda what, _: self.events.append(what), self.world.state.kind
        )
        self.classes = GatewayClassReconciler(
            self.world.state,
            telling,
            lambda: self.held,
            self.news,
            backoff=lambda: Backoff(0.001, 0.001),
            clock=lambda: self.now,
        )
        self.become("example.com/other")

    def become(self, controller: str) -> None:
        spec = {"controllerName": controller, "parametersRef": ref("params")}
        found = self.api.put(GATEWAY_CLASSES, MULTI, spec=spec)
        put(self.world.state.classes, MULTI, metadata=dict(found["metadata"]), spec=spec)

    async def settle(self) -> dict[str, tuple[str, str]]:
        self.classes.enqueue("multi")
        for _ in range(40):
            await asyncio.sleep(0.001)
        listed = self.api.get(GATEWAY_CLASSES, MULTI).get("status", {}).get("conditions", [])
        return {one["type"]: (one["status"], one["reason"]) for one in listed}

    @property
    def writes(self) -> list[Any]:
        return [one for one in self.api.http.requests if one.method != "GET"]


@asynccontextmanager
async def rig_of(tmp_path: Path, *, allowed: bool = True) -> AsyncGenerator[Rig]:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.define(GATEWAY_CLASSES, "GatewayClass", builtin=False, namespaced=False)
        found = Rig(
            api,
            HubStatusWriter(client, FencedWriter(lambda: 10.0)),
            allowed=allowed,
        )
        async with running(found.classes.run()):
            yield found


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncGenerator[Rig]:
    async with rig_of(tmp_path) as found:
        yield found


async def test_a_class_is_told_once_what_its_parameters_come_to(rig: Rig) -> None:
    assert await rig.settle() == {TYPE: ("True", "Valid")}
    assert await rig.settle() == {TYPE: ("True", "Valid")}
    assert len(rig.writes) == 1


async def test_accepted_is_said_of_our_own_classes_alone(rig: Rig) -> None:
    rig.become(CONTROLLER)
    assert (await rig.settle())["Accepted"] == ("True", "Accepted")
    drop(rig.world.state.definitions, DEFINITION)
    assert (await rig.settle())["Accepted"] == ("False", "InvalidParameters")


async def test_what_is_not_found_out_yet_is_not_said_for_a_moment(tmp_path: Path) -> None:
    async with rig_of(tmp_path, allowed=False) as rig:
        assert await rig.settle() == {}
        rig.now += 11.0
        assert await rig.settle() == {TYPE: ("Unknown", "Pending")}
        rig.world.state.set_allowed_verbs(AUTH, VERBS)
        assert await rig.settle() == {TYPE: ("True", "Valid")}


async def test_who_does_not_write_says_nothing_until_it_does(rig: Rig) -> None:
    rig.held = False
    assert await rig.settle() == {}
    rig.held = True
    rig.classes.enqueue_all()
    assert await rig.settle() == {TYPE: ("True", "Valid")}


async def test_what_could_not_be_said_is_said_later(rig: Rig) -> None:
    rig.api.http.fault(lambda r: r.method == "PATCH", failing(500, "no"), times=2)
    assert await rig.settle() == {TYPE: ("True", "Valid")}
    assert len(rig.writes) == 3


async def test_a_class_that_is_gone_is_passed_over(rig: Rig) -> None:
    rig.api.http.fault(lambda r: r.method == "PATCH", failing(404, "gone"))
    assert await rig.settle() == {}
    drop(rig.world.state.classes, MULTI)
    assert await rig.settle() == {}
    assert len(rig.writes) == 1


async def test_a_slip_in_parameters_that_were_followed_is_told_on_anybodys_class(rig: Rig) -> None:
    await rig.settle()
    put(rig.world.state.configmaps, ObjectKey("system", "params"), data={"parms": "{}"})
    assert await rig.settle() == {TYPE: ("False", "InvalidParameters")}


async def test_a_kind_that_is_refused_is_an_event_on_the_class_once(rig: Rig) -> None:
    await rig.settle()
    assert rig.events == []
    drop(rig.world.state.definitions, DEFINITION)
    await rig.settle()
    await rig.settle()
    (event,) = rig.events
    assert (event.regarding.kind, event.namespace) == ("GatewayClass", "default")
    listed = rig.api.get(GATEWAY_CLASSES, MULTI)["status"]["conditions"]
    assert [event.note] == [one["message"] for one in listed if one["type"] == TYPE]
    assert (event.reason, event.warns) == ("InvalidParameters", True)


async def test_what_the_class_says_already_is_not_told_by_another_process(rig: Rig) -> None:
    drop(rig.world.state.definitions, DEFINITION)
    await rig.settle()
    rig.news.reset()
    rig.events.clear()
    await rig.settle()
    assert rig.events == []
    rig.world.listen(TLS)
    await rig.settle()
    assert [one.reason for one in rig.events] == ["InvalidParameters"]


async def test_a_class_that_cannot_be_written_is_told_by_one_event_all_the_same(rig: Rig) -> None:
    drop(rig.world.state.definitions, DEFINITION)
    rig.api.http.fault(lambda r: r.method == "PATCH", failing(500, "no"), times=2)
    await rig.settle()
    assert len(rig.events) == 1
