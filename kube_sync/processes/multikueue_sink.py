"""Wires the dispatcher of MultiKueue, and its watches."""

from __future__ import annotations

from collections.abc import Callable

from kube_sync.config import Settings
from kube_sync.errors import Misconfigured
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.kueue import (
    ADMISSION_CHECKS,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    WORKLOADS,
)
from kube_sync.kube.nominations import Nominations
from kube_sync.processes.context import Context
from kube_sync.remediation.audit_log import Reports
from kube_sync.remediation.decision_cache import DecisionCache
from kube_sync.remediation.sinks.multikueue import MultiKueueSink
from kube_sync.remediation.sinks.witness import NominationWitness
from kube_sync.runtime.clock import unix_clock
from kube_sync.runtime.services import Service

_WORKERS = 4  # concurrent nominations


def multikueue_sink(
    context: Context,
    decisions: DecisionCache,
    mode: Callable[[str], str],
    fenced: FencedWriter,
    recorder: EventRecorder,
    reports: Reports,
) -> tuple[MultiKueueSink | None, list[Service]]:
    """Return the sink if it is switched on, which the caller gives the Workloads, and services.

    Raises Misconfigured if no decisions are made on Workloads.
    """
    configured = context.settings.remediate.sinks.multikueue
    if not configured.enabled:
        return None, []
    _check(context.settings)
    sink = MultiKueueSink(
        Nominations(context.kube),
        decisions,
        mode,
        fenced,
        NominationWitness(recorder, reports),
        unix_clock(),
        seconds=configured.next_cluster_seconds,
    )
    watched = (
        (ADMISSION_CHECKS, sink.workers.checks),
        (MULTIKUEUE_CONFIGS, sink.workers.configs),
        (MULTIKUEUE_CLUSTERS, sink.workers.clusters),
    )
    services: list[Service] = [sink.run] * _WORKERS
    for gvr, store in watched:
        source = KubeCollection(context.kube, gvr)
        services.append(context.followed(f"{gvr} to nominate from", source, store))
    return sink, services


def _check(settings: Settings) -> None:
    workloads = [one for one in settings.targets() if one.gvr == WORKLOADS]
    if not any("annotations" in settings.sinks_of(one) for one in workloads):
        msg = (
            "remediate.sinks.multikueue.enabled: placement.resources names no resource that is "
            f"{WORKLOADS} and has the sink annotations"
        )
        raise Misconfigured(msg)
