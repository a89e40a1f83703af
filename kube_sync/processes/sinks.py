"""Wires the sinks of decisions: those that the target resources name, and their own watches."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from kube_sync.decisions.requested import FIELD_MANAGER
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
from kube_sync.kube.placementdecisions import CLUSTER_PROFILES
from kube_sync.kube.reflector import Store
from kube_sync.kube.slices import SELECTOR, SliceApi
from kube_sync.objects import GroupVersionResource
from kube_sync.processes.context import Context
from kube_sync.remediation.audit_log import Reports
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.reconciler import Reconciler
from kube_sync.remediation.sinks.follower import Follower
from kube_sync.remediation.sinks.forms import Form, OcmForm, SigForm
from kube_sync.remediation.sinks.multikueue import MultiKueueSink
from kube_sync.remediation.sinks.placement_decisions import PlacementDecisionSink
from kube_sync.remediation.sinks.sink import Sink
from kube_sync.remediation.sinks.witness import NominationWitness
from kube_sync.remediation.stores import Both
from kube_sync.runtime.clock import unix_clock
from kube_sync.runtime.services import Service

_WORKERS = 2  # concurrent writes of each sink, by resource


@dataclass(frozen=True, slots=True)
class Parts:
    """What a sink is made of; `collections`: those whose decisions it carries out.

    A sink that reads more of its targets than their metadata adds a Store of its own to `stores`.
    """

    context: Context
    collections: Collection[GroupVersionResource]
    fenced: FencedWriter
    recorder: EventRecorder
    reports: Reports
    stores: dict[GroupVersionResource, Store] = field(default_factory=dict)


def _placement_decisions(parts: Parts) -> tuple[Sink, list[Service]]:
    form = SigForm(parts.context.settings.remediate.sinks.placement_decisions.namespace)
    sink, services = _published(parts, form)
    if (profiles := form.profiles) is not None:
        source = KubeCollection(parts.context.kube, CLUSTER_PROFILES, metadata_only=True)
        services.append(parts.context.followed(f"{CLUSTER_PROFILES} to refer to", source, profiles))
    return sink, services


def _ocm_placement_decisions(parts: Parts) -> tuple[Sink, list[Service]]:
    configured = parts.context.settings.remediate.sinks.ocm_placement_decisions
    return _published(parts, OcmForm(configured.namespace))


def _published(parts: Parts, form: Form) -> tuple[Sink, list[Service]]:
    kube, gvr = parts.context.kube, form.shape.gvr
    api = SliceApi(kube, FIELD_MANAGER, form.shape)
    sink = PlacementDecisionSink(form, api, parts.collections, parts.fenced)
    own = KubeCollection(kube, gvr, namespace=form.namespace, label_selector=SELECTOR)
    return sink, [parts.context.followed(f"{gvr} of ours", own, sink.published)]


def _multikueue(parts: Parts) -> tuple[Sink, list[Service]]:
    context = parts.context
    sink = MultiKueueSink(
        Nominations(context.kube),
        parts.fenced,
        NominationWitness(parts.recorder, parts.reports),
        unix_clock(),
        seconds=context.settings.remediate.sinks.multikueue.next_cluster_seconds,
    )
    parts.stores[WORKLOADS] = sink.workloads
    watched = (
        (ADMISSION_CHECKS, sink.workers.checks),
        (MULTIKUEUE_CONFIGS, sink.workers.configs),
        (MULTIKUEUE_CLUSTERS, sink.workers.clusters),
    )
    return sink, [
        context.followed(f"{gvr} to nominate from", KubeCollection(context.kube, gvr), store)
        for gvr, store in watched
    ]


# The sinks beside the annotations, by their names in the configuration.
MAKERS: Final[dict[str, Callable[[Parts], tuple[Sink, list[Service]]]]] = {
    "placement_decisions": _placement_decisions,
    "ocm_placement_decisions": _ocm_placement_decisions,
    "multikueue": _multikueue,
}


class Sinks:
    """The sinks of all target resources."""

    def __init__(
        self,
        context: Context,
        annotations: Sink,
        fenced: FencedWriter,
        recorder: EventRecorder,
        reports: Reports,
    ) -> None:
        """Make the sinks that resources name.

        Raises Misconfigured if MultiKueue's is switched on, and no resource is for it.
        """
        settings = context.settings
        self._fenced = fenced
        self._named = {r.gvr: settings.sinks_of(r) for r in settings.targets()}
        self._sinks = {"annotations": annotations}
        self._services: list[Service] = []
        self._followers: list[Follower] = []
        self._stores: dict[GroupVersionResource, Store] = {}
        for name, make in MAKERS.items():
            if used := [gvr for gvr, names in self._named.items() if name in names]:
                parts = Parts(context, used, fenced, recorder, reports, self._stores)
                self._sinks[name], services = make(parts)
                self._services += services
        if settings.remediate.sinks.multikueue.enabled and "multikueue" not in self._sinks:
            msg = (
                "remediate.sinks.multikueue.enabled: placement.resources has no resource "
                f"{WORKLOADS} with this sink"
            )
            raise Misconfigured(msg)

    def lead(self, gvr: GroupVersionResource) -> Sink:
        """Return the leading sink of a collection."""
        return self._sinks[self._named.get(gvr, ("annotations",))[0]]

    def store(self, gvr: GroupVersionResource, targets: Store) -> Store:
        """Return what the watch of a collection feeds: its targets, and what a sink reads more."""
        return Both(targets, self._stores[gvr]) if gvr in self._stores else targets

    def followed(self, reconciler: Reconciler, mode: Callable[[str], str]) -> list[Service]:
        """Start what follows the reconciler, and return the services; `mode` maps a namespace."""
        for name, sink in self._sinks.items():
            if name == "annotations":
                continue  # they never follow
            lead = {gvr: self.lead(gvr) for gvr, names in self._named.items() if name in names}
            if sink in lead.values():
                sink.subscribe(reconciler.replan)
            decisions, targets = reconciler.decisions, reconciler.targets
            self._followers.append(Follower(sink, lead, targets, decisions, mode, self._fenced))
        return [*self._services, *(f.run for f in self._followers for _ in range(_WORKERS))]

    def changed(self, key: Key) -> None:
        """Report a target that has changed to the sinks that follow."""
        for follower in self._followers:
            follower.add([key])

    def wake(self) -> None:
        """Reconcile everything that follows: this process may write now."""
        for follower in self._followers:
            follower.wake()
