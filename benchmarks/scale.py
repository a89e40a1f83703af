"""Half a million: first sync, memory, a cluster's flip and a restart of OPA, at five sizes.

ReplicaSets of 2 KB in 200 classes, 500 clusters, `fields: auto`, and a policy that places each on
the clusters of the region that it names. The floor is a bare LIST in pages of 500, as ours, and one
PUT of what the policy reads. A cluster that enters or leaves a region concerns 100 classes, which
are half of all objects. Memory is read after decisions are made. There is one reader of the stream;
it asks for one record for objects that agree, as the remediator does.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from benchmarks import world
from benchmarks.bare import REPLICA_SETS, Bare, bare_client
from benchmarks.decisions import PROFILES, load_policy, reading_lines
from benchmarks.seeding import ORIGIN, WISH, Seeding
from tools.demo.fleet import FLEET, REGION, cluster, namespace
from tools.servers.console import step
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, ServerSpec
from tools.servers.stack import RunningStack

OBJECTS: Final = 500_000
_CLUSTERS = 500
_PLACES = 10  # clusters in each of the two regions that objects name
CLASSES = 200  # half of them in each region
_INSIDE, _OTHER, _ELSEWHERE = "europe-west1", "us-east1", "asia-east1"
_FLIPS = 6  # even: the next size begins where this one did
_PATIENCE = 1800.0  # seconds
_REST_SECONDS = 3.0  # before memory is read
_POLICY = f"""\
package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {{
	"clusters": _places(input.metadata.annotations["{ORIGIN}"]),
	"rebalance": true,
}} if {{
	input.kind == "ReplicaSet"
}}

annotations["bench.example.com/granted"] := input.metadata.annotations["{WISH}"]

