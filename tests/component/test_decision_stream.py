"""From the API server to a reader of the stream that loses its connection, between the fakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import aiohttp
import pytest

from kube_sync.config import Decisions, Policies, Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    Record,
    Source,
    StatusRecord,
)
from kube_sync.decisions.stream import PATH, stream_app
from kube_sync.decisions.streamclient import StreamClient
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tokenfile import TokenFile
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, key
from tests.fakes.opa import fake_opa
from tests.fakes.replicating import replicator_between
from tests.unit.async_tools import PATIENCE, Waits, running, until

POLICIES = "policies"


class World:
    """A replicator between fakes, and one that reads its stream."""

    def __init__(self, api: FakeApiServer, hub: DecisionHub) -> None:
        self.api = api
        self.hub = hub
        self.records: list[Record | None] = []
        self.port = 0

    async def read(self) -> None:
        settings = Decisions(url=f"http://127.0.0.1:{self.port}{PATH}")
        async with aiohttp.ClientSession() as session:
            backoff = Waits().backoff(0.1, 5.0)
            client = StreamClient(settings, session, lambda _: None, backoff)
            async with aclosing(client.records()) as records:
                async for record in records:
                    self.records.append(record)

    async def until_current(self) -> None:
        """Wait until the reader has everything."""
        async with asyncio.timeout(PATIENCE):
            await until(lambda: not self.hub.held and self.records)
            await until(lambda: BookmarkRecord(self.hub.seq, "test") in self.records)

    @property
    def held(self) -> tuple[str, ...]:
        """What the reader was told last."""
        return [record.held for record in self.records if isinstance(record, StatusRecord)][-1]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api, fake_opa() as opa:
        api.define(REPLICASETS, "ReplicaSet")
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(CLUSTERS, "ClusterProfile", builtin=False)
        opa.decide = lambda _object, data: {
            "annotations": {"clusters": sorted(data["kubernetes"]["clusters"].get("fleet", {}))}
        }
        for name in ("east", "west"):
            api.put(CLUSTERS, key(name, "fleet"))
        for name in "ab":
            api.put(REPLICASETS, key(name))
        api.put(CONFIGMAPS, key("p", POLICIES), data={"a.rego": "package a"})
        world = World(api, DecisionHub("test"))
        settings = Settings(policies=Policies(namespaces=(POLICIES,)))
        async with replicator_between(api, opa, tmp_path, settings, hub=world.hub):
            await api.watched(REPLICASETS, CLUSTERS, CONFIGMAPS)
            await until(lambda: not world.hub.held and world.hub.count == 2)
            yield world


async def test_reader_that_lost_its_connection_hears_only_of_what_changed_meanwhile(
    world: World,
) -> None:
    app = stream_app(world.hub, TokenFile(None))
    async with serving(app, ("127.0.0.1", 0), grace=0.05) as world.port:
        reader = asyncio.ensure_future(world.read())
        await world.until_current()
        assert world.records[0] is None
    world.records.clear()
    world.api.delete(REPLICASETS, key("a"))
    world.api.delete(CLUSTERS, key("west", "fleet"))
    await until(lambda: world.hub.count == 1 and world.hub.seq == 4)
    app = stream_app(world.hub, TokenFile(None))
    async with serving(app, ("127.0.0.1", world.port), grace=0.05):
        await world.until_current()
    reader.cancel()
    await asyncio.wait([reader])
    assert None not in world.records
    told = [r for r in world.records if isinstance(r, DecisionRecord | DeletedRecord)]
    assert sorted(record.object.name for record in told) == ["a", "b"]
    (change,) = (record for record in told if isinstance(record, DecisionRecord))
    assert (change.cause, change.source) == ("data", Source("clusters", "fleet/west"))
    assert world.held == ()


async def test_policy_that_stops_compiling_is_noted_and_moves_nothing(world: World) -> None:
    async with (
        serving(stream_app(world.hub, TokenFile(None)), ("127.0.0.1", 0), grace=0.05) as world.port,
        running(world.read()),
    ):
        await world.until_current()
        seq = world.hub.seq
        where = key("p", POLICIES)
        world.api.put(CONFIGMAPS, where, data={"a.rego": "does not compile"})
        await until(lambda: _notes(world))
        assert _notes(world)[0].startswith("policy ConfigMap policies/p: not in force as it is")
        assert (world.hub.seq, world.held) == (seq, ())
        world.api.put(CONFIGMAPS, where, data={"a.rego": "package a"})
        await until(lambda: not _notes(world))


def _notes(world: World) -> tuple[str, ...]:
    return [record.notes for record in world.records if isinstance(record, StatusRecord)][-1]
