"""Policy sync: 50 policies to 100 clusters, beside a bare client that creates the same works.

There is a hub and no spokes, whose answers are written by the benchmark. Times are from the
decision (or the edit) to the last write that came of it, by the audit log of the API server.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks import world
from benchmarks.bare import Bare, bare_client
from benchmarks.fleet import WORKS, Fleet, create_fleet, side_by_side
from tools.servers.console import step
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer
from tools.servers.stack import RunningStack, furnished_stack

_CLUSTERS, _POLICIES = 100, 50
_SETTLED = 3.0  # seconds without a write: then a change is done with
_TOLD = 5.0  # seconds between two statuses of a policy on so many clusters
_APPLIED = ("patch", "manifestworks")
_KEPT = ("name", "namespace", "labels", "annotations")


async def measure_policy_sync(runs: int, seconds: float) -> dict[str, float]:
    """Measure on one hub; `seconds` is for how long nothing is to be written in the end."""
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-bench-"))
    try:
        with furnished_stack(ProcessLauncher(), folder / "stack", audit=True) as stack:
            async with bare_client(stack) as bare:
                with step(f"creating {_CLUSTERS} clusters and {_POLICIES} policies"):
                    fleet = await create_fleet(stack, bare, _CLUSTERS, _POLICIES)
                with step(f"{_CLUSTERS * _POLICIES} works, {runs} times, and by a bare client"):
                    found = world.medians([await _works(fleet, folder) for _ in range(runs)])
                with step(f"answers, an edit, and {seconds:.0f} s in which nothing happens"):
                    return found | await _later(fleet, folder, seconds)
    finally:
        shutil.rmtree(folder)


@asynccontextmanager
async def _running(fleet: Fleet, folder: Path) -> AsyncGenerator[RunningServer]:
    own = folder / f"policy-sync-{time.monotonic_ns()}"
    server = await asyncio.to_thread(fleet.start, own)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)


async def _works(fleet: Fleet, folder: Path) -> dict[str, float]:
    """Have all works made by policy sync, by POST and by server-side apply; none is left."""
    async with _running(fleet, folder) as server:
        await fleet.quiet(_SETTLED)
        fleet.forget()
        begun, idle, servers = time.time(), world.cpu_seconds(server), _servers(fleet.stack)
        await fleet.place(fleet.clusters)
        await fleet.until(lambda writes: writes[_APPLIED] >= _CLUSTERS * _POLICIES)
        await fleet.quiet(_SETTLED)
        took, others = fleet.last - begun, fleet.writes.total() - fleet.writes[_APPLIED]
        used, memory = world.cpu_seconds(server) - idle, server.rss_bytes()
        servers = _servers(fleet.stack) - servers
    bodies = [_bare(work) for work in await fleet.works()]
    await fleet.place([])
    created = await _by_hand(fleet, bodies, apply=False)
    applied = await _by_hand(fleet, bodies, apply=True)
    return {
        "policy sync, works": len(bodies),
        "policy sync, all works (s)": took,
        "policy sync, all works, bare client (s)": created[0],
        "policy sync, all works, ratio": took / created[0],
        "policy sync, all works, bare client applies (s)": applied[0],
        "policy sync, all works, ratio to that": took / applied[0],
        # Of client, API server and etcd together: what else the machine does is left out.
        "policy sync, all works, CPU (s)": servers + used,
        "policy sync, all works, CPU, ratio": (servers + used) / created[1],
        "policy sync, all works, CPU, ratio to applies": (servers + used) / applied[1],
        "policy sync, writes beside works": others,
        "policy sync, CPU per work (ms)": used / len(bodies) * 1e3,
        "policy sync, memory, before answers (MB)": memory / 1e6,
    }


async def _by_hand(fleet: Fleet, bodies: list[Any], *, apply: bool) -> tuple[float, float]:
    """Have a bare client make works, from none; return its seconds, and those of CPU in all."""
    await _none(fleet.bare, fleet.clusters)
    begun, used = time.perf_counter(), time.process_time() + _servers(fleet.stack)
    await side_by_side(_made(fleet.bare, body, apply=apply) for body in bodies)
    took = time.perf_counter() - begun
    used = time.process_time() + _servers(fleet.stack) - used
    await _none(fleet.bare, fleet.clusters)
    return took, used


def _servers(stack: RunningStack) -> float:
    return world.cpu_seconds(stack.apiserver) + world.cpu_seconds(stack.etcd)


async def _made(bare: Bare, body: Any, *, apply: bool) -> None:
    where = WORKS.format(f"namespaces/{body['metadata']['namespace']}/")
    if apply:
        path = f"{where}/{body['metadata']['name']}?fieldManager=bare&force=true"
        await bare.kube("PATCH", path, body, "apply-patch+yaml")
    else:
        await bare.kube("POST", where, body)


async def _none(bare: Bare, clusters: list[str]) -> None:
    spaces = (WORKS.format(f"namespaces/{cluster}/") for cluster in clusters)
    await side_by_side(bare.kube("DELETE", space) for space in spaces)


def _bare(work: Any) -> Any:
    """Return a work as its maker would send it."""
    metadata = {name: work["metadata"][name] for name in _KEPT}
    kept = {name: work[name] for name in ("apiVersion", "kind", "spec")}
    return kept | {"metadata": metadata}


async def _later(fleet: Fleet, folder: Path, seconds: float) -> dict[str, float]:
    """Measure what happens once all works are there."""
    async with _running(fleet, folder) as server:
        await fleet.place(fleet.clusters)
        await fleet.until(lambda writes: writes[_APPLIED] >= _CLUSTERS * _POLICIES)
        await fleet.quiet(_SETTLED)
        answers = await _answers(fleet)
        edited = await _edited(fleet)
        memory = server.rss_bytes()
        fleet.forget()
        before = world.cpu_seconds(server)
        await asyncio.sleep(seconds)
        used = world.cpu_seconds(server) - before
        return {
            **answers,
            **edited,
            "policy sync, memory (MB)": memory / 1e6,
            "policy sync, nothing happens, for (s)": seconds,
            "policy sync, nothing happens, writes": fleet.count().total(),
            "policy sync, nothing happens, CPU (ms/s)": used / seconds * 1e3,
        }


async def _answers(fleet: Fleet) -> dict[str, float]:
    works = await fleet.works()
    fleet.forget()
    begun = time.time()
    await fleet.answer(works)
    all_there = time.time()
    await fleet.quiet(_SETTLED + _TOLD)
    return {
        "policy sync, all clusters answer (s)": all_there - begun,
        "policy sync, told after the last answer (s)": max(0.0, fleet.last - all_there),
        "policy sync, writes for all answers": fleet.writes.total(),
        "policy sync, of these to works": fleet.writes[_APPLIED],
    }


async def _edited(fleet: Fleet) -> dict[str, float]:
    fleet.forget()
    begun = time.time()
    await fleet.paint(fleet.policies[0], "grey")
    await fleet.quiet(_SETTLED)
    return {
        "policy sync, one policy edited, updates": fleet.writes[_APPLIED],
        "policy sync, one policy edited, other writes": (
            fleet.writes.total() - fleet.writes[_APPLIED]
        ),
        "policy sync, one policy edited (s)": fleet.last - begun,
    }
