"""Wires `kube-sync policy-sync`: the controller that copies a hub's policies to its spokes.

It needs no OPA. Every replica watches the hub; only the leader writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final, NoReturn

from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.reflector import Reflector, Store
from kube_sync.objects import GroupVersionResource
from kube_sync.observability import metrics
from kube_sync.policysync import recent_removals
from kube_sync.policysync.copies import PolicyId
from kube_sync.policysync.desired import PLACEMENT_DECISIONS
from kube_sync.policysync.direct_placer import DirectPlacer, spoke_kinds
from kube_sync.policysync.downstream import Downstream
from kube_sync.policysync.events import PolicySyncEvents
from kube_sync.policysync.gateway_class_status import GatewayClassReconciler
from kube_sync.policysync.hub import WORKERS, Facts, Hub
from kube_sync.policysync.hub_status_writer import CONTROLLER, HubStatusWriter
from kube_sync.policysync.hubstate import (
    CONFIGMAPS,
    DEFINITIONS,
    GATEWAY_CLASSES,
    GATEWAYS,
    GRANTS,
    LISTENER_SETS,
    MANAGED_CLUSTERS,
    NAMESPACES,
    ChangeHandlers,
    HubState,
)
from kube_sync.policysync.manifestworks import SELECTOR, WORKS
from kube_sync.policysync.object_cache import ObjectCache
from kube_sync.policysync.ocm_placer import OcmPlacer
from kube_sync.policysync.placers import PlacerRoute, Placers, Subject
from kube_sync.policysync.policy_reflectors import FollowedPolicies, Permissions
from kube_sync.policysync.policy_state import PolicyState, approved_in, observe
from kube_sync.policysync.policy_status_writer import PolicyStatus
from kube_sync.policysync.recent_removals import WINDOW
from kube_sync.policysync.removal_guard import brakes_of
from kube_sync.policysync.spoke_collection import Fields
from kube_sync.policysync.spoke_secrets import SECRETS
from kube_sync.processes.context import Context, report_lease
from kube_sync.runtime.clock import unix_clock
from kube_sync.runtime.freshness import SETTLE_SECONDS, Freshness
from kube_sync.runtime.services import Service

LEASE: Final = "kube-sync-policy-sync"
_CHECK_SECONDS: Final = 2.0  # between two checks


def policy_sync(context: Context) -> list[Service]:
    """Return the services of policy sync."""
    parts = _Parts(context)
    services = parts.followed_of_hub()
    services += [parts.followed.run, parts.permissions.run, parts.classes.run]
    services += [
        parts.recorder.run,
        parts.lease.run,
        parts.hub.run_surveys,
        *[parts.hub.work] * WORKERS,
    ]
    if parts.direct is not None:
        services += parts.followed_of_spokes(parts.direct)
    context.readiness.met("start")
    lease = partial(report_lease, parts.lease, LEASE, context.readiness)
    return [*services, lease, parts.report_state]


class _Parts:
    """The parts of policy sync, wired to each other."""

    def __init__(self, context: Context) -> None:
        self._context = context
        settings, kube = context.settings.policy_sync, context.kube
        self._clock = unix_clock()
        self._freshness = Freshness[None](self._clock, settle_seconds=SETTLE_SECONDS)
        self._downstream = Downstream(settings.namespace_prefix)
        self.lease = context.lease(LEASE, self._lead, self._notes)
        self._brakes = brakes_of(settings)
        fenced = FencedWriter(lambda: self.lease.remaining, metrics.policy_sync_writes)
        self.state = HubState(ChangeHandlers(self._policy, self._class, self._kinds))
        self.placers = Placers(fenced)
        self._read: dict[GroupVersionResource, Fields] = {}  # on spokes, by their kinds
        self.ocm: OcmPlacer | None = None
        self.direct: DirectPlacer | None = None
        for name in settings.placers:
            self._add(name)
        status_writer = HubStatusWriter(kube, fenced)
        self.recorder = context.recorder(CONTROLLER, metrics.policy_sync_events)
        events = PolicySyncEvents(self.recorder.occurred, self.state.kind)
        self.classes = GatewayClassReconciler(
            self.state, status_writer, lambda: self.lease.held, events
        )
        self.permissions = Permissions(kube, self.state)
        self.followed = FollowedPolicies(
            self.state,
            partial(KubeCollection, kube, deep=True),
            self._note_kind,
            self.permissions.enqueue_refused,
        )
        status = PolicyStatus(kube, self.state, status_writer, self._downstream)
        self.hub = self._hub(status, events)

    def _hub(self, status: PolicyStatus, events: PolicySyncEvents) -> Hub:
        return Hub(
            self.state,
            self.placers,
            self._brakes,
            status,
            self.lease,
            Facts(self._policy_state, self._freshness.stale, self._approved),
            report=self._context.readiness.noted,
            events=events,
            grace=self._context.settings.policy_sync.grace_seconds,
            clock=self._clock,
        )

    def followed_of_hub(self) -> list[Service]:
        """Return the Reflectors of the hub's objects."""
        state, settings = self.state, self._context.settings.policy_sync
        needed: list[tuple[GroupVersionResource, Store]] = [
            (GATEWAY_CLASSES, state.classes),
            (GATEWAYS, state.gateways),
            (PLACEMENT_DECISIONS, state.decisions),
            (DEFINITIONS, state.definitions),
        ]
        found = [self._reflected(gvr, store) for gvr, store in needed]
        where = settings.parameters_namespace
        found.append(self._reflected(CONFIGMAPS, state.configmaps, namespace=where))
        found.append(self._reflected(GRANTS, state.grants, needed=False))
        found.append(self._reflected(LISTENER_SETS, state.listener_sets, needed=False))
        found.append(self._reflected(NAMESPACES, state.namespaces, needed=False))
        if self.ocm is not None:
            found.append(self._reflected(WORKS, self.ocm.store, selector=SELECTOR))
            # A freshness of its own: only decisions about clusters wait for it.
            clusters = partial(self._reflected, MANAGED_CLUSTERS, state.clusters, needed=False)
            found.append(clusters(freshness=state.clusters_freshness))
        return found

    def followed_of_spokes(self, direct: DirectPlacer) -> list[Service]:
        """Return the Reflectors of the spokes' Secrets, for direct access."""
        spokes = self._context.settings.policy_sync.spokes
        secrets_ = self._reflected(
            SECRETS, direct.store, namespace=spokes.namespace, selector=spokes.label
        )
        return [secrets_, direct.run]

    async def report_state(self) -> NoReturn:
        """Report the errors of spokes, and follow when removed clusters become known."""
        late = False
        while True:
            if late and not self.state.clusters_freshness.stale():
                self.hub.enqueue_all()  # removed clusters are known now
            late = bool(self.state.clusters_freshness.stale())
            if self.direct is not None:
                errors = [f"{name}: {why}" for name, why in self.direct.errors.items()]
                self._context.readiness.noted("spokes", "; ".join(errors) or "ok")
            await asyncio.sleep(_CHECK_SECONDS)

    def _add(self, name: str) -> None:
        if name == "ocm":
            self.ocm = OcmPlacer(
                self._context.kube,
                self._copy_changed,
                executor=self._context.settings.policy_sync.executor,
            )
            self.placers.add(PlacerRoute(self.ocm, self._is_managed))
        else:
            self.direct = DirectPlacer(self._copy_changed, self._spoke_added)
            self.placers.add(PlacerRoute(self.direct, self._has_secret, per_cluster=True))

    def _reflected(
        self,
        gvr: GroupVersionResource,
        store: Store,
        *,
        namespace: str | None = None,
        selector: str | None = None,
        needed: bool = True,
        freshness: Freshness[None] | None = None,
    ) -> Service:
        readiness, name = self._context.readiness, f"{gvr} of the hub"
        freshness = freshness or (self._freshness if needed else None)
        current = _ignore if freshness is None else freshness.reporter(name)
        (readiness.waiting if needed else readiness.noted)(name, "not listed yet")

        def report(reason: str | None) -> None:
            current(reason)
            if reason is None or not needed:
                readiness.noted(name, reason or "ok")
            else:
                readiness.waiting(name, reason)

        source = KubeCollection(
            self._context.kube,
            gvr,
            namespace=namespace,
            label_selector=selector,
            # Unreadable objects are cached as such, so that they do not count as deleted.
            deep=isinstance(store, ObjectCache),
        )
        return Reflector(name, source, store, report, behind=current).run

    # Clusters

    def _is_managed(self, cluster: str) -> bool | None:
        if self.direct is None or not self.state.clusters.listed:
            return None
        return not self.state.gone_clusters([cluster])

    def _has_secret(self, cluster: str) -> bool:
        return self.direct is not None and cluster in self.direct.clusters

    def _gone(self, clusters: Iterable[str]) -> frozenset[str]:
        """Return which clusters OCM no longer has, and nobody reaches directly."""
        if self.ocm is None:
            return frozenset()
        return frozenset(c for c in self.state.gone_clusters(clusters) if not self._has_secret(c))

    # Callbacks; methods, since the hub is created with what calls them.

    def _policy_state(self, subject: Subject) -> PolicyState:
        return observe(subject, self.state, self.placers, self._gone, self._downstream)

    def _approved(self) -> frozenset[str]:
        return approved_in(self.state, self._clock())

    def _lead(self) -> None:
        # Before any removal is weighed, and before the Lease is written again.
        recorded = self.lease.annotations.get(WINDOW, "")
        self._brakes.add_recent(recent_removals.decode(recorded, self._clock()))
        self.hub.on_started_leading()
        self.classes.enqueue_all()

    def _notes(self) -> dict[str, str]:
        return {WINDOW: recent_removals.encode(self._brakes.recent_removals)}

    def _policy(self, policy: PolicyId) -> None:
        self.hub.enqueue(policy)

    def _copy_changed(self, policy: PolicyId) -> None:
        self.hub.enqueue_changed_copies(policy)

    def _spoke_added(self, _cluster: str) -> None:
        self.hub.enqueue_all()

    def _class(self, name: str) -> None:
        self.classes.enqueue(name)

    def _kinds(self) -> None:
        self.permissions.update()
        self.followed.update()
        if self.direct is not None:
            self._follow_on_spokes(self.direct)
        self.hub.enqueue_all()

    def _follow_on_spokes(self, direct: DirectPlacer) -> None:
        """Read the copies of all kinds that are synced, and of those that may have been."""
        synced = {gvr: self.state.fields(gvr) for gvr in self.state.valid_kinds}
        possible = self.state.syncable_kinds
        self._read = spoke_kinds(synced, self._read, direct.policies(), possible)
        direct.follow(self._read)

    def _note_kind(self, gvr: str, reason: str | None) -> None:
        # Noted only: a failure of one kind delays no other.
        self._context.readiness.noted(f"{gvr} policies", reason or "ok")


def _ignore(_reason: str | None) -> None:
    return
