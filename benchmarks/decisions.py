"""Decisions: how long until all are current again, what one change costs, and what others notice.

The floor is one query an object, measured on 200 objects and multiplied. Nothing here shares code
with kube_sync: records are read from the stream as a remediator would.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks import world
from benchmarks.bare import REPLICA_SETS, Bare
from benchmarks.lookups import other_client
from tools.demo.fleet import FLEET, LEVEL, POLICIES, POLICY, REGION, cluster, namespace, policy_map
from tools.servers.running import RunningServer
from tools.servers.stack import RunningStack

SIZES = (4, 20, 100)
_SAMPLE = 200  # objects that the floor asks for
_FLIPS = 20
_IDLE_SECONDS = 2.0
_DECISION = "io/k8s/federation/admission"
PROFILES = f"/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{FLEET}/clusterprofiles"
_FLIPPED = "cluster-0000"
_LOOKED_UP = f"kubernetes/clusters/{FLEET}/{_FLIPPED}/metadata/labels/{LEVEL.replace('/', '%2F')}"
_PATIENCE = 120.0  # seconds


class _Object(msgspec.Struct, frozen=True):
    name: str = ""


class _Record(msgspec.Struct):
    """What is looked at of a line: to read thousands must not take the servers' time."""

    type: str
    object: _Object = _Object()
    decision: msgspec.Raw = msgspec.Raw(b"null")
    held: tuple[str, ...] = ()


_records = msgspec.json.Decoder(_Record)


class Stream:
    """The latest decision of each object, as a reader of the stream gets them."""

    def __init__(self) -> None:
        self._raw: dict[str, msgspec.Raw] = {}
        self.count = 0
        self.held = True
        self._news = asyncio.Event()

    def take(self, line: bytes) -> None:
        """Take one line."""
        record = _records.decode(line)
        if record.type == "decision":
            self._raw[record.object.name] = record.decision
            self.count += 1
        elif record.type == "status":
            self.held = bool(record.held)
        self._news.set()

    @property
    def decisions(self) -> dict[str, Any]:
        """All of them."""
        return {name: json.loads(bytes(raw)) for name, raw in self._raw.items()}

    async def until_count(self, count: int) -> None:
        """Wait until so many decisions have come."""
        async with asyncio.timeout(_PATIENCE):
            while self.count < count:
                self._news.clear()
                await self._news.wait()

    async def until_all(self, number: int) -> None:
        """Wait until every object has a decision and none is held."""
        async with asyncio.timeout(_PATIENCE):
            while self.held or len(self._raw) < number:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def decision_stream(stack: RunningStack) -> AsyncGenerator[Stream]:
    """Read the replicator's stream as long as the block lasts."""
    stream = Stream()
    async with reading_lines(stack, stream.take):
        yield stream


@asynccontextmanager
async def reading_lines(
    stack: RunningStack, take: Callable[[bytes], None], *, grouped: bool = False
) -> AsyncGenerator[None]:
    """Pass each line of the replicator's stream on, as long as the block lasts.

    `grouped`: objects in a row with one decision share a line, as the remediator reads it.
    """
    client = {name: str(value) for name, value in stack.endpoint.client().items()}
    tls = ssl.create_default_context(cafile=client["ca_file"])
    token = _token(client["token_file"])
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        headers={"Authorization": f"Bearer {token}"} | ({"Prefer": "grouped"} if grouped else {}),
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=1 << 20,
    ) as session:
        task = asyncio.create_task(_read(session, client["url"], take))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _token(file: str) -> str:
    return Path(file).read_text(encoding="utf-8").strip()


async def _read(session: aiohttp.ClientSession, url: str, take: Callable[[bytes], None]) -> None:
    async with session.get(url) as response:
        response.raise_for_status()
        async for line in response.content:
            take(line)


