"""How many PATCHes a remediator sends at once, behind a network that delays or refuses them.

The proxy ends TLS, so that it sees requests and can answer in the API server's place.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kube_sync.certificates import issue, make_authority
from kube_sync.decisions.decision import Decision
from tests.eventually import eventually
from tests.fakes.standin import StandIn, stand_in
from tests.faults.proxy import FaultProxy, reply
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import replica_set
from tools.servers.apiserver import write_kubeconfig
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.http import get
from tools.servers.running import RunningServer
from tools.servers.stack import RunningStack

_OBJECTS = 120
_LIMIT = b"kube_sync_remediation_concurrency"


class World:
    """ReplicaSets, decisions on them, and a remediator behind a proxy."""

    def __init__(self, stack: RunningStack, engine: StandIn, namespace: str) -> None:
        self.stack, self.engine, self.namespace = stack, engine, namespace
        self.uids: dict[str, str] = {}

    def create(self) -> None:
        for number in range(_OBJECTS):
            manifest = replica_set(f"web-{number}")
            manifest["metadata"] |= {"namespace": self.namespace}
            created = self.stack.api.create(manifest)["metadata"]
            self.uids[created["name"]] = created["uid"]

    async def decide(self, text: str) -> None:
        decision = Decision({"new": text})
        await self.engine.decide(
            *((self.namespace, name, uid, decision) for name, uid in self.uids.items())
        )

    async def until_written(self, text: str) -> None:
        await eventually(lambda: self._written(text), _OBJECTS)

    def _written(self, text: str) -> int:
        found = self.stack.api.get("replicasets", namespace=self.namespace)["items"]
        marks = [(item["metadata"].get("annotations") or {}).get("new") for item in found]
        return marks.count(text)


def _limit(server: RunningServer) -> float:
    lines = get(f"{server.spec.url}/metrics").body.splitlines()
    return float(next(line for line in lines if line.startswith(_LIMIT + b" ")).split()[1])


@asynccontextmanager
async def _behind_a_proxy(
    world: World, folder: Path
) -> AsyncGenerator[tuple[FaultProxy, RunningServer]]:
    authority = make_authority("kube-sync test proxy")
    ca_file = write_file(folder / "ca.crt", authority.cert_pem)
    write_pair(folder, "tls", issue(authority, "proxy", LOOPBACK))
    serve = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serve.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    reach = ssl.create_default_context(cafile=world.stack.apiserver_ca_file)
    port = urlsplit(world.stack.apiserver_url).port or 443
    async with FaultProxy(port, serve=serve, reach=reach) as proxy:
        url, token = f"https://127.0.0.1:{proxy.port}", world.stack.kube_tokens["remediator"]
        kubeconfig = write_kubeconfig(folder, "remediator", url, ca_file, token)
        guard = {**GUARD_OFF, "known_clusters": False}
        server = await asyncio.to_thread(
            start_service,
            "remediate",
            folder / "remediator",
            {
                "kubernetes": {"kubeconfig": str(kubeconfig)},
                "decisions": {"url": world.engine.url},
                "remediate": {"guard": guard},
            },
        )
        try:
            yield proxy, server
        finally:
            await asyncio.to_thread(server.stop)


@pytest.fixture
async def world(stack: RunningStack, namespace: str) -> AsyncGenerator[World]:
    async with stand_in() as engine:
        world = World(stack, engine, namespace)
        await asyncio.to_thread(world.create)
        yield world


async def test_a_delay_raises_the_concurrency_and_429_lowers_it_and_is_obeyed(
    world: World, tmp_path: Path
) -> None:
    async with _behind_a_proxy(world, tmp_path) as (proxy, server):
        first = _limit(server)
        proxy.delay = 0.02
        await world.decide("one")
        await world.until_written("one")
        raised = _limit(server)
        assert raised > first > 1
        proxy.reply(b"PATCH ", reply(429, "Retry-After: 1"), 3)
        await world.decide("two")
        await eventually(lambda: proxy.replied, expected=True)
        await eventually(lambda: _limit(server) < raised, expected=True)
        await world.until_written("two")
