"""A MultiKueue manager cluster with OPA, and worker clusters: an API server and a manager for each.

Keeps true: a stack that fails to start leaves nothing running. The workers are known to the fleet
as ClusterProfiles too, by the same names.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.servers.errors import ToolError
from tools.servers.multikueue import (
    EXTERNAL,
    NAMESPACE,
    Queue,
    add_queue,
    add_workers,
    install_kueue_kinds,
    start_kueue,
)
from tools.servers.running import Launcher, RunningServer
from tools.servers.spokes import RunningSpoke, start_spoke
from tools.servers.stack import RunningStack, start_stack

ROOT = Path(__file__).resolve().parents[2]
CHECK: Final = "multikueue"
QUEUE: Final = Queue("jobs", "research", 1000)
FLEET = "fleet"
_PATIENCE, _PAUSE = 60.0, 0.05  # seconds
REGION = "topology.kubernetes.io/region"
COST = "example.com/cost"
CPUS: Final = 100  # of the queue, on each worker
# The workers, with their labels as members of the fleet.
WORKERS: Final[Mapping[str, Mapping[str, str]]] = {
    "paris": {REGION: "eu", COST: "3"},
    "dublin": {REGION: "eu", COST: "1"},
    "oregon": {REGION: "us", COST: "2"},
}


@dataclass(frozen=True, slots=True)
class MultiKueue:
    """The clusters by name, and the managers of Kueue beside them."""

    folder: Path
    manager: RunningStack
    workers: dict[str, RunningSpoke] = field(default_factory=dict)
    kueues: dict[str, RunningServer] = field(default_factory=dict)  # by cluster; "" the manager's

    def restart_manager(self, dispatcher: str) -> None:
        """Start the manager cluster's Kueue again with another dispatcher."""
        if "" in self.kueues:
            self.kueues.pop("").stop()
        folder = self.folder / f"kueue-{dispatcher.rpartition('/')[2]}"
        shutil.rmtree(folder, ignore_errors=True)
        manager = self.manager
        self.kueues[""] = start_kueue(folder, manager.api, manager.kubeconfigs["admin"], dispatcher)

    def give(self, worker: str, cpus: int) -> None:
        """Give the queue so many CPUs on a worker, and return when its Kueue goes by that."""
        api = self.workers[worker].api
        add_queue(api, Queue(QUEUE.name, QUEUE.namespace, cpus))
        deadline = time.monotonic() + _PATIENCE
        while not _is_observed(api.get("clusterqueues.kueue.x-k8s.io", QUEUE.name)):
            if time.monotonic() > deadline:
                msg = f"{worker}: Kueue did not observe the queue within {_PATIENCE:.0f} s"
                raise ToolError(msg)
            time.sleep(_PAUSE)

    def workloads(self) -> list[Any]:
        """Return the Workloads of the manager cluster."""
        found: list[Any] = self.manager.api.get("workloads.kueue.x-k8s.io")["items"]
        return found

    def copies(self) -> dict[str, list[str]]:
        """Return the names of the Workloads that each worker has now."""
        return {
            name: sorted(
                one["metadata"]["name"]
                for one in worker.api.get("workloads.kueue.x-k8s.io")["items"]
            )
            for name, worker in self.workers.items()
        }

    def stop(self) -> None:
        """End everything, the last one started first."""
        for kueue in reversed(self.kueues.values()):
            kueue.stop()
        for worker in reversed(self.workers.values()):
            worker.stop()
        self.manager.stop()


def start_multikueue(
    launcher: Launcher, folder: Path, dispatcher: str = EXTERNAL, *, audit: bool = False
) -> MultiKueue:
    """Start all of it below an empty or missing folder; the audit logs are the workers'."""
    folder = folder.resolve()
    found = MultiKueue(folder, start_stack(launcher, folder / "manager"))
    try:
        with ThreadPoolExecutor() as pool:
            begun = {
                name: pool.submit(start_spoke, launcher, folder / name, name, audit=audit)
                for name in WORKERS
            }
            found.workers.update({name: one.result() for name, one in begun.items()})
            list(pool.map(_furnish, found.workers.values()))
        _furnish_manager(found)
        for name, worker in found.workers.items():
            home = folder / f"kueue-{name}"
            found.kueues[name] = start_kueue(home, worker.api, worker.kubeconfig)
            found.give(name, CPUS)
        found.restart_manager(dispatcher)
        _introduce(found)
    except BaseException:
        found.stop()
        raise
    return found


@contextmanager
def running_multikueue(
    launcher: Launcher, folder: Path, dispatcher: str = EXTERNAL, *, audit: bool = False
) -> Iterator[MultiKueue]:
    """Run all of it as long as the block lasts."""
    found = start_multikueue(launcher, folder, dispatcher, audit=audit)
    try:
        yield found
    finally:
        found.stop()
        for etcd in (found.manager.etcd, *(one.cluster.etcd for one in found.workers.values())):
            shutil.rmtree(etcd.spec.folder / "data")  # 64 MB that nobody looks at afterwards


def _is_observed(queue: Any) -> bool:
    generation = queue["metadata"]["generation"]
    conditions = queue.get("status", {}).get("conditions", ())
    return any(one.get("observedGeneration") == generation for one in conditions)


def _furnish(worker: RunningSpoke) -> None:
    install_kueue_kinds(worker.api)
    worker.api.create_namespace(NAMESPACE)
    worker.api.create_namespace(QUEUE.namespace)


def _furnish_manager(found: MultiKueue) -> None:
    manager = found.manager
    manager.furnish()
    install_kueue_kinds(manager.api)
    manager.apply(ROOT / "manifests/multikueue")
    for name in (NAMESPACE, QUEUE.namespace, FLEET):
        manager.api.create_namespace(name)
    for name, labels in WORKERS.items():
        manager.api.create(profile(name, labels))


def _introduce(found: MultiKueue) -> None:
    api = found.manager.api
    add_workers(api, CHECK, {name: one.kubeconfig for name, one in found.workers.items()})
    add_queue(api, QUEUE, CHECK)


def profile(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a worker as a member of the fleet."""
    return {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": FLEET, "labels": dict(labels)},
        "spec": {"displayName": name, "clusterManager": {"name": "kueue"}},
    }
