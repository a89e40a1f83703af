"""Conditions on a fake API server: written once, by one, and again when they are not right."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kube_sync.errors import Retriable
from kube_sync.kube.collection import Event, Item, KubeCollection, ResourceVersion
from kube_sync.kube.reflector import Reflector
from kube_sync.objects import ObjectKey
from kube_sync.scheduling.conditionkeeper import ConditionKeeper
from kube_sync.scheduling.kinds import SCHEDULING_POLICIES
from kube_sync.scheduling.policies import HeldPolicies
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, patches
from tests.fakes.clients import kube_of
from tests.fakes.http import answer

Json = dict[str, Any]


@dataclass
class World:
    """A cluster, and an OPA that finds a problem wherever a policy says `wrong`."""

    api: FakeApiServer
    folder: Path
    held: bool = True
    answers: bool = True
    asked: list[Json] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    keeper: ConditionKeeper | None = None

    async def query(self, path: str, body: bytes) -> bytes | None:
        assert path == "kube_sync/scheduling/validation/report"
        self.asked.append(json.loads(body)["input"]["object"])
        if not self.answers:
            reason = "OPA is away"
            raise Retriable(reason)
        wrong = "wrong" in self.asked[-1]["spec"]
        return json.dumps({"problems": ["wrong"] if wrong else [], "findings": []}).encode()

    def put(self, name: str, generation: int = 1, **content: Any) -> None:
        metadata = {"generation": generation}
        self.api.put(SCHEDULING_POLICIES, ObjectKey("", name), metadata=metadata, **content)

    def accepted(self, name: str) -> Any:
        found = self.api.get(SCHEDULING_POLICIES, ObjectKey("", name)).get("status", {})
        return {c["type"]: c for c in found.get("conditions", [])}.get("Accepted", {})

    async def until_accepted(self, name: str, status: str, generation: int = 1) -> None:
        def right() -> bool:
            found = self.accepted(name)
            return (found.get("status"), found.get("observedGeneration")) == (status, generation)

        await self.api.http.until(right)

    def writes(self) -> int:
        return sum(map(patches(SCHEDULING_POLICIES), self.api.http.requests))

    async def settled(self) -> None:
        """Wait until all that was ever told has been judged."""
        seen = -1
        while seen != len(self.asked):
            seen = len(self.asked)
            await asyncio.sleep(0.02)  # nothing tells that nothing comes

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with kube_of(self.api, self.folder) as client:
            now = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))
            self.keeper = ConditionKeeper(client, self, self, self.told.append, now=lambda: now)
            source = KubeCollection(client, SCHEDULING_POLICIES)
            reflector = Reflector("policies", source, self.keeper.store, lambda _reason: None)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one.run()) for one in (reflector, self.keeper)]
                await self.api.watched(SCHEDULING_POLICIES)
                yield
                for task in tasks:
                    task.cancel()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api:
        api.define(SCHEDULING_POLICIES, "SchedulingPolicy", builtin=False, namespaced=False)
        yield World(api, tmp_path)


async def test_policies_that_are_there_and_that_come_get_conditions(world: World) -> None:
    world.put("good", spec={})
    async with world.running():
        world.put("bad", spec={"wrong": 1})
        await world.until_accepted("good", "True")
        await world.until_accepted("bad", "False")
    assert world.accepted("bad")["message"] == "wrong"
    assert world.accepted("bad")["lastTransitionTime"] == "2025-12-31T22:00:00Z"


async def test_status_is_applied_apart_from_the_spec_by_a_manager_of_its_own(world: World) -> None:
    world.put("good", spec={})
    async with world.running():
        await world.until_accepted("good", "True")
    (request,) = filter(patches(SCHEDULING_POLICIES), world.api.http.requests)
    assert request.path == SCHEDULING_POLICIES.path(name="good") + "/status"
    assert request.query == {"fieldManager": "kube-sync-scheduling", "force": "true"}
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert request.json().keys() == {"apiVersion", "kind", "metadata", "status"}


async def test_conditions_that_are_right_are_not_written_again(world: World) -> None:
    world.put("good", spec={})
    async with world.running():
        await world.until_accepted("good", "True")
        await world.settled()
        assert world.keeper is not None
        world.keeper.wake()
        await world.settled()
    async with world.running():  # a new process
        await world.settled()
    assert len(world.asked) > 2
    assert world.writes() == 1


async def test_changed_policy_is_judged_again(world: World) -> None:
    world.put("it", spec={})
    async with world.running():
        await world.until_accepted("it", "True")
        world.put("it", 2, spec={"wrong": 1})
        await world.until_accepted("it", "False", 2)


async def test_condition_that_somebody_changed_is_put_right(world: World) -> None:
    world.put("it", spec={})
    async with world.running():
        await world.until_accepted("it", "True")
        lie = {"type": "Accepted", "status": "False", "reason": "X", "message": "lie"}
        world.put("it", spec={}, status={"conditions": [lie]})
        await world.until_accepted("it", "True")


async def test_only_who_holds_the_lease_writes_and_catches_up_then(world: World) -> None:
    world.held = False
    world.put("it", spec={})
    async with world.running():
        await world.settled()
        assert world.writes() == len(world.asked) == 0
        world.held = True
        assert world.keeper is not None
        world.keeper.wake()
        await world.until_accepted("it", "True")


async def test_opa_that_is_away_is_asked_again(world: World) -> None:
    world.answers = False
    world.put("it", spec={})
    async with world.running():
        while len(world.asked) < 3:  # noqa: ASYNC110 - nothing is requested of the API server
            await asyncio.sleep(0.01)
        assert world.told[-1] == "it: OPA is away"
        assert world.accepted("it") == {}
        world.answers = True
        await world.until_accepted("it", "True")
        await world.settled()
    assert world.told[-1] == "ok"


async def test_api_server_that_refuses_is_tried_again(world: World) -> None:
    fault = world.api.http.fault(
        patches(SCHEDULING_POLICIES), answer(500, b"no", retry_after="0"), 2
    )
    world.put("it", spec={})
    async with world.running():
        await world.until_accepted("it", "True")
    assert fault.times == 0


async def test_policy_that_goes_meanwhile_is_no_trouble(world: World) -> None:
    gone = answer(404, b'{"message":"gone"}', kind="application/json")
    fault = world.api.http.fault(patches(SCHEDULING_POLICIES), gone)
    world.put("it", spec={})
    async with world.running():
        await fault.met.wait()
        await world.settled()
        world.api.delete(SCHEDULING_POLICIES, ObjectKey("", "it"))
        world.put("next", spec={})
        await world.until_accepted("next", "True")
    assert set(world.told) == {"ok"}


def item(name: str, body: bytes = b'{"metadata":{"generation":4}}') -> Item:
    return Item(ObjectKey("", name), "u", ResourceVersion("1"), body)


async def test_list_that_broke_off_changes_nothing() -> None:
    told: list[ObjectKey] = []
    store = HeldPolicies(told.append)
    await store.page([item("a")])
    store.abandon()
    assert list(store) == told == []


async def test_policy_that_a_list_lacks_is_told_as_gone() -> None:
    told: list[ObjectKey] = []
    store = HeldPolicies(told.append)
    await store.page([item("a")])
    store.finish(known=True)
    store.finish(known=False)
    assert told == [ObjectKey("", "a")] * 2
    assert store.get(ObjectKey("", "a")) is None


def test_bookmark_tells_nothing_and_an_odd_status_counts_as_none() -> None:
    told: list[ObjectKey] = []
    store = HeldPolicies(told.append)
    store.apply(Event("BOOKMARK", ResourceVersion("1")))
    assert told == []
    store.apply(Event("ADDED", ResourceVersion("1"), item("a", b'{"status":1,"metadata":{}}')))
    held = store.get(ObjectKey("", "a"))
    assert held is not None
    assert (held.generation, held.conditions) == (0, ())