_places(region) := {{name: {{"weight": 1}} |
	some name, cluster in data.kubernetes.clusters[_]
	cluster.metadata.labels["{REGION}"] == region
}}
"""


def sizes_up_to(objects: int) -> list[int]:
    """Return the five sizes to measure at."""
    wanted = (10_000, 50_000, objects // 4, objects // 2, objects)
    return sorted({size for size in wanted if size <= objects})


def measure_scale(sizes: Sequence[int], runs: int) -> dict[str, float]:
    """Measure at each of these sizes, one after the other, on one set of servers."""
    return asyncio.run(_measure(sizes, runs))


async def _measure(sizes: Sequence[int], runs: int) -> dict[str, float]:
    found: dict[str, float] = {}
    with world.stack(_Roomy()) as stack:
        async with bare_client(stack) as bare:
            await load_policy(bare, _POLICY)
            with step(f"creating {_CLUSTERS} clusters"):
                await _create_clusters(bare)
            regions = [_INSIDE if number % 2 else _OTHER for number in range(CLASSES)]
            seeding = Seeding(stack, bare, regions)
            memory = []
            for size in sizes:
                with step(f"creating ReplicaSets up to {size}"):
                    await seeding.grow(size)
                figures = await _one_size(stack, bare, size, runs)
                memory.append(figures["replicator's memory (MB)"])
                for name, value in figures.items():
                    print(f"    {size} objects, {name}: {value:.3f}", flush=True)
                found |= {f"{size} objects, {name}": value for name, value in figures.items()}
    if len(sizes) > 1:
        line = statistics.linear_regression(sizes, memory)
        found["replicator's memory, growth by object (KB)"] = line.slope * 1e3
        found["replicator's memory, without objects (MB)"] = line.intercept
    return found


@dataclass(frozen=True, slots=True)
class _Roomy:
    """Runs servers as processes, and lets the API server use the memory of this machine."""

    form: str = "processes"

    def launch(self, spec: ServerSpec) -> RunningServer:
        """Start a server and wait until it is ready."""
        if spec.name == "kube-apiserver":
            spec = replace(spec, environment={"GOGC": "100", "GOMEMLIMIT": "10GiB"})
        return ProcessLauncher().launch(spec)


async def _create_clusters(bare: Bare) -> None:
    await bare.kube("POST", "/api/v1/namespaces", namespace(FLEET))
    gate = asyncio.Semaphore(world.AT_ONCE)

    async def create(number: int) -> None:
        region = (*[_INSIDE] * _PLACES, *[_OTHER] * _PLACES, _ELSEWHERE)[min(number, 2 * _PLACES)]
        async with gate:
            await bare.kube("POST", PROFILES, cluster(f"cluster-{number:04}", region, "3"))

    await asyncio.gather(*map(create, range(_CLUSTERS)))


async def _one_size(stack: RunningStack, bare: Bare, size: int, runs: int) -> dict[str, float]:
    floors, synced = list[tuple[float, int]](), list[dict[str, float]]()
    for _ in range(runs):
        with step("the floor: a bare LIST and a PUT"):
            await world.fresh_opa(stack)
            floors.append(await _floor(bare))
        await world.fresh_opa(stack)
        with step("first sync, decisions, flips, a restart of OPA"):
            synced.append(await _ours(stack, bare, size))
    floor = world.median([seconds for seconds, _ in floors])
    ours = world.medians(synced)
    return {
        "size of one as listed (bytes)": floors[0][1] / size,
        "first sync, floor (s)": floor,
        **ours,
        "first sync, ratio": ours["first sync (s)"] / floor,
        "restart of OPA, ratio": ours["restart of OPA (s)"] / ours["first sync (s)"],
    }


class _ListMetadata(msgspec.Struct):
    continue_: str = msgspec.field(name="continue", default="")


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str]


class _Item(msgspec.Struct):
    metadata: _Metadata


class _Page(msgspec.Struct):
    metadata: _ListMetadata
    items: list[_Item]


async def _floor(bare: Bare) -> tuple[float, int]:
    """Return the seconds of the requests alone, and the bytes that were listed."""
    tree: dict[str, dict[str, Any]] = {}
    seconds, listed, following = 0.0, 0, ""
    while True:
        started = time.perf_counter()
        body = await bare.kube("GET", f"{REPLICA_SETS}?limit=500&continue={following}")
        seconds += time.perf_counter() - started
        listed += len(body)
        page = msgspec.json.decode(body, type=_Page)
        for item in page.items:
            found = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": item.metadata}
            tree.setdefault(item.metadata.namespace, {})[item.metadata.name] = found
        if not (following := page.metadata.continue_):
            break
    document = msgspec.json.encode(tree)
    started = time.perf_counter()
    await bare.put("kubernetes/replicasets", document)
    return seconds + time.perf_counter() - started, listed


async def _ours(stack: RunningStack, bare: Bare, size: int) -> dict[str, float]:
    reader = _Reader()
    ready = world.replicator(stack, {"fields": "auto"}, patience=_PATIENCE)
    async with ready as server, reading_lines(stack, reader.take, grouped=True):
        await reader.until(lambda: not reader.held and reader.count >= size)
        begun = world.logged_at(server, "started")
        await asyncio.sleep(_REST_SECONDS)
        memory, engine = server.rss_bytes(), stack.opa.rss_bytes()
        flips = [await _flip(stack, bare, server, reader, size, turn) for turn in range(_FLIPS)]
        after = server.rss_bytes()
        restart = await _restart(stack, server)
        return {
            "first sync (s)": world.logged_at(server, "opa_loaded") - begun,
            "all decided (s)": world.logged_at(server, "decisions_current") - begun,
            "replicator's memory (MB)": memory / 1e6,
            "replicator's memory after flips (MB)": after / 1e6,
            "OPA's memory (MB)": engine / 1e6,
            "API server's memory (MB)": stack.apiserver.rss_bytes() / 1e6,
            **world.medians(flips),
            **restart,
        }


class _Object(msgspec.Struct, frozen=True):
    name: str = ""


class _Record(msgspec.Struct):
    type: str
    object: _Object = _Object()
    objects: tuple[tuple[str, str, str, int], ...] = ()  # namespace, name, uid and seq of each
    held: tuple[str, ...] = ()


class _Reader:
    """Counts the decisions of the stream, and the classes that they are of."""

    def __init__(self) -> None:
        self.count = 0
        self.classes: set[int] = set()
        self.held = True
        self._decoder = msgspec.json.Decoder(_Record)
        self._news = asyncio.Event()

    def begin(self) -> None:
        """Count anew."""
        self.count = 0
        self.classes.clear()

    def take(self, line: bytes) -> None:
        """Take one line."""
        record = self._decoder.decode(line)
        if record.type in ("decision", "decisions"):
            names = [name for _, name, _, _ in record.objects] or [record.object.name]
            self.count += len(names)
            self.classes.update(int(name[-6:]) % CLASSES for name in names)
        elif record.type == "status":
            self.held = bool(record.held)
        self._news.set()

    async def until(self, reached: Callable[[], bool]) -> float:
        """Return when that is so, on the performance counter."""
        async with asyncio.timeout(_PATIENCE):
            while not reached():
                self._news.clear()
                await self._news.wait()
        return time.perf_counter()


async def _flip(
    stack: RunningStack, bare: Bare, server: RunningServer, reader: _Reader, size: int, turn: int
) -> dict[str, float]:
    """Let one cluster leave its region or enter it again, and see what the stream says."""
    reader.begin()
    ours, engine = world.cpu_seconds(server), world.cpu_seconds(stack.opa)
    body = {"metadata": {"labels": {REGION: _INSIDE if turn % 2 else _ELSEWHERE}}}
    await bare.kube("PATCH", f"{PROFILES}/cluster-0000", body, "merge-patch+json")
    started = time.perf_counter()
    first = await reader.until(lambda: bool(reader.classes))
    each = await reader.until(lambda: len(reader.classes) >= CLASSES // 2)
    last = await reader.until(lambda: reader.count >= _concerned(size))
    await asyncio.sleep(_REST_SECONDS)  # what nobody reads is decided too
    return {
        "flip, CPU of the replicator (s)": world.cpu_seconds(server) - ours,
        "flip, CPU of OPA (s)": world.cpu_seconds(stack.opa) - engine,
        "flip, first decision seen (s)": first - started,
        "flip, each of 100 classes seen (s)": each - started,
        "flip, all objects of them seen (s)": last - started,
    }


def _concerned(size: int) -> int:
    """Return the number of objects in the region: those of odd numbers."""
    return size // 2


async def _restart(stack: RunningStack, server: RunningServer) -> dict[str, float]:
    """Return the seconds from OPA's start until it holds everything, and all is decided again."""
    await asyncio.to_thread(stack.opa.kill)
    await asyncio.to_thread(stack.opa.start)
    started = time.time() % 86_400
    await _until(lambda: len(world.all_logged(server, "opa_loaded")) > 1)
    await _until(lambda: len(world.all_logged(server, "decisions_current")) > 1)
    await asyncio.sleep(_REST_SECONDS)
    return {
        "restart of OPA (s)": world.all_logged(server, "opa_loaded")[1] - started,
        "restart of OPA, all decided (s)": world.all_logged(server, "decisions_current")[1]
        - started,
        "replicator's memory after a restart of OPA (MB)": server.rss_bytes() / 1e6,
    }


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not reached():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.2)
