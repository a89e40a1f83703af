"""Wires how the remediator makes moves: in one write, or in two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kube_sync.config import Health
from kube_sync.guard import Inventory, Placements
from kube_sync.guard.add_first import Terms
from kube_sync.kube.applications import APPLICATIONS
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.reflector import Reflector
from kube_sync.objects import ObjectKey
from kube_sync.processes.context import Context
from kube_sync.remediation.add_first import AddFirst, HealthSource
from kube_sync.remediation.argocd.clusters import CLUSTER, SECRETS
from kube_sync.remediation.clusters import Clusters
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.health.argocd import ArgoHealth
from kube_sync.remediation.health.own import KueueHealth, OwnHealth, healthy_at, healthy_by
from kube_sync.remediation.planner import Moves, Together
from kube_sync.runtime.services import Service


@dataclass(frozen=True, slots=True)
class Moving:
    """How moves are made, and services for that."""

    moves: Moves = field(default_factory=Together)
    services: tuple[Service, ...] = ()


def moving(
    context: Context,
    placements: Placements,
    clusters: Clusters | None,
    approved: Callable[[], frozenset[str]],
    clock: Callable[[], float],
    changed: Callable[[Iterable[Key] | None], None],
) -> Moving:
    """Return how moves are made.

    `clusters`: those of the fleet, None if none are replicated. `changed` is called with the
    objects whose health may have changed, None: with all that wait for it.
    """
    remediate = context.settings.remediate
    if remediate.moves == "together":
        return Moving()
    health, services = _health(context, remediate.add_first.health, changed)
    terms = Terms(remediate.add_first.healthy_within_seconds, remediate.add_first.on_unhealthy)

    def inventory() -> Inventory | None:
        if clusters is None or not clusters.listed or not remediate.guard.known_clusters:
            return None
        return clusters.inventory

    def labels(cluster: str) -> Mapping[str, str] | None:
        found = {} if clusters is None else clusters.objects
        named = (one for key, one in found.items() if cluster in (key.name, str(key)))
        return next(named, None)

    moves = AddFirst(
        terms,
        placements,
        health,
        clock,
        inventory=inventory,
        labels=labels,
        approved=approved,
    )
    return Moving(moves, services)


def _health(
    context: Context, source: Health, changed: Callable[[Iterable[Key] | None], None]
) -> tuple[HealthSource, tuple[Service, ...]]:
    """Return the source of health, and its services."""
    if source.source == "annotations":
        return OwnHealth(healthy_by(source.annotation)), ()
    if source.source == "status":
        return OwnHealth(healthy_at(source.path)), ()
    if source.source == "kueue":
        return KueueHealth(source.annotation), ()
    targets = [resource.gvr for resource in context.settings.targets()]

    def workloads_changed(keys: Iterable[ObjectKey] | None) -> None:
        changed(None if keys is None else [(gvr, key) for key in keys for gvr in targets])

    health = ArgoHealth(source.label, workloads_changed)
    name = f"{APPLICATIONS} in {source.namespace}"
    listed = KubeCollection(context.kube, APPLICATIONS, namespace=source.namespace)
    follow = context.followed(name, listed, health.store, health.report, health.report)
    # Not in the readiness: without them the Applications whose destination has a name count.
    name, named = f"clusters of Argo CD in {source.namespace}, for health", health.report_clusters
    secrets = KubeCollection(
        context.kube, SECRETS, namespace=source.namespace, label_selector=CLUSTER
    )
    clusters = Reflector(name, secrets, health.clusters, named, behind=named)

    async def follow_clusters() -> None:
        await health.clusters_needed.wait()
        await clusters.run()

    return health, (follow, follow_clusters)
