"""Wires the sink of PlacementDecisions, and its own watches."""

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
from kube_sync.remediation.sinks.sink import PlacementSink
from kube_sync.runtime.services import Service

_WORKERS = 2  # concurrent writes of PlacementDecisions, by resource


def placement_sink(
    context: Context,
    decisions: DecisionCache,
    mode: Callable[[str], str],
    fenced: FencedWriter,
) -> tuple[PlacementSink, list[Service]]:
    """Return the sink, which the caller gives the resources, and its services.

    `mode` maps a namespace. Who lets `fenced` write again has to wake the sink.
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
