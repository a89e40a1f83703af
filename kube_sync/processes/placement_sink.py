"""Wires the sinks of placements, and their own watches."""

from __future__ import annotations

from collections.abc import Callable

from kube_sync.decisions.requested import FIELD_MANAGER
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.placementdecisions import CLUSTER_PROFILES
from kube_sync.kube.slices import SELECTOR, SliceApi
from kube_sync.processes.context import Context
from kube_sync.remediation.decision_cache import DecisionCache
from kube_sync.remediation.sinks.forms import Form, OcmForm, SigForm
from kube_sync.remediation.sinks.sink import PlacementSink
from kube_sync.runtime.services import Service

_WORKERS = 2  # concurrent writes of each sink, by resource


def placement_sinks(
    context: Context,
    decisions: DecisionCache,
    mode: Callable[[str], str],
    fenced: FencedWriter,
) -> tuple[list[PlacementSink], list[Service]]:
    """Return the sinks that are switched on, which the caller gives the resources, and services.

    `mode` maps a namespace. Who lets `fenced` write again has to wake the sinks.
    """
    configured = context.settings.remediate.sinks
    sinks: list[PlacementSink] = []
    services: list[Service] = []

    def add(form: Form) -> None:
        gvr = form.shape.gvr
        api = SliceApi(context.kube, FIELD_MANAGER, form.shape)
        sink = PlacementSink(form, api, decisions, mode, fenced)
        own = KubeCollection(context.kube, gvr, namespace=form.namespace, label_selector=SELECTOR)
        sinks.append(sink)
        services.extend([sink.run] * _WORKERS)
        services.append(context.followed(f"{gvr} of ours", own, sink.published))

    if configured.placement_decisions.enabled:
        sig = SigForm(configured.placement_decisions.namespace)
        add(sig)
        if (profiles := sig.profiles) is not None:
            source = KubeCollection(context.kube, CLUSTER_PROFILES, metadata_only=True)
            services.append(context.followed(f"{CLUSTER_PROFILES} to refer to", source, profiles))
    if configured.ocm_placement_decisions.enabled:
        add(OcmForm(configured.ocm_placement_decisions.namespace))
    return sinks, services
