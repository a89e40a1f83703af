"""The servers of the story: the clusters of MultiKueue, replicator and remediator beside them.

Keeps true: everything lies below one folder, so that what runs as processes can be ended by another
program (`stop_recorded`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.demo.components import GUARD_OFF, start_service
from tools.servers.kueue import ensure_kueue
from tools.servers.multikueue_stack import MultiKueue, start_multikueue
from tools.servers.running import Launcher, RunningServer

RESOURCES: Final = [
    {
        "group": "multicluster.x-k8s.io",
        "version": "v1alpha1",
        "resource": "clusterprofiles",
        "as": "clusters",
    },
    {"group": "kueue.x-k8s.io", "version": "v1beta1", "resource": "workloads", "fields": "auto"},
]


@dataclass(frozen=True, slots=True)
class Estate:
    """The clusters, and our two services."""

    clusters: MultiKueue
    services: dict[str, RunningServer] = field(default_factory=dict)

    def stop(self) -> None:
        """End everything, the last one started first."""
        for service in reversed(self.services.values()):
            service.stop()
        self.clusters.stop()


def start_estate(launcher: Launcher, folder: Path, *, audit: bool = False) -> Estate:
    """Start all of it below an empty or missing folder."""
    ensure_kueue()
    estate = Estate(start_multikueue(launcher, folder / "clusters", audit=audit))
    try:
        start_services(estate, folder)
    except BaseException:
        estate.stop()
        raise
    return estate


@contextmanager
def running_estate(launcher: Launcher, folder: Path, *, audit: bool = False) -> Iterator[Estate]:
    """Run all of it as long as the block lasts."""
    estate = start_estate(launcher, folder, audit=audit)
    try:
        yield estate
    finally:
        estate.stop()


def start_services(estate: Estate, folder: Path) -> None:
    """Start replicator and remediator, with exactly the rights of `manifests/multikueue`."""
    manager = estate.clusters.manager
    shared: dict[str, Any] = {
        "replicate": {"resources": RESOURCES},
        "placement": {"resources": ["workloads"]},
        "ledger": {"path": str(folder / "ledger.db")},
    }
    configurations: dict[str, dict[str, object]] = {
        "replicate": {
            "kubernetes": {"kubeconfig": str(manager.kubeconfigs["replicator"])},
            "opa": manager.opa_settings(),
            "decisions": manager.endpoint.server(),
            **shared,
        },
        "remediate": {
            "kubernetes": {"kubeconfig": str(manager.kubeconfigs["remediator"])},
            "decisions": manager.endpoint.client(),
            "remediate": {"guard": dict(GUARD_OFF), "sinks": {"multikueue": {"enabled": True}}},
            **shared,
        },
    }
    for command, configuration in configurations.items():
        service = start_service(command, folder / command, configuration)
        estate.services[command] = service
