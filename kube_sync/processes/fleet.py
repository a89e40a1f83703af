"""The watch of clusters, for the processes that compare placements with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from kube_sync.config import CLUSTERS, Resource, Settings
from kube_sync.guard import Inventory
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.reflector import Reflector
from kube_sync.objects import ObjectKey
from kube_sync.processes.context import Context
from kube_sync.remediation.clusters import Clusters
from kube_sync.runtime.services import Service


def clusters_of(settings: Settings) -> Resource | None:
    """Return the resource of clusters, None if none are replicated."""
    return next((r for r in settings.replicate.resources if r.name == CLUSTERS), None)


def counted(settings: Settings, fleet: Resource) -> Callable[[ObjectKey], bool]:
    """Return the predicate whether a cluster is replicated."""
    chosen, ignored = settings.replicate.namespaces_of(fleet), settings.replicate.ignored_of(fleet)
    return lambda key: (not chosen or key.namespace in chosen) and key.namespace not in ignored


def fleet_collection(kube: KubeClient, fleet: Resource) -> KubeCollection:
    """Return the collection of clusters, with metadata only."""
    return KubeCollection(
        kube,
        fleet.gvr,
        metadata_only=True,
        label_selector=fleet.label_selector,
        field_selector=fleet.field_selector,
    )


class FleetWatch:
    """The clusters of a process that is ready without them, and whether they are current."""

    def __init__(
        self, clusters: Clusters, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Use stale clusters for `seconds` (0: for ever)."""
        self._clusters = clusters
        self._seconds = seconds
        self._clock = clock
        self._late: float | None = None  # since when

    def report(self, reason: str | None) -> None:
        """Record why the clusters are stale, None: they are current."""
        if reason is None:
            self._late = None
        elif self._late is None:
            self._late = self._clock()

    def inventory(self) -> Inventory | None:
        """Return the clusters, None if unknown."""
        if not self._clusters.listed or not len(self._clusters):
            return None
        late = 0.0 if self._late is None else self._clock() - self._late
        return None if self._seconds and late > self._seconds else self._clusters.inventory


def watch_fleet(context: Context) -> tuple[Callable[[], Inventory | None], list[Service]]:
    """Return the inventory for comparisons with placements, and its services.

    No readiness depends on it: without the right to list clusters, nothing is compared.
    """
    settings = context.settings
    fleet, guard = clusters_of(settings), settings.remediate.guard
    if fleet is None or not guard.known_clusters:
        return lambda: None, []
    clusters = Clusters(counted(settings, fleet), lambda: None, time.monotonic)
    watch = FleetWatch(clusters, guard.stale_seconds)
    name = f"{fleet.gvr} to compare placements with"
    noted = partial(context.readiness.noted, name)

    def report(reason: str | None) -> None:
        watch.report(reason)
        noted("ok" if reason is None else f"placements are not compared: {reason}")

    source = fleet_collection(context.kube, fleet)
    return watch.inventory, [Reflector(name, source, clusters, report, behind=watch.report).run]
