"""The replicator as a process behind fault proxies, what it copies, and what OPA made of it.

Objects are written, read and compared with a client that shares no code with kube_sync.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import itertools
import json
import random
import secrets
import ssl
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.bare import Bare
from kube_sync.certificates import issue, make_authority
from tests.faults.proxy import FaultProxy
from tools.demo.fleet import cluster, namespace, replica_set
from tools.servers.apiserver import write_kubeconfig
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.http import get, request
from tools.servers.pauses import pauses
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, ServerSpec, free_port
from tools.servers.stack import RunningStack

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ("faults-a", "faults-b", "faults-c")
CLUSTERS, REPLICASETS = "clusters", "replicasets"
_APIS = {
    CLUSTERS: "/apis/multicluster.x-k8s.io/v1alpha1",
    REPLICASETS: "/apis/apps/v1",
}
_PLURALS = {CLUSTERS: "clusterprofiles", REPLICASETS: "replicasets"}
_KINDS = {
    CLUSTERS: {"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile"},
    REPLICASETS: {"apiVersion": "apps/v1", "kind": "ReplicaSet"},
}
_DEFINITION = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterprofiles.multicluster.x-k8s.io"
)
_ANYTHING = {
    "op": "add",
    "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec"
    "/x-kubernetes-preserve-unknown-fields",
    "value": True,
}
_PATIENCE = 60.0  # seconds: past the longest back-off, 30
_POLL = 0.05
_AT_ONCE = 16
_AT_MOST = 80  # objects that come and go

Tree = dict[str, Any]


def seeded(seed: int) -> random.Random:
    """Return chances that the same seed gives again."""
    return random.Random(seed)  # noqa: S311 - not a secret


async def until(what: str, check: Callable[[], object]) -> None:
    """Wait until `check`, a function or a coroutine's, returns something true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE
    for pause in pauses():  # other processes: there is no event to await
        found = check()
        if await found if inspect.isawaitable(found) else found:
            return
        assert loop.time() < deadline, f"after {_PATIENCE:.0f} s still not: {what}"
        await asyncio.sleep(pause)


@dataclass
class Way:
    """The way from the replicator to one server: cuts on the outer proxy, answers on the inner."""

    outer: FaultProxy
    inner: FaultProxy

    def calm(self) -> None:
        for proxy in (self.outer, self.inner):
            proxy.calm()

    def answer(self, reply: bytes, times: int, wanted: bytes = b"/") -> None:
        """Let the next requests be answered so, new connections' first ones among them."""
        self.inner.reply(wanted, reply, times)
        self.outer.cut()

    def cut_often(self, chance: random.Random, most: int) -> None:
        """Cut all connections again and again, up to `most` bytes apart."""

        def cut() -> None:
            self.outer.cut()
            self.outer.after(chance.randrange(most), cut)

        cut()


@dataclass
class Objects:
    """What is in the API server, changed at random."""

    bare: Bare
    chance: random.Random
    alive: set[tuple[str, str, str]] = field(default_factory=set)  # collection, namespace, name
    prefix: str = field(default_factory=lambda: secrets.token_hex(3))  # replays need new names
    count: int = 0
    done: int = 0  # by the churn

    async def create(self, collection: str | None = None) -> None:
        kind = collection or self.chance.choice((REPLICASETS, REPLICASETS, CLUSTERS))
        self.count += 1
        name, where = f"{self.prefix}-{self.count}", self.chance.choice(NAMESPACES)
        made = (
            cluster(name, "europe-west1", "2")
            if kind == CLUSTERS
            else replica_set(name, pci=str(self.count % 3))
        )
        made["metadata"]["namespace"] = where
        made["metadata"].setdefault("annotations", {})["padding"] = "x" * 900 + "~1/%2F é"
        await self.bare.kube("POST", _path(kind, where), made)
        self.alive.add((kind, where, name))

    async def change(self) -> None:
        await self.mark(*self.chance.choice(sorted(self.alive)))

    async def mark(self, kind: str, where: str, name: str) -> None:
        """Change one label."""
        mark = {"metadata": {"labels": {"mark": str(self.chance.randrange(10**6))}}}
        await self.bare.kube("PATCH", _path(kind, where, name), mark, "merge-patch+json")

    async def delete(self) -> None:
        gone = self.chance.choice(sorted(self.alive))
        self.alive.discard(gone)
        kind, where, name = gone
        await self.bare.kube("DELETE", _path(kind, where, name))

    async def some(self, number: int) -> None:
        """Do so many random things, one after another."""
        for _ in range(number):
            match self.chance.randrange(4) if self.alive else 0:
                case 0 | 1 if len(self.alive) < _AT_MOST:
                    await self.create()
                case 2:
                    await self.change()
                case _:
                    await self.delete()

    async def clear(self) -> None:
        """Delete what was created."""
        gone, self.alive = self.alive, set()
        await asyncio.gather(*(self.bare.kube("DELETE", _path(*each)) for each in gone))

    async def goes_on(self, number: int) -> None:
        """Wait until the churn has done so many more things."""
        enough = self.done + number
        await until("objects change", lambda: self.done >= enough)

    async def churn(self) -> None:
        """Do random things until cancelled, whatever the API server answers."""
        while True:
            try:
                await self.some(1)
                self.done += 1
            except aiohttp.ClientResponseError:
                await asyncio.sleep(_POLL)  # it is starting, or the object went with an answer
            except (aiohttp.ClientError, TimeoutError):
                await until("the API server answers", self._answers)

    async def _answers(self) -> bool:
        with suppress(aiohttp.ClientError, TimeoutError):
            await self.bare.kube("GET", "/readyz")
            return True
        return False


