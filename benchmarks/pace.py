"""Remediation at the API server's pace: first placements, moves and a takeover, in a mass.

The floor is a bare client that sends as many server-side applies of as many bytes, 4, 8, 16 or 32
at once: whichever is fastest in this run. It is an admin; with the remediator's account its PATCHes
are checked by that account's ValidatingAdmissionPolicy, as the remediator's are: measured too.
Both also run with a network delay before the API server.
Brakes are off: what is measured is how fast it could be, not how fast it may be.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from benchmarks import world
from benchmarks.bare import REPLICA_SETS, Bare, bare_client
from benchmarks.decisions import flip, metric
from benchmarks.delay import delayed
from kube_sync.decisions.decision import REQUESTED
from kube_sync.guard import HISTORY
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import PREFERENCES
from tools.servers.running import RunningServer, free_port
from tools.servers.stack import RunningStack

AT_ONCE = (4, 8, 16, 32)
_DELAYS = (0.0, 0.02)  # seconds
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# Another key than the remediator's, which would put each of them right again, but of the keys that
# its account may write.
_BY_HAND = "federation.kubernetes.io/by-hand"
_QUIET = 3.0  # seconds without a write, after which all is written
_PATIENCE = 400.0  # seconds
_POLL = 0.2  # seconds
_RARELY = 1.0  # seconds; a remediator takes 10 ms to answer, in which it writes nothing
_DAY = 86_400  # seconds


async def measure_pace(stack: RunningStack, objects: int, runs: int) -> dict[str, float]:
    """Measure on ReplicaSets that are there, with a replicator that decides on them."""
    found: dict[str, float] = {}
    for delay in _DELAYS:
        async with behind(stack, delay) as url, bare_client(stack, url) as bare:
            rounds = [await _round(stack, bare, url, objects) for _ in range(runs)]
        found |= {f"{name}{_after(delay)}": v for name, v in world.medians(rounds).items()}
    async with bare_client(stack) as bare:
        takeovers = [await _takeover(stack, bare, objects, turn) for turn in range(runs)]
    found["takeover, killed until all placed (s)"] = world.median(takeovers)
    found["takeover, the slowest (s)"] = max(takeovers)
    return found


def _after(delay: float) -> str:
    return f", {delay * 1e3:.0f} ms away" if delay else ""


@asynccontextmanager
async def behind(stack: RunningStack, delay: float) -> AsyncGenerator[str]:
    """Yield the URL of the API server behind a network that delays by so many seconds."""
    url = stack.apiserver_url
    if not delay:
        yield url
        return
    parts = urlsplit(url)
    async with delayed(parts.port or 443, delay) as port:
        yield f"https://{parts.hostname}:{port}"


@asynccontextmanager
async def remediator(
    stack: RunningStack, url: str | None = None, **section: object
) -> AsyncGenerator[RunningServer]:
    """Run `kube-sync remediate` as a process of its own, without brakes."""
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-bench-remediator-"))
    kubeconfig = yaml.safe_load(stack.kubeconfigs["remediator"].read_text(encoding="utf-8"))
    kubeconfig["clusters"][0]["cluster"]["server"] = url or stack.apiserver_url
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig), encoding="utf-8")
    configuration: dict[str, object] = {
        "kubernetes": {"kubeconfig": str(folder / "kubeconfig")},
        "decisions": stack.endpoint.client(),
        "remediate": {
            "guard": dict(GUARD_OFF),
            "listen": f"127.0.0.1:{free_port()}",
            **section,
        },
    }
    server = await asyncio.to_thread(start_service, "remediate", folder, configuration)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)
        shutil.rmtree(folder)


async def applied(server: RunningServer) -> float:
    """Return how many PATCHes a remediator has sent with success."""
    return await metric(server, 'kube_sync_remediations_total{outcome="applied"}')


async def until_applied(server: RunningServer, count: float) -> None:
    """Wait until a remediator has sent so many PATCHes with success."""
    async with asyncio.timeout(_PATIENCE):
        while await applied(server) < count:  # noqa: ASYNC110 - another process
            await asyncio.sleep(_POLL)


async def last_applied(server: RunningServer) -> float:
    """Wait until a remediator has written for a while nothing more; return when it last did.

    It does not count how many: of a PATCH without an answer in time nobody knows.
    """
    count, since = await applied(server), time.perf_counter()
    async with asyncio.timeout(_PATIENCE):
        while time.perf_counter() - since < _QUIET:
            await asyncio.sleep(_RARELY)
            before, count = count, await applied(server)
            since = time.perf_counter() if count != before else since
    # From its log, which is exact and costs it nothing more.
    ago = time.time() - world.all_logged(server, "remediated")[-1]
    return time.perf_counter() - ago % _DAY


async def mass(server: RunningServer, bare: Bare, turn: int) -> float:
    """Flip one cluster; return how many objects a second were written from then on."""
    before = await applied(server)
    await flip(bare, inside=bool(turn % 2))
    started = time.perf_counter()
    await until_applied(server, before + 1)
    last = await last_applied(server)
    return (await applied(server) - before) / (last - started)


async def _round(stack: RunningStack, bare: Bare, url: str, objects: int) -> dict[str, float]:
    await _unplaced(bare)
    async with remediator(stack, url) as server:
        await until_applied(server, 1)
        began, before = time.perf_counter(), await applied(server)
        last = await last_applied(server)
        first = (await applied(server) - before) / (last - began)
        cpu = world.cpu_seconds(server)
        moves = [await mass(server, bare, turn) for turn in range(2)]
        cpu = (world.cpu_seconds(server) - cpu) / objects
        limit = await metric(server, "kube_sync_remediation_concurrency")
        floors = [await by_hand(bare, at_once, objects) for at_once in AT_ONCE]
        best = max(floors)
        async with bare_client(stack, url, "remediator") as checked:
            same = await by_hand(checked, AT_ONCE[floors.index(best)], objects)
    ours = world.median(moves)
    return {
        "remediation, first placements (a second)": first,
        "remediation, moves (a second)": ours,
        "remediation, CPU of a move (ms)": cpu * 1e3,
        "remediation, concurrency found": limit,
        **{f"bare client, {n} at once (a second)": v for n, v in zip(AT_ONCE, floors, strict=True)},
        "bare client, as fast, with the remediator's account (a second)": same,
        "remediation, moves, by that": same / ours,
        "remediation, first placements, ratio": best / first,
        "remediation, moves, ratio": best / ours,
    }


async def by_hand(bare: Bare, at_once: int, objects: int) -> float:
    """Return how many server-side applies of as many bytes a bare client makes in a second."""
    chosen = (await _listed(bare))[: objects // 2]
    bodies = [_body(item, str(time.time_ns())) for item in chosen]

    def apply(body: dict[str, Any]) -> tuple[str, str, dict[str, Any], str]:
        return ("PATCH", f"{_path(body)}?fieldManager=bench&force=true", body, "apply-patch+yaml")

    return len(bodies) / await _all(bare, [apply(body) for body in bodies], at_once)


async def _listed(bare: Bare) -> list[dict[str, Any]]:
    found = await bare.kube("GET", REPLICA_SETS, accept=_METADATA)
    return list(json.loads(found)["items"])


def _path(item: dict[str, Any]) -> str:
    return f"/apis/apps/v1/namespaces/{world.NAMESPACE}/replicasets/{item['metadata']['name']}"


def _body(item: dict[str, Any], turn: str) -> dict[str, Any]:
    metadata = item["metadata"]
    had = metadata["annotations"]
    value = turn + "".join(had.get(key, "") for key in (PREFERENCES, REQUESTED, HISTORY))
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "annotations": {_BY_HAND: value},
        },
    }


async def _all(bare: Bare, requests: Sequence[tuple[Any, ...]], at_once: int) -> float:
    """Send requests, so many at once; return the seconds."""
    gate = asyncio.Semaphore(at_once)

    async def send(request: tuple[Any, ...]) -> None:
        async with gate:
            await bare.kube(*request)

    started = time.perf_counter()
    await asyncio.gather(*map(send, requests))
    return time.perf_counter() - started


async def _unplaced(bare: Bare) -> None:
    """Take everything off that a remediator has written."""
    keys = (PREFERENCES, REQUESTED, HISTORY, _BY_HAND)
    body = {"metadata": {"annotations": dict.fromkeys(keys)}}
    items = await _listed(bare)
    await _all(bare, [("PATCH", _path(i), body, "merge-patch+json") for i in items], world.AT_ONCE)


async def _takeover(stack: RunningStack, bare: Bare, objects: int, turn: int) -> float:
    """Return the seconds from a SIGKILL of the leader in mid-move until all are placed."""
    async with AsyncExitStack() as running:
        leader = await running.enter_async_context(remediator(stack))
        for inside in (turn, turn + 1, turn):
            await mass(leader, bare, inside)
            expected = await _placements(bare)
        standby = await running.enter_async_context(remediator(stack))
        await mass(leader, bare, turn + 1)
        before = await applied(leader)
        await flip(bare, inside=bool(turn % 2))
        await until_applied(leader, before + objects // 8)
        killed = time.perf_counter()
        await asyncio.to_thread(leader.kill)
        await until_applied(standby, 1)
        last = await last_applied(standby)
        async with asyncio.timeout(_PATIENCE):
            while await _placements(bare) != expected:
                last = await last_applied(standby)
    return last - killed


async def _placements(bare: Bare) -> dict[str, str | None]:
    return {
        item["metadata"]["name"]: item["metadata"]["annotations"].get(PREFERENCES)
        for item in await _listed(bare)
    }
