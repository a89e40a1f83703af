"""The dispatcher of MultiKueue beside Kueue's own: the same jobs on the same clusters.

Jobs are created at a steady rate on a manager cluster with three workers, half of them for each of
two regions. Each dispatcher has clusters of its own: Kueue asks its workers about every job that
there is, at most five times a second. Counted are the copies that each worker was ever asked to
create (their audit logs are the witness), the time from the API server's answer to the event of a
watch that shows the cluster that admitted the job, and jobs that were admitted outside their
region. Kueue's own dispatchers know no regions. Nothing else runs: no pods, no nodes.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kube_sync.config import Kubernetes
from kube_sync.kube.cache import Cache
from kube_sync.kube.client import kube_client
from kube_sync.kube.collection import Item, KubeCollection
from kube_sync.kube.kueue import WORKLOADS
from kube_sync.kube.reflector import Reflector
from tools.demo.fleet import POLICIES, policy_map
from tools.demo.jobs.estate import running_estate
from tools.demo.jobs.story import POLICY
from tools.servers.console import step
from tools.servers.multikueue import ALL_AT_ONCE, EXTERNAL, INCREMENTAL, job
from tools.servers.multikueue_stack import (
    QUEUE,
    REGION,
    WORKERS,
    MultiKueue,
    running_multikueue,
)
from tools.servers.processes import ProcessLauncher

JOBS: Final = 30
RATE: Final = 1.0  # a second
_REGIONS = ("eu", "us")
_PATIENCE = 120.0  # seconds until all are admitted
_NAMES = {"all at once": ALL_AT_ONCE, "incremental": INCREMENTAL, "by policy": EXTERNAL}
_COLUMNS = ("copies of a job", "median (ms)", "p99 (ms)", "forbidden")

Admitted = dict[str, tuple[float, str]]  # by job: when, and where


def measure_kueue(jobs: int = JOBS, rate: float = RATE) -> dict[str, float]:
    """Measure each dispatcher once and print the table; `rate` of jobs a second."""
    found: dict[str, float] = {}
    for name, dispatcher in _NAMES.items():
        with tempfile.TemporaryDirectory(prefix="kube-sync-bench-kueue-") as folder:
            with step("starting four API servers with Kueue, and what dispatches"):
                running = _running(Path(folder), dispatcher)
            with running as clusters, step(f"{jobs} jobs, dispatched {name}"):
                found |= asyncio.run(_measure(clusters, name, jobs, rate))
    for line in table(found):
        print(line)
    return found


@contextmanager
def _running(folder: Path, dispatcher: str) -> Iterator[MultiKueue]:
    launcher = ProcessLauncher()
    if dispatcher != EXTERNAL:
        with running_multikueue(launcher, folder, dispatcher, audit=True) as clusters:
            yield clusters
        return
    with running_estate(launcher, folder, audit=True) as estate:
        clusters = estate.clusters
        api = clusters.manager.api
        api.apply(policy_map(POLICY.read_text(encoding="utf-8")))
        status = "openpolicyagent.org/kube-mgmt-status"
        while status not in api.get("configmaps", "placement", POLICIES)["metadata"].get(
            "annotations", {}
        ):
            time.sleep(0.1)
        yield clusters


def table(found: dict[str, float]) -> Iterator[str]:
    """Yield the lines of a table, a dispatcher a line."""
    yield f"{'dispatcher':14}" + "".join(f"{column:>18}" for column in _COLUMNS)
    for name in _NAMES:
        cells = "".join(f"{found[f'kueue, {name}, {column}']:18.2f}" for column in _COLUMNS)
        yield f"{name:14}{cells}"


async def _measure(clusters: MultiKueue, name: str, jobs: int, rate: float) -> dict[str, float]:
    regions = {
        f"{name.replace(' ', '-')}-{number}": _REGIONS[number % len(_REGIONS)]
        for number in range(jobs)
    }
    admitted: Admitted = {}
    settings = Kubernetes(kubeconfig=str(clusters.manager.kubeconfigs["admin"]))
    async with kube_client(settings) as client:
        cache = Cache[bool](lambda item: _note(item, admitted))
        reflector = Reflector("jobs", KubeCollection(client, WORKLOADS), cache, lambda _: None)
        following = asyncio.create_task(reflector.run())
        try:
            created = await _create(clusters, regions, rate)
            await _all_admitted(regions, admitted)
        finally:
            following.cancel()
            await asyncio.wait([following])
    seconds = [admitted[one][0] - created[one] for one in regions]
    placed = {one: WORKERS[admitted[one][1]][REGION] for one in regions}
    values = (
        _copies(clusters, regions) / jobs,
        _quantile(seconds, 0.5) * 1e3,
        _quantile(seconds, 0.99) * 1e3,
        sum(placed[one] != region for one, region in regions.items()),
    )
    return {
        f"kueue, {name}, {column}": value for column, value in zip(_COLUMNS, values, strict=True)
    }


def _note(item: Item, admitted: Admitted) -> bool:
    found = json.loads(item.body)
    cluster = found.get("status", {}).get("clusterName")
    for owner in found["metadata"].get("ownerReferences", ()):
        if cluster is not None:
            admitted.setdefault(owner["name"], (time.perf_counter(), cluster))
    return True


async def _create(clusters: MultiKueue, regions: dict[str, str], rate: float) -> dict[str, float]:
    created: dict[str, float] = {}
    begun = time.perf_counter()
    for number, (name, region) in enumerate(regions.items()):
        await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
        manifest = job(name, QUEUE, {"region": region})
        await asyncio.to_thread(clusters.manager.api.create, manifest)
        created[name] = time.perf_counter()
    return created


async def _all_admitted(names: Iterable[str], admitted: Admitted) -> None:
    until = time.perf_counter() + _PATIENCE
    while missing := set(names) - admitted.keys():
        if time.perf_counter() > until:
            msg = f"not admitted within {_PATIENCE:.0f} s: {', '.join(sorted(missing))}"
            raise TimeoutError(msg)
        await asyncio.sleep(0.05)


def _copies(clusters: MultiKueue, names: Iterable[str]) -> int:
    """Count the Workloads of these jobs that workers have created."""
    workloads = {
        one["metadata"]["name"]
        for one in clusters.workloads()
        if any(owner["name"] in names for owner in one["metadata"]["ownerReferences"])
    }
    found = 0
    for worker in clusters.workers.values():
        log = worker.cluster.audit_log
        lines = log.read_bytes().rpartition(b"\n")[0].splitlines() if log else []
        found += sum(_is_copy(json.loads(line), workloads) for line in lines)
    return found


def _is_copy(line: Any, workloads: set[str]) -> bool:
    about, code = line.get("objectRef", {}), line.get("responseStatus", {}).get("code")
    kind = (line["verb"], about.get("resource"), about.get("subresource"), code)
    return kind == ("create", "workloads", None, 201) and about.get("name") in workloads


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