async def metric(server: RunningServer, name: str) -> float:
    """Return the sum of a metric of the replicator over its labels."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{server.spec.url}/metrics") as response,
    ):
        lines = (await response.text()).splitlines()
    values = [
        line.rpartition(" ")[2] for line in lines if line.startswith((name + "{", name + " "))
    ]
    return sum(map(float, values))


async def evaluations(server: RunningServer) -> float:
    """Return how many decisions the replicator had evaluated."""
    return await metric(server, "kube_sync_decision_evaluations_total")


async def flip(bare: Bare, *, inside: bool) -> None:
    """Move one cluster into the EU or out of it."""
    labels = {REGION: "europe-west1" if inside else "us-east1"}
    body = {"metadata": {"labels": labels}}
    await bare.kube("PATCH", f"{PROFILES}/{_FLIPPED}", body, "merge-patch+json")


async def create_clusters(bare: Bare, start: int, end: int) -> None:
    """Create clusters, all of them in the EU and compliant."""
    if start == 0:
        await bare.kube("POST", "/api/v1/namespaces", namespace(FLEET))
    for index in range(start, end):
        await bare.kube("POST", PROFILES, cluster(f"cluster-{index:04}", "europe-west1", "3"))


async def load_policy(bare: Bare, source: str | None = None) -> None:
    """Have a policy in force, the demo's unless another one is named."""
    path = f"/api/v1/namespaces/{POLICIES}/configmaps/placement?fieldManager=bench&force=true"
    manifest = policy_map(source or POLICY.read_text(encoding="utf-8"))
    await bare.kube("PATCH", path, manifest, "apply-patch+yaml")


async def measure_decisions(
    stack: RunningStack, bare: Bare, objects: int, runs: int, sizes: Sequence[int] = SIZES
) -> dict[str, float]:
    """Measure with so many ReplicaSets, and fleets of these sizes one after the other.

    Each fleet is measured `runs` times, by a fresh replicator and a fresh OPA.

    OPA holds what the policy reads: whole objects make its garbage collector the loudest neighbour.
    """
    await load_policy(bare)
    found: dict[str, float] = {}
    made = 0
    for size in sizes:
        await create_clusters(bare, made, size)
        made = size
        figures = world.medians([await _one_run(stack, bare, objects) for _ in range(runs)])
        found |= {f"decisions, {size} clusters, {name}": value for name, value in figures.items()}
    return found


async def _one_run(stack: RunningStack, bare: Bare, objects: int) -> dict[str, float]:
    await world.fresh_opa(stack)
    auto = world.replicator(stack, {"fields": "auto"})
    async with auto as server, decision_stream(stack) as stream:
        await stream.until_all(objects)
        return await _one_fleet(server, stack, bare, stream, objects)


async def _one_fleet(
    server: RunningServer, stack: RunningStack, bare: Bare, stream: Stream, objects: int
) -> dict[str, float]:
    windows, evaluated = [], []
    classes = await metric(server, "kube_sync_decision_classes")
    with other_client(stack, _LOOKED_UP) as others:
        await asyncio.sleep(_IDLE_SECONDS)
        idle_until = time.perf_counter()
        for turn in range(_FLIPS):
            before, count = await evaluations(server), stream.count
            await flip(bare, inside=bool(turn % 2))
            answered = time.perf_counter()
            await stream.until_count(count + _affected(objects))
            while await evaluations(server) < before + classes:
                pass  # what came out as it was is told nobody
            windows.append((answered, time.perf_counter()))
            evaluated.append(await evaluations(server) - before)
    before = await evaluations(server)
    await world.annotate(bare, world.names(1)[0], f"decisions-{time.time_ns()}")
    await asyncio.sleep(1)  # whatever it leads to has been asked by then
    one = await evaluations(server) - before
    floor = await _one_by_one(bare) / _SAMPLE * objects
    current = world.median([end - start for start, end in windows])
    idle, busy = others.before(idle_until), others.within(windows)
    return {
        "classes": classes,
        "all current after a label flips (s)": current,
        f"one query an object, {_SAMPLE} of them multiplied (s)": floor,
        "ratio": current / floor,
        "evaluations after a label flips": max(evaluated),
        "evaluations after one object changed": one,
        "lookups of another client meanwhile": len(busy),
        "OPA's p99 for others, idle (ms)": _p99(idle) * 1e3,
        "OPA's p99 for others, during re-evaluation (ms)": _p99(busy) * 1e3,
        "OPA's p99, ratio": _p99(busy) / _p99(idle),
    }


def _affected(objects: int) -> int:
    """Return how many ReplicaSets ask for the EU: every other one."""
    return (objects + 1) // 2


async def _one_by_one(bare: Bare) -> float:
    listed = json.loads(await bare.kube("GET", f"{REPLICA_SETS}?limit={_SAMPLE}"))["items"]
    bodies = [
        json.dumps({"input": {"apiVersion": "apps/v1", "kind": "ReplicaSet", **found}}).encode()
        for found in listed
    ]
    begun = time.perf_counter()
    for body in bodies:
        await bare.query(_DECISION, body)
    return time.perf_counter() - begun


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]