@dataclass
class World:
    """A running replicator between the faults, and how to see what it did."""

    stack: RunningStack
    bare: Bare
    kube: Way
    opa: Way
    objects: Objects
    replicator: RunningServer

    @asynccontextmanager
    async def churning(self) -> AsyncGenerator[None]:
        """Change objects all the time beside the block."""
        task = asyncio.create_task(self.objects.churn())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    async def settled(self) -> None:
        """Take all faults back; in the end OPA holds what is there, and nobody was restarted."""
        self.kube.calm()
        self.opa.calm()
        await until("OPA equals the API server", self.equal)
        await until("the replicator is ready", self.ready)
        assert await self.held() == await self._read_one_by_one()

    async def held(self) -> Any:
        """Return what OPA holds."""
        return await self.bare.get("kubernetes")

    async def metric(self, name: str) -> float:
        """Return the sum of a metric's samples, 0 where it has none."""
        (found,) = await self.metrics(name)
        return found

    async def metrics(self, *names: str) -> list[float]:
        """Return the sum of the samples of each as they were at one moment."""
        answer = await asyncio.to_thread(get, self.replicator.url + "/metrics")
        lines = answer.body.decode().splitlines()
        samples = [[line for line in lines if line.startswith(name)] for name in names]
        return [sum(float(line.rpartition(" ")[2]) for line in found) for found in samples]

    async def more(self, name: str, than: float) -> bool:
        """Tell whether a metric has grown."""
        return await self.metric(name) > than

    async def nest(self, where: str, name: str) -> Tree:
        """Nest a cluster so deeply that nobody can read it; return what OPA held of it until then.

        First so that all can: a watch that is older than the definition lacks what that allows.
        """
        await self.bare.kube("PATCH", _DEFINITION, [_ANYTHING], "json-patch+json")
        found: Tree = {}
        numbers = itertools.count()

        async def is_let_through() -> bool:
            await self.specify(where, name, [next(numbers)])
            found.update((await self.held())["clusters"][where][name])
            return "deep" in found["spec"]

        await until("the watch is of now", is_let_through)
        await until("OPA equals the API server", self.equal)
        found.update((await self.held())["clusters"][where][name])
        deep: list[Any] = []
        for _ in range(2000):
            deep = [deep]
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(10_000)  # of this process: the encoder counts its levels
        try:
            await self.specify(where, name, deep)
        finally:
            sys.setrecursionlimit(limit)
        return found

    async def specify(self, where: str, name: str, deep: list[Any] | None) -> None:
        """Have this be in the spec of a cluster; None: nothing."""
        spec = {"spec": {"deep": deep}}
        await self.bare.kube("PATCH", _path(CLUSTERS, where, name), spec, "merge-patch+json")

    async def wipe_opa(self) -> None:
        """Empty OPA by hand."""
        await self.wipe_data()
        await self.bare.put("kube_sync/epoch", b"{}")

    async def wipe_data(self) -> None:
        """Empty the collections by hand, and leave what says that they are loaded."""
        for name in _APIS:
            await self.bare.put(f"kubernetes/{name}", b"{}")

    async def kill_opa(self) -> None:
        await asyncio.to_thread(self.stack.opa.kill)

    async def start_opa(self) -> None:
        await asyncio.to_thread(self.stack.opa.start)

    async def kill_apiserver(self) -> None:
        await asyncio.to_thread(self.stack.apiserver.kill)

    async def start_apiserver(self) -> None:
        await asyncio.to_thread(self.stack.apiserver.start)

    async def compact_etcd(self) -> None:
        """Let etcd forget every revision but the newest."""
        key = base64.b64encode(b"\0").decode()
        found = await self._etcd("range", {"key": key, "limit": "1"})
        await self._etcd("compaction", {"revision": found["header"]["revision"], "physical": True})

    async def _etcd(self, call: str, body: dict[str, Any]) -> Any:
        url = f"{self.stack.etcd.url}/v3/kv/{call}"
        answer = await asyncio.to_thread(request, "POST", url, body=json.dumps(body))
        assert answer.status == 200, answer.body
        return json.loads(answer.body)

    async def ready(self) -> bool:
        """Tell whether the replicator says that it is."""
        answer = await asyncio.to_thread(get, self.replicator.url + "/readyz")
        return answer.status == 200

    async def equal(self) -> bool:
        """Compare what OPA holds with a LIST; the replicator must not have ended."""
        assert self.replicator.alive(), f"the replicator ended: {self.replicator.logs()}"
        with suppress(aiohttp.ClientError, TimeoutError):
            return bool(await self.held() == await self._listed())
        return False

    async def _listed(self) -> Tree:
        wanted: Tree = {}
        for collection, api in _APIS.items():
            text = await self.bare.kube("GET", f"{api}/{_PLURALS[collection]}")
            tree = wanted.setdefault(collection, {})
            for item in json.loads(text)["items"]:
                _put(tree, _KINDS[collection] | item)
        return wanted

    async def _read_one_by_one(self) -> Tree:
        """Read each object by itself: nothing of a LIST's or a WATCH's making is in it."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def read(collection: str, where: str, name: str) -> Any:
            async with gate:
                return json.loads(await self.bare.kube("GET", _path(collection, where, name)))

        wanted: Tree = {}
        for collection, tree in (await self._listed()).items():
            names = [(where, name) for where, inside in tree.items() for name in inside]
            into = wanted.setdefault(collection, {})
            for found in await asyncio.gather(*(read(collection, *each) for each in names)):
                _put(into, found)
        return wanted


def _put(tree: Tree, found: Tree) -> None:
    metadata = found["metadata"]
    metadata.pop("managedFields", None)
    tree.setdefault(metadata["namespace"], {})[metadata["name"]] = found


def _path(collection: str, where: str, name: str | None = None) -> str:
    path = f"{_APIS[collection]}/namespaces/{where}/{_PLURALS[collection]}"
    return path if name is None else f"{path}/{name}"


async def fill(bare: Bare, number: int) -> None:
    """Make the namespaces, and so many objects that every test has among its own."""
    for name in NAMESPACES:
        await bare.kube("POST", "/api/v1/namespaces", namespace(name))
    objects = Objects(bare, seeded(0))
    gate = asyncio.Semaphore(_AT_ONCE)

    async def create(index: int) -> None:
        async with gate:
            await objects.create(CLUSTERS if index % 50 == 0 else REPLICASETS)

    await asyncio.gather(*(create(index) for index in range(number)))


@asynccontextmanager
async def faulty_world(
    stack: RunningStack, bare: Bare, folder: Path, seed: int
) -> AsyncGenerator[World]:
    """Run the replicator behind proxies, until it is ready."""
    authority = make_authority("fault proxies")
    ca_file = write_file(folder / "ca.crt", authority.cert_pem)
    write_pair(folder, "tls", issue(authority, "proxy", LOOPBACK))
    serve = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serve.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    async with AsyncExitStack() as opened:

        async def way(server: RunningServer, server_ca: Path) -> Way:
            reach = ssl.create_default_context(cafile=server_ca)
            port = int(server.url.rpartition(":")[2])
            inner = FaultProxy(port, serve=serve, reach=reach)
            await opened.enter_async_context(inner)
            outer = await opened.enter_async_context(FaultProxy(inner.port))
            return Way(outer, inner)

        kube = await way(stack.apiserver, stack.apiserver_ca_file)
        opa = await way(stack.opa, stack.opa_ca_file)
        replicator = await asyncio.to_thread(_start, stack, folder, ca_file, kube, opa)
        opened.push_async_callback(asyncio.to_thread, replicator.stop)
        objects = Objects(bare, seeded(seed))
        yield World(stack, bare, kube, opa, objects, replicator)


def _start(stack: RunningStack, folder: Path, ca_file: Path, kube: Way, opa: Way) -> RunningServer:
    token = stack.kube_tokens["replicator"]
    api_server = f"https://127.0.0.1:{kube.outer.port}"
    kubeconfig = write_kubeconfig(folder, "replicator", api_server, ca_file, token)
    port = free_port()
    configuration = {
        "kubernetes": {"kubeconfig": str(kubeconfig)},
        "opa": stack.opa_settings()
        | {"url": f"https://127.0.0.1:{opa.outer.port}", "ca_file": str(ca_file)},
        "decisions": stack.endpoint.server(),
        "observe": {"listen": f"127.0.0.1:{port}"},
    }
    file = write_file(folder / "config.yaml", yaml.safe_dump(configuration).encode())
    return ProcessLauncher().launch(
        ServerSpec(
            name="replicate",
            program=str(Path(sys.executable).with_name("kube-sync")),
            arguments=("replicate", "--config", str(file)),
            folder=folder,
            url=f"http://127.0.0.1:{port}",
            ready_paths=("/livez",),
            environment={"PYTHONPATH": str(ROOT)},  # this tree's, wherever it is installed from
        )
    )
