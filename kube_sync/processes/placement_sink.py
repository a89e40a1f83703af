"""The sink of PlacementDecisions, and the watches that it has of its own."""

from __future__ import annotations

from collections.abc import Callable

from kube_sync.decisions.requested import FIELD_MANAGER
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.placementdecisions import (
    CLUSTER_PROFILES,
    PLACEMENT_DECISIONS,
    SELECTOR,
    PlacementDecisionApi,
)
from kube_sync.processes.context import Context
from kube_sync.remediation.decision_cache import DecisionCache
from kube_sync.remediation.placementdecisions import PlacementSink
from kube_sync.runtime.services import Service

_WORKERS = 2  # resources whose PlacementDecisions are written at the same time


def placement_sink(
    context: Context,
    decisions: DecisionCache,
    mode: Callable[[str], str],
    fenced: FencedWriter,
) -> tuple[PlacementSink, list[Service]]:
    """Return the sink, to be handed the resources, and what runs beside it.

    `mode` is of a namespace. Whoever lets the process of `fenced` write again wakes the sink.
    """
    api = PlacementDecisionApi(context.kube, FIELD_MANAGER)
    namespace = context.settings.remediate.sinks.placement_decisions.namespace
    sink = PlacementSink(api, decisions, mode, fenced, namespace)
    services: list[Service] = [sink.run] * _WORKERS
    own = KubeCollection(context.kube, PLACEMENT_DECISIONS, label_selector=SELECTOR)
    services.append(context.followed(f"{PLACEMENT_DECISIONS} of ours", own, sink.published))
    if (profiles := sink.profiles) is not None:
        source = KubeCollection(context.kube, CLUSTER_PROFILES, metadata_only=True)
        services.append(context.followed(f"{CLUSTER_PROFILES} to refer to", source, profiles))
    return sink, services
