"""First placement: from an object's creation without the webhook until it carries its annotation.

A client creates ReplicaSets at a steady rate; the time of each is from the API server's answer to
the event of a watch that shows the annotation. The floor is a bare loop in this process that
watches and PATCHes the annotation at once, with nothing to decide, before our processes start.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from benchmarks import world
from benchmarks.bare import REPLICA_SETS, Bare, bare_client
from benchmarks.decisions import create_clusters, load_policy
from benchmarks.pace import remediator
from tools.demo.fleet import PREFERENCES, replica_set
from tools.servers.console import step
from tools.servers.running import RunningServer
from tools.servers.stack import RunningStack

RATE: Final = 100.0  # creations a second
_CLUSTERS = 20
_PATIENCE = 60.0  # seconds
_ALL = f"{REPLICA_SETS.replace('/replicasets', '')}/namespaces/{world.NAMESPACE}/replicasets"
_CPU = (
    "first placement, CPU of the replicator for each (ms)",
    "first placement, CPU of the remediator for each (ms)",
)
_VALUE = '{"clusters":{"cluster-0000":{"weight":1}},"rebalance":true}'

Follow = Callable[[str, dict[str, Any]], Coroutine[Any, Any, None]]


def measure_first_placement(runs: int, seconds: float, rate: float) -> dict[str, float]:
    """Create so many a second for so long, by turns for the bare loop and for ours."""
    return asyncio.run(_measure(runs, seconds, rate))


async def _measure(runs: int, seconds: float, rate: float) -> dict[str, float]:
    number, floors, ours = round(rate * seconds), list[list[float]](), list[list[float]]()
    used: list[dict[str, float]] = []
    with world.stack() as stack:
        async with bare_client(stack) as bare:
            await load_policy(bare)
            await create_clusters(bare, 0, _CLUSTERS)
            for run in range(runs):
                with step(f"{number} creations, with a bare loop that watches and PATCHes"):
                    floors.append(
                        await _round(bare, f"bare-{run}", number, rate, _annotating(bare))
                    )
                await bare.kube("DELETE", _ALL)  # or what the bare loop wrote would be put right
                await world.fresh_opa(stack)
                with step(f"{number} creations, with replicator and remediator"):
                    async with _placing(stack) as servers:
                        await _round(bare, f"first-{run}", 1, rate, _leave)
                        before = [world.cpu_seconds(server) for server in servers]
                        ours.append(await _round(bare, f"placed-{run}", number, rate, _leave))
                        after = [world.cpu_seconds(server) for server in servers]
                    spent = (
                        (end - begin) / number for begin, end in zip(before, after, strict=True)
                    )
                    used.append({name: cpu * 1e3 for name, cpu in zip(_CPU, spent, strict=True)})
    return {
        "first placement, creations a second": rate,
        **_figures(floors, ours),
        **world.medians(used),
    }


def _figures(floors: list[list[float]], ours: list[list[float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, share in (("median", 0.5), ("p99", 0.99), ("most", 1.0)):
        pairs = [
            (_quantile(f, share), _quantile(o, share)) for f, o in zip(floors, ours, strict=True)
        ]
        found |= {
            f"first placement, {name}, bare loop (ms)": world.median([f for f, _ in pairs]) * 1e3,
            f"first placement, {name} (ms)": world.median([own for _, own in pairs]) * 1e3,
            f"first placement, {name}, worst run (ms)": max(own for _, own in pairs) * 1e3,
            f"first placement, {name}, ratio": world.median([own / f for f, own in pairs]),
        }
    return found


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


@asynccontextmanager
async def _placing(stack: RunningStack) -> AsyncGenerator[tuple[RunningServer, RunningServer]]:
    """Run replicator and remediator, without brakes."""
    async with world.replicator(stack, {"fields": "auto"}) as first, remediator(stack) as second:
        yield first, second


async def _leave(_name: str, _metadata: dict[str, Any]) -> None:
    """Leave it to others."""


def _annotating(bare: Bare) -> Follow:
    async def annotate(name: str, metadata: dict[str, Any]) -> None:
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "uid": metadata["uid"],
                "annotations": {PREFERENCES: _VALUE},
            },
        }
        path = f"{_ALL}/{name}?fieldManager=bench&force=true"
        await bare.kube("PATCH", path, body, "apply-patch+yaml")

    return annotate


async def _round(bare: Bare, prefix: str, number: int, rate: float, follow: Follow) -> list[float]:
    """Create so many, and return for how long each had no annotation, in seconds."""
    created, placed = dict[str, float](), dict[str, float]()
    begun = asyncio.Event()
    async with asyncio.timeout(number / rate + _PATIENCE), asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(bare, prefix, number, follow, begun, placed))
        await begun.wait()
        started = time.perf_counter()
        for index in range(number):
            await asyncio.sleep(max(0.0, started + index / rate - time.perf_counter()))
            group.create_task(_create(bare, f"{prefix}-{index:05}", created))
        await watching
    return [max(0.0, placed[name] - at) for name, at in created.items()]


async def _create(bare: Bare, name: str, created: dict[str, float]) -> None:
    manifest = replica_set(name, eu=True)
    manifest["metadata"]["namespace"] = world.NAMESPACE
    await bare.kube("POST", _ALL, manifest)
    created[name] = time.perf_counter()


async def _watch(
    bare: Bare,
    prefix: str,
    number: int,
    follow: Follow,
    begun: asyncio.Event,
    placed: dict[str, float],
) -> None:
    """Note when each has its annotation, until all have it."""
    async with asyncio.TaskGroup() as group, aclosing(bare.watch(opened=begun.set)) as events:
        async for event in events:
            metadata = event["object"]["metadata"]
            name: str = metadata["name"]
            if not name.startswith(prefix):
                continue
            if PREFERENCES in metadata["annotations"]:
                placed.setdefault(name, time.perf_counter())
            elif event["type"] == "ADDED":
                group.create_task(follow(name, metadata))
            if len(placed) == number:
                return
