"""The servers of the story: a hub and its spokes, and what runs beside each of them.

Keeps true: everything lies below one folder, so that what runs as processes can be ended by another
program (`stop_recorded`); and a start that fails is ended by whoever asked for it, by `stop`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.demo.components import start_service
from tools.demo.fleet import Manifest
from tools.demo.sync.objects import SPOKES, hub_objects, spoke_objects
from tools.servers.accounts import account
from tools.servers.processes import ProcessLauncher
from tools.servers.running import Launcher, RunningServer, ServerSpec
from tools.servers.spokes import RunningSpoke, start_spoke
from tools.servers.thirdparty import ensure_kinds

ROOT = Path(__file__).resolve().parents[3]
HUB, CONTROLLER = "hub", "policy-sync"
# Seconds: of a grace that people would wait ten minutes for, and of an agent's look at its cluster.
GRACE, LOOK = 8.0, 0.5
_KINDS = ROOT / "manifests/examples/colorpolicy"


@dataclass(frozen=True, slots=True)
class Estate:
    """The clusters by name, and the services beside them."""

    clusters: dict[str, RunningSpoke] = field(default_factory=dict)  # the hub too
    services: dict[str, RunningServer] = field(default_factory=dict)

    def stop(self) -> None:
        """End everything, the last one started first."""
        for service in reversed(self.services.values()):
            service.stop()
        for cluster in reversed(self.clusters.values()):
            cluster.stop()


@contextmanager
def running_estate(launcher: Launcher, folder: Path) -> Iterator[Estate]:
    """Run all of it as long as the block lasts."""
    estate = Estate()
    try:
        start_clusters(estate, launcher, folder)
        start_services(estate, folder)
        yield estate
    finally:
        estate.stop()


def start_clusters(estate: Estate, launcher: Launcher, folder: Path) -> None:
    """Start the API servers, with the kinds and the objects that the story begins with."""
    names = (HUB, *SPOKES)
    with ThreadPoolExecutor() as pool:
        started = pool.map(lambda name: start_spoke(launcher, folder / name, name), names)
        estate.clusters.update(zip(names, started, strict=True))
        list(pool.map(_furnish, estate.clusters.values()))


def _furnish(cluster: RunningSpoke) -> None:
    cluster.install_gateway_api()
    cluster.install_kinds(_KINDS)
    if cluster.name == HUB:
        cluster.install_kinds(ensure_kinds("open-cluster-management"))
    apply(cluster, *(hub_objects() if cluster.name == HUB else spoke_objects()))


def apply(cluster: RunningSpoke, *objects: Manifest, options: Sequence[str] = ()) -> None:
    """Apply objects as somebody who looks after a cluster would. Raises ToolError."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    mine = ("--server-side", "--field-manager=demo", *options)
    cluster.kubectl("apply", *mine, "-f", "-", stdin=text)


def start_services(estate: Estate, folder: Path) -> None:
    """Start the hub's controller, the agents of the spokes, and the topology of each spoke."""
    for name in SPOKES:
        service = f"topology of {name}"
        estate.services[service] = _topology(estate.clusters[name], folder / f"{name}-topology")
    estate.services["agents"] = _agents(estate.clusters, folder / "agents")
    estate.services[CONTROLLER] = start_service(
        CONTROLLER,
        folder / CONTROLLER,
        {
            "kubernetes": {"kubeconfig": str(_account(estate.clusters[HUB], CONTROLLER))},
            "policy_sync": {"grace_seconds": GRACE},
        },
    )


def _topology(spoke: RunningSpoke, folder: Path) -> RunningServer:
    kubeconfig = str(_account(spoke, "topology"))
    configuration: dict[str, object] = {"kubernetes": {"kubeconfig": kubeconfig}}
    return start_service("topology", folder, configuration, "--live")


def _account(cluster: RunningSpoke, part: str) -> Path:
    return account(cluster.api, part, cluster.kubeconfig.parent)


def _agents(clusters: Mapping[str, RunningSpoke], folder: Path) -> RunningServer:
    """Start a stand-in for the work agents of Open Cluster Management, one for each spoke."""
    spokes = [f"--spoke={name}={clusters[name].kubeconfig}" for name in SPOKES]
    hub = f"--hub={clusters[HUB].kubeconfig}"
    folder.mkdir(parents=True)
    return ProcessLauncher().launch(
        ServerSpec(
            name="work-agents",
            program=sys.executable,
            arguments=("-m", "tests.ocm", hub, *spokes, f"--interval={LOOK}"),
            folder=folder,
            url="",  # it serves nothing
            ready_paths=(),
            environment={"PYTHONPATH": str(ROOT)},
        )
    )
