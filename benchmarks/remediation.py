"""Remediation: how long until a fleet is moved, how soon one object follows, what nothing costs.

The floor of the move is a bare client that sends the same PATCHes, as many at a time. Brakes are
off: what is measured is how fast it could be, not how fast it may be.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks import world
from benchmarks.bare import REPLICA_SETS, Bare
from benchmarks.decisions import PROFILES, create_clusters, flip, load_policy, metric
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import EU, PREFERENCES
from tools.servers.running import RunningServer, free_port
from tools.servers.stack import RunningStack

_CLUSTERS = 20
_WORKERS = 4  # as many PATCHes at a time as the remediator sends
_SINGLE = 50
_MARK = "example.com/mark"
_PATIENCE = 240.0  # seconds


async def measure_remediation(
    stack: RunningStack, bare: Bare, objects: int, runs: int
) -> dict[str, float]:
    """Measure on ReplicaSets that are there; every other one follows the cluster that flips."""
    await load_policy(bare)
    await create_clusters(bare, 0, _CLUSTERS)
    await world.fresh_opa(stack)
    async with world.replicator(stack) as replicator, remediator(stack) as moving:
        await _until_applied(moving, objects)  # what was there is placed first
        flips = [await _mass(moving, bare, turn, objects) for turn in range(2 * runs)]
        floors = [await _by_hand(bare, turn, objects) for turn in range(runs)]
        await _mass(moving, bare, 0, objects)  # from here on a wish for the EU makes a difference
        single = [await _single(bare, turn) for turn in range(_SINGLE)]
        seen = [await _replication(bare, turn) for turn in range(_SINGLE)]
        nothing = await _nothing(replicator, moving, bare)
    took, floor = world.median(flips), world.median(floors)
    one, replicated = world.median(single), world.median(seen)
    return {
        "remediation, objects moved": objects // 2,
        "remediation, all moved (s)": took,
        "remediation, all moved, bare client (s)": floor,
        "remediation, all moved, ratio": took / floor,
        "remediation, one object followed, median (ms)": one * 1e3,
        "remediation, one object in OPA, median (ms)": replicated * 1e3,
        "remediation, one object, ratio": one / replicated,
        **nothing,
    }


@asynccontextmanager
async def remediator(stack: RunningStack) -> AsyncGenerator[RunningServer]:
    """Run `kube-sync remediate` as a process of its own, without brakes."""
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-bench-remediator-"))
    configuration: dict[str, object] = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["remediator"])},
        "decisions": stack.endpoint.client(),
        "remediate": {"guard": dict(GUARD_OFF), "listen": f"127.0.0.1:{free_port()}"},
    }
    server = await asyncio.to_thread(start_service, "remediate", folder, configuration)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)
        shutil.rmtree(folder)


async def _applied(server: RunningServer) -> float:
    return await metric(server, 'kube_sync_remediations_total{outcome="applied"}')


async def _until_applied(server: RunningServer, count: float) -> None:
    async with asyncio.timeout(_PATIENCE):
        while await _applied(server) < count:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


async def _mass(server: RunningServer, bare: Bare, turn: int, objects: int) -> float:
    """Return the seconds from the flip of one cluster until the last object was written."""
    before = await _applied(server)
    await flip(bare, inside=bool(turn % 2))
    started = time.perf_counter()
    await _until_applied(server, before + objects // 2)
    return time.perf_counter() - started


async def _by_hand(bare: Bare, turn: int, objects: int) -> float:
    """Return the seconds that as many server-side applies of as many bytes take."""
    found = json.loads(await bare.kube("GET", REPLICA_SETS))["items"]
    bodies = [_body(item, turn) for item in found[: objects // 2]]
    gate = asyncio.Semaphore(_WORKERS)

    async def apply(body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        path = f"/apis/apps/v1/namespaces/{world.NAMESPACE}/replicasets/{name}"
        async with gate:
            await bare.kube(
                "PATCH", f"{path}?fieldManager=bench&force=true", body, "apply-patch+yaml"
            )

    started = time.perf_counter()
    await asyncio.gather(*(apply(body) for body in bodies))
    return time.perf_counter() - started


def _body(item: dict[str, Any], turn: int) -> dict[str, Any]:
    metadata = item["metadata"]
    # Another key than the remediator's, or it would put each of them right again.
    value = metadata["annotations"][PREFERENCES] + " " * (turn + 1)
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "annotations": {"example.com/by-hand": value},
        },
    }


async def _single(bare: Bare, turn: int) -> float:
    """Return the seconds from a changed wish until the object has its new placement."""
    name = world.names(1)[0]
    path = f"/apis/apps/v1/namespaces/{world.NAMESPACE}/replicasets/{name}"
    async with aclosing(bare.watch()) as watch:
        events = aiter(watch)
        following = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.1)  # until the watch is open
        body = {"metadata": {"annotations": {EU: str(bool(turn % 2)).lower()}}}
        before = json.loads(await bare.kube("GET", path))["metadata"]["annotations"]
        await bare.kube("PATCH", path, body, "merge-patch+json")
        started = time.perf_counter()
        async with asyncio.timeout(_PATIENCE):
            while True:
                found = (await following)["object"]["metadata"]
                if found["name"] == name and _moved(found, before):
                    return time.perf_counter() - started
                following = asyncio.ensure_future(anext(events))


def _moved(metadata: dict[str, Any], before: dict[str, str]) -> bool:
    return bool(metadata["annotations"].get(PREFERENCES) != before.get(PREFERENCES))


async def _replication(bare: Bare, turn: int) -> float:
    """Return the seconds from the API server's answer until OPA shows a change."""
    name, mark = world.names(1)[0], f"seen-{turn}-{time.time_ns()}"
    await world.annotate(bare, name, mark)
    answered = time.perf_counter()
    where = f"kubernetes/replicasets/{world.NAMESPACE}/{name}/metadata/annotations"
    while await bare.get(f"{where}/{_MARK.replace('/', '%2F')}") != mark:
        pass
    return time.perf_counter() - answered


async def _nothing(
    replicator: RunningServer, moving: RunningServer, bare: Bare
) -> dict[str, float]:
    """Change a cluster so that no decision changes."""
    evaluated = await metric(replicator, "kube_sync_decision_evaluations_total")
    written = await _applied(moving)
    classes = await metric(replicator, "kube_sync_decision_classes")
    body = {"metadata": {"labels": {_MARK: str(time.time_ns())}}}
    await bare.kube("PATCH", f"{PROFILES}/cluster-0001", body, "merge-patch+json")
    await asyncio.sleep(3)  # whatever it leads to is done by then
    return {
        "remediation, classes": classes,
        "remediation, evaluations when nothing changes": await metric(
            replicator, "kube_sync_decision_evaluations_total"
        )
        - evaluated,
        "remediation, PATCHes when nothing changes": await _applied(moving) - written,
    }
