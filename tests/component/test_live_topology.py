"""One live topology behind real Reflectors, beside an API server that is not always well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.reflector import Reflector
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.topology import GroupKind
from kube_sync.topology.controller.controller import Controller
from kube_sync.topology.controller.live_topology import LiveTopology
from kube_sync.topology.controller.workflow import Reconciliation
from kube_sync.topology.controller.world import World
from kube_sync.topology.nodes import Locator
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, lists
from tests.fakes.clients import key, kube_of
from tests.fakes.http import Recorded, answer
from tests.fakes.topologies import API, GROUP, NS, Object, gateway, gateway_class, route
from tests.fakes.topologies import GATEWAY as GW
from tests.fakes.worlds import KINDS, Kinds
from tests.unit.async_tools import Waits, running

CLASSES = GroupVersionResource(GROUP, "v1", "gatewayclasses")
GATEWAYS = GroupVersionResource(GROUP, "v1", "gateways")
ROUTES = GroupVersionResource(GROUP, "v1", "httproutes")
FOLLOWED = {CLASSES: "GatewayClass", GATEWAYS: "Gateway", ROUTES: "HTTPRoute"}
ROUTE = Locator(f"httproute.{GROUP}:{NS}/route")


class Followed:
    """What a controller has heard of one API server."""

    def __init__(self, api: FakeApiServer, gone_after: float) -> None:
        self.api = api
        self.news = asyncio.Event()
        self.world = World(self.news.set, gone_after=gone_after)
        self.live = LiveTopology(self.world, Kinds(()), API.kinds, API.links)
        self.events: list[str] = []
        self.reports: dict[str, list[str | None]] = {}
        self.notes: list[str | None] = []
        self.calls = 0
        self.held = True

    def reflector(self, client: KubeClient, gvr: GroupVersionResource) -> Reflector:
        store = self.world.store(KINDS[GroupKind(gvr.group, FOLLOWED[gvr])])
        source = KubeCollection(client, gvr)
        report = self.reports.setdefault(gvr.resource, []).append
        return Reflector(str(gvr), source, store, report, backoff=Waits().backoff())

    async def reconcile(self, reconciliation: Reconciliation) -> None:
        self.calls += 1
        self.events += [f"{event.type} {event.name}" for event in reconciliation.events]
        self.api.http.tell()

    async def heard(self, *events: str) -> None:
        """Wait until these have come, and nothing else."""
        await self.api.http.until(lambda: len(self.events) >= len(events))
        assert sorted(self.events) == sorted(events)
        self.events.clear()

    def holds(self, *names: Locator) -> bool:
        return all(name in self.live.topology for name in names)


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        for gvr, kind in FOLLOWED.items():
            api.define(gvr, kind, builtin=False, namespaced=gvr != CLASSES)
        put(api, CLASSES, gateway_class())
        put(api, GATEWAYS, gateway())
        put(api, ROUTES, route())
        yield api


def put(api: FakeApiServer, gvr: GroupVersionResource, body: Object) -> None:
    metadata = body["metadata"]
    where = ObjectKey(metadata.get("namespace", ""), metadata["name"])
    api.put(gvr, where, metadata=metadata, spec=body["spec"])


@asynccontextmanager
async def following(
    api: FakeApiServer, folder: Path, *, gone_after: float = 30.0
) -> AsyncGenerator[Followed]:
    found = Followed(api, gone_after)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(kube_of(api, folder))
        controller = Controller(
            found.live,
            found.news,
            found.reconcile,
            found,
            found.notes.append,
            quiet=0.005,
            longest=0.05,
        )
        reflectors = [found.reflector(client, gvr) for gvr in FOLLOWED]
        await stack.enter_async_context(running(controller.run(), *(r.run() for r in reflectors)))
        yield found


def routes(recorded: Recorded) -> bool:
    return recorded.path == ROUTES.path()


async def test_a_cluster_is_one_reconcile_and_a_change_another(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with following(api, tmp_path) as found:
        await found.heard("create my-gateway-class", "create my-gateway", "create route")
        assert found.calls == 1
        assert found.live.topology.paths_to(Locator(f"{ROUTE}#rule-1"))
        await api.watched(*FOLLOWED)
        put(api, ROUTES, route("other"))
        await found.heard("create other")
        assert found.calls == 2


async def test_a_first_list_that_fails_delays_everything_and_deletes_nothing(
    api: FakeApiServer, tmp_path: Path
) -> None:
    api.http.fault(lists(ROUTES), answer(500), times=2)
    async with following(api, tmp_path) as found:
        await found.heard("create my-gateway-class", "create my-gateway", "create route")
        assert found.calls == 1


async def test_a_list_that_fails_later_deletes_nothing(api: FakeApiServer, tmp_path: Path) -> None:
    """A world without routes would make every policy of theirs one without a target."""
    async with following(api, tmp_path) as found:
        await found.heard("create my-gateway-class", "create my-gateway", "create route")
        await api.watched(*FOLLOWED)
        fault = api.http.fault(lists(ROUTES), answer(500), times=2)
        put(api, ROUTES, route("other"))
        api.compact()  # before anybody was told: 410
        await api.http.until(fault.met.is_set)
        assert found.holds(ROUTE)
        await found.heard("create other")
        assert found.holds(ROUTE)
        assert any(found.reports["httproutes"])


async def test_what_was_deleted_while_nobody_could_tell_is_deleted(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with following(api, tmp_path) as found:
        await found.heard("create my-gateway-class", "create my-gateway", "create route")
        await api.watched(*FOLLOWED)
        api.delete(ROUTES, key("route", NS))
        put(api, ROUTES, route("other"))
        api.compact()
        await found.heard("delete route", "create other")


async def test_a_kind_that_is_not_there_for_a_moment_loses_nothing(
    api: FakeApiServer, tmp_path: Path
) -> None:
    """As while an API server starts."""
    async with following(api, tmp_path) as found:
        await found.heard("create my-gateway-class", "create my-gateway", "create route")
        await api.watched(*FOLLOWED)
        fault = api.http.fault(routes, answer(404, b"404 page not found\n"), times=3)
        api.http.cut()
        await api.http.until(lambda: fault.times == 0)
        await api.watched(*FOLLOWED)
        put(api, ROUTES, route("other"))
        await found.heard("create other")
        assert found.holds(ROUTE, GW)
        assert found.world.due is None


async def test_a_kind_that_stays_away_is_gone_after_a_while(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with following(api, tmp_path, gone_after=0.02) as found:
        await found.heard("create my-gateway-class", "create my-gateway", "create route")
        await api.watched(*FOLLOWED)
        api.undefine(ROUTES)
        await found.heard("delete route")
        assert not found.holds(ROUTE)
        assert found.holds(GW)


async def test_a_kind_that_was_never_there_is_not_waited_for(
    api: FakeApiServer, tmp_path: Path
) -> None:
    api.undefine(ROUTES)
    async with following(api, tmp_path) as found:
        await found.heard("create my-gateway-class", "create my-gateway")
        api.define(ROUTES, "HTTPRoute", builtin=False)
        put(api, ROUTES, route())
        await found.heard("create route")
