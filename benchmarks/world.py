"""What the benchmarks run on: real servers as processes, and a number of ReplicaSets."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import statistics
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bare import REPLICA_SETS, Bare
from tools.demo.components import start_replicator
from tools.demo.fleet import EU, PCI, replica_set
from tools.servers.processes import ProcessLauncher
from tools.servers.running import Launcher, RunningServer
from tools.servers.stack import RunningStack, furnished_stack

NAMESPACE = "default"
AT_ONCE = 32
_ENV = ("DATABASE_HOST", "CACHE_HOST", "QUEUE_HOST", "MAIL_HOST", "METRICS_HOST", "LOG_LEVEL")


@contextmanager
def stack(launcher: Launcher | None = None) -> Iterator[RunningStack]:
    """Start etcd, kube-apiserver and OPA in a folder that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-bench-"))
    with furnished_stack(launcher or ProcessLauncher(), folder / "stack") as running:
        yield running
    shutil.rmtree(folder)


async def fresh_opa(running: RunningStack) -> None:
    """Have an OPA that holds nothing."""
    await asyncio.to_thread(running.opa.kill)
    await asyncio.to_thread(running.opa.start)


def median(values: Sequence[float]) -> float:
    """Return the middle one."""
    return statistics.median(values)


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure; that of a ratio is taken of the runs' own ratios."""
    return {name: median([run[name] for run in runs]) for name in runs[0]}


async def create_replica_sets(bare: Bare, count: int) -> None:
    """Create ReplicaSets of about 3.8 KB each as listed, with six distinct wishes among them."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def create(index: int, name: str) -> None:
        manifest = replica_set(name)
        manifest["metadata"]["namespace"] = NAMESPACE
        manifest["metadata"]["annotations"] = {
            PCI: str(index % 3),
            EU: str(index % 2 == 0).lower(),
        }
        manifest["spec"]["template"]["spec"] = _pod(name)
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
        async with gate:
            await bare.kube("POST", path, manifest)

    await asyncio.gather(*(create(index, name) for index, name in enumerate(names(count))))


def _pod(name: str) -> dict[str, Any]:
    """Return a pod as it is in the field: memory goes by structure, not by bytes alone."""
    return {
        "serviceAccountName": name,
        "containers": [
            {
                "name": "web",
                "image": f"registry.example.com/shop/{name}:1.4.2",
                "ports": [{"name": "http", "containerPort": 8080}],
                "env": [{"name": key, "value": f"{key.lower()}.{name}"} for key in _ENV],
                "resources": {
                    "requests": {"cpu": "100m", "memory": "128Mi"},
                    "limits": {"memory": "256Mi"},
                },
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}},
                "livenessProbe": {"httpGet": {"path": "/livez", "port": "http"}},
                "volumeMounts": [{"name": "settings", "mountPath": "/etc/settings"}],
            }
        ],
        "volumes": [{"name": "settings", "configMap": {"name": name}}],
    }


def names(count: int) -> list[str]:
    """Return the names of the first ReplicaSets."""
    return [f"app-{index:05}" for index in range(count)]


def cpu_seconds(server: RunningServer) -> float:
    """Return the CPU time that a service has used, in user and kernel."""
    record = json.loads((server.spec.folder / "process.json").read_text(encoding="utf-8"))
    fields = Path(f"/proc/{record['process']['pid']}/stat").read_text(encoding="ascii")
    user, system = fields.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def annotate(bare: Bare, name: str, value: str) -> None:
    """Change one annotation of one ReplicaSet."""
    path = f"{REPLICA_SETS.replace('/replicasets', '')}/namespaces/{NAMESPACE}/replicasets/{name}"
    body = {"metadata": {"annotations": {"example.com/mark": value}}}
    await bare.kube("PATCH", path, body, "merge-patch+json")


@asynccontextmanager
async def replicator(
    running: RunningStack,
    replicate: dict[str, object] | None = None,
    *,
    patience: float = 60.0,
) -> AsyncGenerator[RunningServer]:
    """Run `kube-sync replicate` as a process of its own; `replicate` is that section.

    It has to be ready within `patience` seconds.
    """
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-bench-replicator-"))
    start = partial(start_replicator, running, folder, replicate, patience=patience)
    server = await asyncio.to_thread(start)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)
        shutil.rmtree(folder)


def logged_at(server: RunningServer, event: str) -> float:
    """Return when a service logged an event for the first time, in seconds of the day."""
    return all_logged(server, event)[0]


def all_logged(server: RunningServer, event: str) -> list[float]:
    """Return when a service logged an event, in seconds of the day."""
    text = (server.spec.folder / f"{server.spec.name}.log").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if f'"event": "{event}"' in line]
    found = [re.search(r'"timestamp": "[^T]*T(\d+):(\d+):([\d.]+)Z"', line) for line in lines]
    return [int(t[1]) * 3600 + int(t[2]) * 60 + float(t[3]) for t in found if t is not None]
