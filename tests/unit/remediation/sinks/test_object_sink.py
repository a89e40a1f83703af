from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.errors import Conflict
from kube_sync.guard import ADDITION, HISTORY
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.configmaps import CONFIGMAPS
from kube_sync.kube.meta import Apply
from kube_sync.objects import ObjectKey
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Nothing, Publish, Step, Wanted, Write, with_history
from kube_sync.remediation.sinks.object_sink import Kept, ObjectForm, ObjectSink
from kube_sync.remediation.sinks.placement import named
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import REPLICASETS, kube_of
from tests.fakes.listing import Listing, listed

KEY = REPLICASETS, ObjectKey("shop", "web")
PLACE = ObjectKey("shop", "placement-web")
TARGET = Current("u", {"other": "x"}, {}, "7")
VERSION = ResourceVersion("1")


def read(item: Item) -> Kept | None:
    data = json.loads(item.body)["data"]
    if "foreign" in data:
        return None
    return Kept((REPLICASETS, ObjectKey("shop", data["name"])), data["uid"], data["in"].split())


def document(wanted: Kept) -> dict[str, Any]:
    metadata = {"name": PLACE.name, "namespace": "shop", "annotations": {"team": "a"}}
    data = {"name": wanted.target[1].name, "uid": wanted.uid, "in": " ".join(wanted.clusters)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class World:
    def __init__(self, server: FakeApiServer, sink: ObjectSink) -> None:
        self.server, self.sink = server, sink
        self.changed: list[Collection[Key] | None] = []
        sink.subscribe(self.changed.append)

    def stored(self) -> Any:
        return self.server.get(CONFIGMAPS, PLACE)

    def relist(self, *more: Item) -> None:
        found = [] if PLACE not in self.server.objects(CONFIGMAPS) else [self.item()]
        listed(self.sink.store, Listing([*found, *more], VERSION))

    def item(self) -> Item:
        found = self.stored()
        version = ResourceVersion(found["metadata"]["resourceVersion"])
        return Item(PLACE, "o", version, json.dumps(found).encode())

    def plan(self, *clusters: str, target: Current | None = TARGET, addition: str = "") -> Step:
        wanted = Wanted("", Decision({PLACEMENT: named(clusters)}), addition=addition or None)
        current = None if target is None else self.sink.read(KEY, target)
        return self.sink.plan(KEY, wanted, current)

    async def write(self, step: Step) -> None:
        assert isinstance(step, Write)
        await self.sink.write(KEY, step)
        self.relist()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as server:
        server.define(CONFIGMAPS, "ConfigMap")
        async with kube_of(server, tmp_path) as kube:
            found = World(server, ObjectSink("maps", ObjectForm(CONFIGMAPS, read, document), kube))
            assert found.sink.unknown
            found.relist()
            assert found.sink.unknown == ""
            yield found


async def test_a_placement_is_created_read_back_changed_and_deleted(world: World) -> None:
    step = world.plan("us", "eu")
    assert isinstance(step, Publish)
    assert step.annotations == {PLACEMENT: named(["eu", "us"])}
    await world.write(with_history(step, "[1]"))
    assert world.stored()["data"]["in"] == "eu us"
    assert world.stored()["metadata"]["annotations"] == {"team": "a", HISTORY: "[1]"}
    found = world.sink.read(KEY, TARGET)
    assert found.annotations == {PLACEMENT: named(["eu", "us"]), HISTORY: "[1]"}
    assert (world.plan("us", "eu"), world.sink.keys()) == (Nothing(), [KEY])
    await world.write(world.plan("ap"))
    assert world.stored()["data"]["in"] == "ap"
    assert world.stored()["metadata"]["annotations"][HISTORY] == "[1]"
    await world.write(world.plan(target=None))
    assert (dict(world.server.objects(CONFIGMAPS)), world.sink.keys()) == ({}, [])
    assert world.plan(target=None) == Nothing()


async def test_the_record_of_a_move_comes_and_goes_with_its_placement(world: World) -> None:
    await world.write(world.plan("eu"))
    await world.write(world.plan("eu", "us", addition="{}"))
    assert world.sink.read(KEY, TARGET).annotations[ADDITION] == "{}"
    await world.write(world.plan("eu", "us", addition='{"step":"kept"}'))
    assert world.sink.read(KEY, TARGET).annotations[ADDITION] == '{"step":"kept"}'
    await world.write(world.plan("us"))
    assert ADDITION not in world.stored()["metadata"]["annotations"]


async def test_what_changed_since_it_was_read_is_neither_written_nor_deleted(world: World) -> None:
    await world.write(world.plan("eu"))
    change, end = world.plan("us"), world.plan(target=None)
    await world.sink.write(KEY, _write(world.plan("ap")))
    for step in (change, end):
        with pytest.raises(Conflict):
            await world.sink.write(KEY, _write(step))
    assert world.stored()["data"]["in"] == "ap"


async def test_what_is_of_an_earlier_target_of_the_name_is_deleted_first(world: World) -> None:
    await world.write(world.plan("eu"))
    new = replace(TARGET, uid="new")
    assert world.sink.read(KEY, new).annotations == {}
    await world.write(world.plan("us", target=new))
    assert not world.server.objects(CONFIGMAPS)
    await world.write(world.plan("us", target=new))
    assert world.stored()["data"] == {"name": "web", "uid": "new", "in": "us"}


async def test_each_target_whose_object_differs_is_told(world: World) -> None:
    await world.sink.write(KEY, _write(world.plan("eu")))
    world.changed.clear()
    world.sink.store.apply(Event("ADDED", VERSION, world.item()))
    world.sink.store.apply(Event("DELETED", VERSION, world.item()))
    assert world.changed == [[KEY], [KEY]]
    world.relist()
    assert world.changed[2:] == [[KEY], None]


@pytest.mark.parametrize("data", ['{"foreign":"x"}', "{}", "7"])
async def test_what_is_not_of_this_sink_or_cannot_be_read_is_left(world: World, data: str) -> None:
    body = f'{{"metadata":{{"name":"x"}},"data":{data}}}'.encode()
    world.relist(Item(ObjectKey("shop", "x"), "o", VERSION, body))
    assert world.sink.keys() == []


async def test_a_step_of_another_sink_is_refused(world: World) -> None:
    with pytest.raises(TypeError, match="maps"):
        await world.sink.write(KEY, Apply("u", {PLACEMENT: "x"}))


def _write(step: Step) -> Write:
    assert isinstance(step, Write)
    return step
