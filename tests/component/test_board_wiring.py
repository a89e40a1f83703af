"""The page as the replicator is wired to serve it, between the fakes."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube_sync.config import Decisions, Opa, Policies, Remediate, Settings, Source
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.stream import stream_app
from kube_sync.observability.readiness import Readiness
from kube_sync.processes.board import serve_board
from kube_sync.processes.context import Context
from kube_sync.processes.replicating import replicate
from kube_sync.runtime.draining import Drain
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tokenfile import TokenFile
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, key, kube_of, opa_of
from tests.fakes.opa import FakeOpa, fake_opa
from tests.fakes.replicating import replicator_between
from tests.unit.async_tools import until

POLICIES = "policies"
STORY = f"/v1/board/story?resource=replicasets.v1.apps&namespace={key('a').namespace}&name=a"
SETTINGS = Settings(
    policies=Policies(namespaces=(POLICIES,)), remediate=Remediate(listen="127.0.0.1:1")
)


def _context(settings: Settings, stack: AsyncExitStack, kube: Any) -> Context:
    readiness = Readiness()
    return Context(settings, readiness, stack, kube, Drain(1.0, readiness.waiting))


@asynccontextmanager
async def _world(folder: Path) -> AsyncGenerator[tuple[FakeApiServer, FakeOpa, str]]:
    """Yield the fakes with a replicator between them, and where its page is."""
    hub = DecisionHub("test")
    async with fake_apiserver() as api, fake_opa() as opa, AsyncExitStack() as stack:
        api.define(REPLICASETS, "ReplicaSet")
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(CLUSTERS, "ClusterProfile", builtin=False)
        opa.decide = lambda _object, data: {
            "annotations": {"clusters": sorted(data["kubernetes"]["clusters"].get("fleet", {}))}
        }
        api.put(CLUSTERS, key("east", "fleet"))
        api.put(REPLICASETS, key("a"))
        api.put(CONFIGMAPS, key("p", POLICIES), data={"a.rego": "package a"})
        client = await stack.enter_async_context(opa_of(opa))
        async with replicator_between(api, opa, folder, SETTINGS, hub=hub) as replicator:
            context = _context(SETTINGS, stack, None)
            board = await serve_board(context, replicator, hub, client)
            app = stream_app(hub, TokenFile(None), board.routes, tokenless=board.tokenless)
            async with serving(app, ("127.0.0.1", 0), grace=0.05) as port:
                await until(lambda: not hub.held and hub.count == 1)
                yield api, opa, f"http://127.0.0.1:{port}"


async def test_page_knows_what_the_replicator_knows(tmp_path: Path) -> None:
    async with _world(tmp_path) as (api, _, url), aiohttp.ClientSession(url) as session:

        async def get(path: str) -> Any:
            async with session.get(path) as response:
                assert response.status == 200, await response.text()
                return await response.json()

        fleet = await get("/v1/board/fleet")
        assert [one["name"] for one in fleet["fleet"]["clusters"]] == ["east"]
        health = await get("/v1/board/health")
        assert [(c["name"], c["objects"], c["loaded"]) for c in health["collections"]] == [
            ("clusters", 1, True),
            ("replicasets", 1, True),
        ]
        assert health["policies"]["modules"] == [f"{POLICIES}/p/a.rego"]
        assert health["policies"]["digest"]
        story = await get(STORY)
        assert story["record"]["decision"]["annotations"] == {"clusters": '["east"]'}
        assert not story["decided_otherwise"]
        assert "does not answer" in story["waiting_failure"]
        api.put(CONFIGMAPS, key("q", POLICIES), data={"b.rego": "package b\ndoes not compile"})
        api.put(CLUSTERS, key("west", "fleet"))
        while not (health := await get("/v1/board/health"))["policies"]["rejected"]:
            pass
        (rejected,) = health["policies"]["rejected"]
        assert (rejected["name"], "unexpected" in rejected["error"]) == (f"{POLICIES}/q", True)
        while not (found := await get("/v1/board/history"))["changes"]:
            pass
        (change,) = found["changes"]
        assert change["source"] == {"collection": "clusters", "object": "fleet/west", "count": 1}


@pytest.mark.parametrize(("board", "status"), [(True, 200), (False, 404)])
async def test_page_is_served_unless_it_is_switched_off(
    tmp_path: Path,
    board: bool,  # noqa: FBT001 - as the setting
    status: int,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    settings = Settings(
        decisions=Decisions(listen=listen, board=board),
        opa=Opa(binary="true"),  # never run here
    )
    async with fake_apiserver() as api, kube_of(api, tmp_path) as kube, AsyncExitStack() as stack:
        await replicate(_context(settings, stack, kube), Source(None, {}))
        async with aiohttp.ClientSession(f"http://{listen}") as session:
            for path in ("/ui", "/v1/board/history"):
                async with session.get(path) as response:
                    assert response.status == status
