"""Pods created in bulk with SchedulingPolicy in force, beside the same without it.

One API server, the same pods, the same client; runs with the webhook registered and without it
take turns, and a ratio is taken of neighbouring runs. Every pod is asked about twice, where it may
be changed and where it is checked; it gets a default put in, as it would in the field.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import ssl
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks import world
from tests.integration.scheduling_world import ROOT, World, pod, scheduling_world
from tools.servers.processes import ProcessLauncher

AT_ONCE = 32
_PODS = 1000  # in one run
_WARM = 200
_NAMESPACE = "bulk"
_POLICY: dict[str, Any] = {
    "required": {"nodeSelectors": {"kubernetes.io/arch": ["amd64", "arm64"]}},
    "allowed": {"schedulerNames": ["default-scheduler"]},
    "default": {"nodeSelector": {"kubernetes.io/arch": "amd64"}},
}


async def measure_pods(runs: int) -> dict[str, float]:
    """Measure how many pods a second are created, with and without."""
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-bench-pods-"))
    try:
        with scheduling_world(ProcessLauncher(), folder) as found:
            await asyncio.to_thread(_furnish, found)
            return await _measure(found, runs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _furnish(found: World) -> None:
    found.stack.install_kinds(ROOT / "manifests/crds")
    found.stack.kubectl("create", "namespace", _NAMESPACE)
    found.stack.kubectl("create", "serviceaccount", "default", f"--namespace={_NAMESPACE}")
    found.policy("arch", _POLICY)
    found.may_use(_NAMESPACE, "default", "arch")


async def _measure(found: World, runs: int) -> dict[str, float]:
    names = (f"pod-{index:07}" for index in itertools.count())
    figures = []
    await _with(found)
    await _until_judged(found)
    await _bulk(found, names, _WARM, judged=True)
    for _ in range(runs):
        await asyncio.to_thread(found.unregister)
        await _until_judged(found, judged=False)
        without = await _bulk(found, names, _PODS, judged=False)
        await _with(found)
        await _until_judged(found)
        before = _cpu(found)
        through = await _bulk(found, names, _PODS, judged=True)
        used = {name: after - before[name] for name, after in _cpu(found).items()}
        figures.append(
            {
                "pods, without (1/s)": without,
                "pods, through the webhook (1/s)": through,
                "pods, ratio": through / without,
            }
            | {
                f"pods, {name}'s CPU a pod (ms)": spent / _PODS * 1e3
                for name, spent in used.items()
            }
        )
    return world.medians(figures)


def _cpu(found: World) -> dict[str, float]:
    """Return the CPU seconds that each of the servers has used."""
    servers = {
        "API server": found.stack.apiserver,
        "OPA": found.stack.opa,
        "webhook": found.services["admit"],
    }
    return {name: world.cpu_seconds(server) for name, server in servers.items()}


async def _with(found: World) -> None:
    await asyncio.to_thread(found.register)


async def _until_judged(found: World, *, judged: bool = True) -> None:
    """Wait until the API server asks, or does not ask, and OPA has the policy."""
    async with _session(found) as session, asyncio.timeout(60):
        while True:
            manifest = pod("probe", _NAMESPACE)
            async with session.post(_url(found) + "?dryRun=All", json=manifest) as response:
                document = await response.json()
            if response.ok and ("nodeSelector" in document["spec"]) == judged:
                return
            await asyncio.sleep(0.1)


async def _bulk(found: World, names: Any, count: int, *, judged: bool) -> float:
    """Create so many pods, and return how many a second that was."""
    wanted = [next(names) for _ in range(count)]
    queue = iter(wanted)
    begun = time.perf_counter()
    async with _session(found) as session:

        async def work() -> None:
            for name in queue:
                manifest = pod(name, _NAMESPACE)
                async with session.post(_url(found), json=manifest) as response:
                    stored = await response.json()
                if not response.ok or ("nodeSelector" in stored["spec"]) != judged:
                    msg = f"{response.status}: {stored}"
                    raise RuntimeError(msg)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())
    return count / (time.perf_counter() - begun)


def _url(found: World) -> str:
    return f"{found.stack.apiserver_url}/api/v1/namespaces/{_NAMESPACE}/pods"


def _session(found: World) -> aiohttp.ClientSession:
    tls = ssl.create_default_context(cafile=str(found.stack.apiserver_ca_file))
    token = found.stack.kube_tokens["admin"]
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls, limit=0),
        headers={"Authorization": f"Bearer {token}"},
    )
