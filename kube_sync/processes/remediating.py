"""Wires the remediator: it reads the decision stream and patches workloads."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from functools import partial

from kube_sync.config import Settings, parse_listen
from kube_sync.decisions.decision import PLACEMENT, REQUESTED
from kube_sync.decisions.requested import FIELD_MANAGER, requests
from kube_sync.decisions.sealing import Seals
from kube_sync.decisions.streamclient import stream_client
from kube_sync.guard import Guard, Placements, limits_of
from kube_sync.kube.approvals import Approval, approvals, approved
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.configmaps import CONFIGMAPS, ConfigMaps
from kube_sync.kube.discovery import kind_of
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.meta import Amend, Apply
from kube_sync.kube.patch import amend_metadata, apply_metadata
from kube_sync.kube.reflector import Store
from kube_sync.ledger.report_client import ReportClient, report_client
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.processes.argocd import argocd_generator
from kube_sync.processes.context import Context, report_lease
from kube_sync.processes.fleet import clusters_of, counted, fleet_collection
from kube_sync.processes.moves import Moving, moving
from kube_sync.processes.sinks import Sinks
from kube_sync.remediation.audit_log import AuditLog
from kube_sync.remediation.brakes import Brakes
from kube_sync.remediation.clusters import Clusters, FleetFacts
from kube_sync.remediation.decision_cache import Key, follow
from kube_sync.remediation.events import CONTROLLER, EventReporter
from kube_sync.remediation.modes import Modes
from kube_sync.remediation.plan import Current, Write
from kube_sync.remediation.reconciler import Reconciler
from kube_sync.remediation.sinks.annotations import AnnotationSink
from kube_sync.remediation.statuspage import status_app
from kube_sync.remediation.stores import Proven
from kube_sync.remediation.writer import Writer
from kube_sync.runtime.clock import unix_clock
from kube_sync.runtime.concurrency import Concurrency
from kube_sync.runtime.freshness import SETTLE_SECONDS, Freshness, Stale, oldest
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.services import Service
from kube_sync.runtime.tokenfile import TokenFile

LEASE = "kube-sync-remediator"


async def remediate(context: Context) -> list[Service]:
    """Return the services of the remediator."""
    settings, readiness = context.settings, context.readiness
    report = readiness.reporter("decisions")
    report(f"decision stream {settings.decisions.url}: not connected yet")
    stream = await context.stack.enter_async_context(stream_client(settings.decisions, report))
    token = TokenFile(settings.remediate.token_file)
    token.current()  # if it is invalid now: fail at the start
    reports = await context.stack.enter_async_context(
        report_client(settings.decisions, secrets.token_hex(8))
    )
    parts = _Parts(context, reports)
    readiness.waiting(f"Lease {LEASE}", "not asked for yet")
    reconciler = parts.reconciler
    address = parse_listen("remediate.listen", settings.remediate.listen)
    await context.stack.enter_async_context(serving(status_app(reconciler, token), address))
    services: list[Service] = [
        parts.lease.run,
        partial(report_lease, parts.lease, LEASE, readiness, f"Lease {LEASE}"),
        reports.run,
        reconciler.resync,
        *[partial(reconciler.run, parts.concurrency)] * parts.concurrency.highest,
        parts.recorder.run,
        partial(parts.events.run, reconciler.waiting),
    ]
    services += parts.sinks.followed(reconciler, parts.modes.of)
    services += await argocd_generator(
        context, reconciler.decisions, parts.placements, parts.approvals.names, parts.events
    )
    if settings.remediate.openreports.enabled:
        from kube_sync.processes.openreports import openreports  # noqa: PLC0415 - off by default

        services += openreports(context, reconciler, parts.fenced, parts.kind_of)
    services.append(partial(follow, stream, parts.events.apply_record, reconciler.apply_record))
    services += parts.followed()
    readiness.met("start")
    return services


class _Parts:
    """The parts of a remediator, wired to each other."""

    def __init__(self, context: Context, reports: ReportClient) -> None:
        settings, self._context = context.settings, context
        self._clock = unix_clock()
        self._freshness = Freshness[None](self._clock, settle_seconds=SETTLE_SECONDS)
        self._fleet = clusters_of(settings)
        self._clusters: Clusters | None = None
        if self._fleet is not None:
            self._clusters = Clusters(counted(settings, self._fleet), self._weigh, self._clock)
        self.approvals = _Approvals(settings, self._weigh, self._clock)
        self.placements = Placements(settings.remediate.guard.placements)
        self.lease = context.lease(LEASE, self._lead)
        self.fenced = FencedWriter(lambda: self.lease.remaining)
        self.recorder = context.recorder(CONTROLLER, metrics.remediation_events)
        self.modes = Modes(settings.remediate)
        self._seals = Seals(settings.placement.key_file)
        patches = _Patches(context.kube)
        self.kind_of = patches.kind_of
        self.events = EventReporter(self.recorder, patches.kind_of, lambda: self.fenced.may_write)
        memory = AuditLog(reports, self.approvals.where)
        fixed = settings.remediate.concurrency
        self.concurrency = Concurrency(
            None if fixed == "auto" else fixed, metrics.remediation_concurrency
        )
        annotations = AnnotationSink(patches.send, self._seals, self.placements.unreadable)
        self.sinks = Sinks(context, annotations, self.fenced, self.recorder, reports)
        brakes, rehearsal = self._brakes()
        self._moving = self._moves()
        self.reconciler = Reconciler(
            Writer(self._write, self.fenced, self._standby, memory, self.concurrency),
            self.modes,
            brakes,
            rehearsal,
            self._clock,
            self.sinks.lead,
            notify=self.events.enqueue,
            held=memory.held,
            warned=self.events.warn,
            target_changed=self.sinks.changed,
            moves=self._moving.moves,
        )

    def _brakes(self) -> tuple[Brakes, Brakes]:
        """Return the brakes, and those of a dry run."""
        guard = self._context.settings.remediate.guard
        facts = FleetFacts(
            self._clusters, self._named, self._seen_at, self._stale, compares=guard.known_clusters
        )
        brakes, rehearsal = (
            Brakes(
                Guard(limits_of(guard)),
                self.placements,
                facts,
                self.approvals.names,
                self._clock,
                rehearsed=rehearsed,
            )
            for rehearsed in (False, True)
        )
        return brakes, rehearsal

    def _moves(self) -> Moving:
        """Return how moves are made."""
        approved, changed = self.approvals.names, self._health_changed
        return moving(
            self._context, self.placements, self._clusters, approved, self._clock, changed
        )

    def followed(self) -> list[Service]:
        """Return the Reflectors of the cluster's objects."""
        kube, follow, services = self._context.kube, self._context.followed, list[Service]()
        for resource in self._context.settings.targets():
            gvr, store = resource.gvr, self._store(resource.gvr)
            services.append(follow(f"{gvr} to remediate", KubeCollection(kube, gvr), store))
        if self._clusters is not None and self._fleet is not None:
            name, source = f"{self._fleet.gvr} to count", fleet_collection(kube, self._fleet)
            current = self._freshness.reporter(name)
            services.append(follow(name, source, self._clusters, current, current))
        for maps in self.approvals.maps:
            source = KubeCollection(kube, CONFIGMAPS, namespace=maps.scope, metadata_only=True)
            services.append(follow(f"approvals in {maps.where}", source, maps))
        return [*services, *self._moving.services]

    def _store(self, gvr: GroupVersionResource) -> Store:
        store = self.sinks.store(gvr, self.reconciler.targets(gvr))
        return Proven(store, partial(self._seals.without_unsealed_note, gvr))

    def _standby(self) -> str:
        if self.lease.lacking is not None:
            return f"there can be no Lease {LEASE}: {self.lease.lacking}"
        holder = self.lease.holder
        return f"{holder} holds the Lease {LEASE}" if holder else f"nobody holds the Lease {LEASE}"

    # Methods, since the reconciler is created with what calls them.
    def _lead(self) -> None:
        self.reconciler.lead()
        self.events.lead()
        self.sinks.wake()

    def _weigh(self) -> None:
        self.reconciler.weigh()

    async def _write(self, gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
        await self.sinks.lead(gvr).write((gvr, key), step)

    def _health_changed(self, keys: Iterable[Key] | None) -> None:
        self.reconciler.replan(keys)

    def _named(self) -> int:
        objects = self.reconciler.objects()
        return len(self.placements.named(self._placed(*found) for found in objects))

    def _placed(self, key: Key, current: Current) -> dict[str, str]:
        """Return the placements that a policy gave an object, not those of its owner."""
        wanted = self.reconciler.decisions.get(key)
        decision = None if wanted is None else wanted.decision
        keys = set[str]() if decision is None else set(decision.annotations)
        if self._seals.is_required and REQUESTED in current.annotations:  # the seal would be lost
            keys |= {PLACEMENT, *requests(current.annotations)}
        return {key: text for key, text in current.annotations.items() if key in keys}

    def _seen_at(self) -> float | None:
        return self.reconciler.decisions.seen_at

    def _stale(self) -> Stale | None:
        return oldest(self.reconciler.decisions.freshness, self._freshness)


class _Approvals:
    """The approvals of operators, on ConfigMaps."""

    def __init__(
        self, settings: Settings, changed: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        self.maps: list[ConfigMaps[Approval]] = approvals(settings.policies.namespaces, changed)
        self._clock = clock

    def names(self) -> frozenset[str]:
        """Return the names that are currently approved."""
        texts = [one.text for maps in self.maps for one in maps]
        return frozenset(name for text in texts for name in approved(text, self._clock()))

    def where(self, name: str) -> str:
        """Return the place of an approval, for messages."""
        found = [one for maps in self.maps for one in maps]
        where = [str(one.key) for one in found if name in approved(one.text, self._clock())]
        return f"on ConfigMap {', '.join(sorted(where))}" if where else ""


class _Patches:
    """Patches objects by their resource, with their kind."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._kinds: dict[GroupVersionResource, str] = {}

    async def send(self, gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
        """Send the write of a step. Raises SyncError."""
        match step:
            case Amend():
                await amend_metadata(self._kube, gvr, key, step, FIELD_MANAGER)
            case Apply():
                kind = await self.kind_of(gvr)
                await apply_metadata(self._kube, gvr, kind, key, step, FIELD_MANAGER)

    async def kind_of(self, gvr: GroupVersionResource) -> str:
        """Return the kind of a resource, from discovery once. Raises SyncError."""
        if gvr not in self._kinds:
            self._kinds[gvr] = await kind_of(self._kube, gvr)
        return self._kinds[gvr]
