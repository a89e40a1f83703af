"""The soak's own eyes: whatever is planted into OPA, the stream or an object is found."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmarks.bare import Bare
from tools.demo.fleet import FLEET, PREFERENCES
from tools.servers.stack import RunningStack
from tools.soak.checks import DECISION, Checks, Diverged, only_newer_policies
from tools.soak.scene import ADMIT, REMEDIATE, REPLICATE, Scene, Ways
from tools.soak.stream import Told
from tools.soak.wishes import Wish, eligible, first_clusters, placement, workload

SPACE, CLUSTERS = "shop", 5
KEYS = [(SPACE, f"app-{index}") for index in range(6)]
_PLURALS = {"clusterprofiles": "clusters", "replicasets": "replicasets"}

Tree = dict[str, dict[str, dict[str, Any]]]  # collection, namespace, name


@dataclass
class Servers:
    """An API server and an OPA in one, which agree until a test plants something."""

    stored: Tree
    held: Tree
    editions: dict[str, int]
    unready: set[str] = field(default_factory=set)
    revision: int = 100

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/apis/{group}/{version}/{plural}", self._list)
        app.router.add_get("/apis/{g}/{v}/namespaces/{where}/{plural}", self._list)
        app.router.add_get("/apis/{g}/{v}/namespaces/{where}/{plural}/{name}", self._get)
        app.router.add_get("/api/v1/namespaces/{where}/configmaps", self._maps)
        app.router.add_get("/v1/data/soak/versions/{name}/{where}", self._versions)
        app.router.add_get("/v1/data/kubernetes/{name}/{where}", self._data)
        app.router.add_get("/v1/data/bench", self._bench)
        app.router.add_post(f"/v1/data/{DECISION}", self._decide)
        app.router.add_get("/{service}/readyz", self._readyz)
        return app

    async def _list(self, request: web.Request) -> web.Response:
        tree = self.stored[_PLURALS[request.match_info["plural"]]]
        only = request.match_info.get("where")
        items = [
            o for where, inside in tree.items() if only in (None, where) for o in inside.values()
        ]
        metadata = {"resourceVersion": str(self.revision)}
        return web.json_response({"metadata": metadata, "items": items})

    async def _get(self, request: web.Request) -> web.Response:
        info = request.match_info
        found = self.stored[_PLURALS[info["plural"]]].get(info["where"], {}).get(info["name"])
        return web.json_response(found or {}, status=200 if found else 404)

    async def _maps(self, _: web.Request) -> web.Response:
        items = [
            {"metadata": {"name": f"other-{name}"}, "data": {"m.rego": f"edition := {edition}\n"}}
            for name, edition in self.editions.items()
        ]
        return web.json_response({"items": items})

    async def _versions(self, request: web.Request) -> web.Response:
        inside = self.held[request.match_info["name"]].get(request.match_info["where"], {})
        found = {name: o["metadata"]["resourceVersion"] for name, o in inside.items()}
        return web.json_response({"result": found})

    async def _data(self, request: web.Request) -> web.Response:
        info = request.match_info
        return web.json_response({"result": self.held[info["name"]].get(info["where"])})

    async def _bench(self, _: web.Request) -> web.Response:
        return web.json_response({"result": {"p0": {"edition": 3}}})

    async def _decide(self, request: web.Request) -> web.Response:
        asked = json.loads(await request.read())["input"]["metadata"]["annotations"]
        clusters = self.held["clusters"][FLEET].values()
        said = placement(asked, clusters) if eligible(asked, clusters) else {}
        return web.json_response({"result": {"annotations": said, "errors": []}})

    async def _readyz(self, request: web.Request) -> web.Response:
        return web.Response(status=503 if request.match_info["service"] in self.unready else 200)


@dataclass
class World:
    servers: Servers
    checks: Checks
    told: Told

    def tell(self, key: tuple[str, str], annotations: dict[str, str]) -> None:
        about = {"namespace": key[0], "name": key[1]}
        line = {"type": "decision", "object": about, "decision": {"annotations": annotations}}
        self.told.take(json.dumps(line).encode())


def at(version: int, manifest: dict[str, Any], where: str) -> dict[str, Any]:
    metadata = {**manifest["metadata"], "namespace": where, "resourceVersion": str(version)}
    return {**manifest, "metadata": metadata}


def agreed() -> tuple[Tree, Tree]:
    """Return what the API server has and what OPA holds, of the same objects."""

    def tree() -> Tree:
        clusters = first_clusters(CLUSTERS)
        objects = {}
        for index, key in enumerate(KEYS):
            made = workload(*key, Wish(90 if index % 2 else 101))
            made["metadata"]["annotations"] |= placement(
                made["metadata"]["annotations"], clusters.values()
            )
            objects[key[1]] = at(10 + index, made, SPACE)
        fleet = {name: at(5, made, FLEET) for name, made in clusters.items()}
        return {"clusters": {FLEET: fleet}, "replicasets": {SPACE: objects}}

    return tree(), tree()


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    """Servers that agree, and checks without patience."""
    servers = Servers(*agreed(), {"0": 3})
    async with TestServer(servers.app()) as server, aiohttp.ClientSession() as session:
        url = str(server.make_url("")).rstrip("/")
        stack = cast("RunningStack", SimpleNamespace(apiserver_url=url, opa_url=url))
        scene = Scene(stack, Bare(stack, session, session), cast("Ways", None))
        for name in (REPLICATE, REMEDIATE, ADMIT):
            scene.services[name] = cast("Any", SimpleNamespace(url=f"{url}/{name}"))
        told = Told()
        told.held = ()
        found = World(servers, Checks(scene, told, CLUSTERS, [SPACE], patience=0.0), told)
        for key in KEYS:
            stored = servers.stored["replicasets"][SPACE][key[1]]["metadata"]["annotations"]
            found.tell(key, {PREFERENCES: stored[PREFERENCES]})
        yield found


async def look(world: World) -> dict[str, int]:
    """Look at everything, as at the end of a soak."""
    await world.checks.answering()
    await world.checks.current(KEYS)
    return {
        "asked": await world.checks.all_decided([SPACE]),
        "placed": await world.checks.placements([SPACE]),
        "compared": await world.checks.whole([SPACE]),
        "policies": await world.checks.editions(),
    }


async def test_servers_that_agree_show_no_divergence(world: World) -> None:
    assert await look(world) == {"asked": 6, "placed": 6, "compared": 11, "policies": 1}


def _lost(world: World) -> None:
    del world.servers.held["replicasets"][SPACE]["app-3"]


def _stale(world: World) -> None:
    world.servers.held["replicasets"][SPACE]["app-3"]["metadata"]["resourceVersion"] = "9"


def _ghost(world: World) -> None:
    del world.servers.stored["replicasets"][SPACE]["app-3"]


def _otherwise(world: World) -> None:
    world.servers.held["replicasets"][SPACE]["app-3"]["spec"]["replicas"] = 5


def _cluster(world: World) -> None:
    del world.servers.held["clusters"][FLEET]["cluster-001"]


def _missed(world: World) -> None:
    world.tell(KEYS[3], {PREFERENCES: '{"clusters":{},"rebalance":true}'})


def _untold(world: World) -> None:
    world.told.begin()
    world.told.take(b'{"type": "bookmark"}')


def _beyond(world: World) -> None:
    world.tell((SPACE, "app-gone"), {})


def _moved(world: World) -> None:
    metadata = world.servers.stored["replicasets"][SPACE]["app-3"]["metadata"]
    metadata["annotations"][PREFERENCES] = '{"clusters":{"cluster-004":{"weight":1}}}'


def _misplaced(world: World) -> None:
    """Everybody agrees, on what is wrong."""
    wrong = {PREFERENCES: '{"clusters":{"cluster-004":{"weight":1}}}'}
    for tree in (world.servers.stored, world.servers.held):
        tree["replicasets"][SPACE]["app-3"]["metadata"]["annotations"] |= wrong
    world.tell(KEYS[3], wrong)


def _edition(world: World) -> None:
    world.servers.editions["0"] = 4


def _unready(world: World) -> None:
    world.servers.unready.add(REMEDIATE)


def _held(world: World) -> None:
    world.told.held = ("OPA is being loaded",)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (_lost, "app-3: missing"),
        (_stale, "held as of 9, not 13"),
        (_ghost, "deleted, and still held"),
        (_otherwise, "held otherwise than it is at 13"),
        (_cluster, "OPA says|missing"),
        (_missed, "the stream's annotations"),
        (_untold, "told no decision"),
        (_beyond, "decisions are of objects that are there"),
        (_moved, "not annotated as decided"),
        (_misplaced, "the stream's annotations|belongs on"),
        (_edition, "OPA has the policies"),
        (_unready, "all are ready"),
        (_held, "OPA is being loaded"),
    ],
)
async def test_planted_divergence_is_found(
    world: World, plant: Callable[[World], None], said: str
) -> None:
    plant(world)
    with pytest.raises(Diverged, match=said):
        await look(world)


async def test_wrong_placement_is_found_without_opa(world: World) -> None:
    _misplaced(world)
    with pytest.raises(Diverged, match="app-3: belongs on"):
        await world.checks.placements([SPACE])


async def test_object_deleted_while_it_was_compared_is_no_divergence(world: World) -> None:
    """It was listed, and is in OPA no more; the API server says that it is gone."""
    listed = await world.checks._listed("replicasets", SPACE)  # noqa: SLF001 - between its two reads
    del world.servers.stored["replicasets"][SPACE]["app-3"]
    _lost(world)
    assert await world.checks._behind("replicasets", SPACE, *listed) == []  # noqa: SLF001 - between its two reads


async def test_server_that_does_not_answer_is_a_divergence_in_the_end(world: World) -> None:
    world.servers.held["clusters"].clear()  # no decision can be made of that
    with pytest.raises(Diverged, match="OPA decides"):
        await world.checks.answering()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("data: ok\npolicies: OPA has not fetched and activated them yet\nnot ready\n", True),
        ("data: not loaded yet\npolicies: OPA has not fetched and activated them yet\n", False),
        ("data: ok\npolicies: they are loaded after the data\nnot ready\n", False),
        ("", False),
    ],
)
def test_policies_that_came_a_moment_ago_are_no_trouble(*, said: str, expected: bool) -> None:
    assert only_newer_policies(said) is expected
