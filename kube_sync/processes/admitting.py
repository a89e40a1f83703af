"""The admission webhook, its registration and its Events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

import msgspec

from kube_sync.admission.add_first import without_moves
from kube_sync.admission.answer_origin import AnswerOrigin
from kube_sync.admission.basis_client import BasisFollower, basis_follower
from kube_sync.admission.breaker import probing
from kube_sync.admission.class_decider import Answers, ClassDecider
from kube_sync.admission.decision_client import Decider, DecisionClient, Engine, placement, waits
from kube_sync.admission.denials import CONTROLLER, Denials
from kube_sync.admission.entry import entry_client
from kube_sync.admission.fleet import Fleet, compared
from kube_sync.admission.identified import identifying_client
from kube_sync.admission.policygate import PolicyGate, canary_may_exist
from kube_sync.admission.registration import LEASE, Registration, policy_exists
from kube_sync.admission.registration_scope import WebhookScope, kept_for_placement
from kube_sync.admission.requested_values import as_remediated, view
from kube_sync.admission.review import Review
from kube_sync.admission.revisions import Revise, RevisedDecider, unannotated
from kube_sync.admission.route import PLACEMENT, nobody, placement_check
from kube_sync.admission.server import webhook_app
from kube_sync.admission.target import target_of
from kube_sync.config import Admission, Settings, parse_listen
from kube_sync.decisions.decision_reader import DecisionReader
from kube_sync.decisions.sealing import Seals
from kube_sync.errors import Misconfigured
from kube_sync.guard import Placements
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.lease import Lease
from kube_sync.kube.maybeserved import MaybeServed
from kube_sync.kube.placementpolicies import (
    PLACEMENT_POLICIES,
    PlacementPolicies,
    placement_policies,
)
from kube_sync.kube.policymaps import CONFIGMAPS, PolicyMaps, policy_maps
from kube_sync.kube.reflector import ListerWatcher, Reflector
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import opa_client
from kube_sync.processes.context import Context, report_lease
from kube_sync.processes.fleet import watch_fleet
from kube_sync.processes.opa_auth_check import watch_authorization
from kube_sync.processes.systems import Served, serve_systems
from kube_sync.processes.workers import Alone, Crew
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.servertls import ServerTls, TlsFiles
from kube_sync.runtime.services import Service

_WEBHOOK_GRACE = 1.0  # Drain has finished the requests in progress by then


async def admit(context: Context, crew: Crew | None = None) -> list[Service]:
    """Start the webhook as one process of a crew, or alone; return its services.

    Raises Misconfigured without certificates.
    """
    crew = crew or Alone()
    settings, readiness, notifier = context.settings, context.readiness, ChangeNotifier()
    files = _tls_files(settings.admission)
    policies = _Policies(context, notifier)
    placements = Placements(settings.remediate.guard.placements)
    client, deciders, following = await _placement_deciders(context, policies, placements)
    seals = Seals(settings.placement.key_file)
    address = parse_listen("admission.listen", settings.admission.listen)
    tls = ServerTls("admission", files, readiness)
    recorder = context.recorder(CONTROLLER, metrics.admission_events)
    denied = Denials(recorder).denied if settings.admission.events else nobody
    systems = await serve_systems(context, recorder, notifier.notify)
    fleet, watching = watch_fleet(context)
    decides, compares = (_placing(settings, one, placements, fleet) for one in deciders)
    routes = [
        *(route for system in systems for route in system.routes),
        placement_check(compares, policies.may_exist, settings.admission, denied, seals),
    ]
    app = webhook_app(decides, settings.admission, context.drain, denied, routes, seals)
    kept = _registrations(context, policies, systems, notifier) if crew.first else []
    await context.stack.enter_async_context(
        serving(app, address, tls.context, _WEBHOOK_GRACE, context.drain, bound=crew.bound)
    )
    readiness.met("start")
    return [
        *kept,
        *(service for system in systems for service in system.services),
        tls.follow,
        partial(probing, client, _engine_reporter(readiness, deciders[0])),
        recorder.run,
        *await _authorization_check(context),
        *watching,
        *following,
        *policies.followed(),
    ]


def _placing(settings: Settings, decider: Decider, placements: Placements, fleet: Fleet) -> Decider:
    """Return the decider for a fleet and annotated targets, which leaves moves to `add-first`."""
    revisions: list[Revise] = [partial(compared, placements=placements, fleet=fleet)]
    if settings.remediate.moves == "add-first":
        remediator = settings.admission.remediator
        revisions.append(partial(without_moves, placements=placements, remediator=remediator))
    bare = [r.gvr for r in settings.targets() if "annotations" not in settings.sinks_of(r)]
    if others := frozenset((gvr.group, gvr.resource) for gvr in bare):
        revisions.append(partial(unannotated, resources=others))
    return RevisedDecider(decider, *revisions)


def _tls_files(admission: Admission) -> TlsFiles:
    if admission.cert_file is None or admission.key_file is None:
        msg = "admission.cert_file: needed, since the API server only calls webhooks over TLS"
        raise Misconfigured(msg)
    return TlsFiles(admission.cert_file, admission.key_file, admission.client_ca_file)


class _Policies:
    """The watches of placement policies, and whether there may be any."""

    def __init__(self, context: Context, notifier: ChangeNotifier) -> None:
        settings = context.settings.policies
        self._context = context
        self._static = settings.static
        self._maps = policy_maps(settings, notifier.notify)
        self._objects = placement_policies(settings, notifier.notify)
        self.all: list[PolicyMaps | PlacementPolicies] = [*self._maps, *self._objects]
        self.gate = PolicyGate(self.all, static=settings.static)

    def may_exist(self) -> bool:
        """Return whether there may be a policy."""
        return self.gate.policy_may_exist

    def exists(self) -> bool | None:
        """Return whether there is a policy, None: unknown."""
        return policy_exists(self.gate, self.all, static=self._static)

    def followed(self) -> list[Service]:
        """Return the Reflectors of policies."""
        kube, services = self._context.kube, list[Service]()
        for maps in self._maps:
            source = KubeCollection(
                kube, CONFIGMAPS, namespace=maps.scope, label_selector=maps.selector
            )
            services.append(self._followed(f"{CONFIGMAPS} in {maps.where}", source, maps))
        for objects in self._objects:
            where = f"{PLACEMENT_POLICIES} in {objects.namespace}"
            served = MaybeServed(kube, PLACEMENT_POLICIES, objects.namespace)
            services.append(self._followed(where, served, objects))
        return services

    def _followed(
        self, what: str, source: ListerWatcher, policies: PolicyMaps | PlacementPolicies
    ) -> Service:
        def report(reason: str | None) -> None:
            self.gate.found(policies) if reason is None else self.gate.lost(policies)

        return self._context.followed(f"{what} for admission", source, policies, report)


async def _placement_deciders(
    context: Context, policies: _Policies, placements: Placements
) -> tuple[DecisionClient, tuple[Decider, Decider], list[Service]]:
    """Return OPA's client, the deciders of reviews and of what is stored, and their services."""
    settings, gate = context.settings, policies.gate
    engine_settings = settings.admission.engine
    by_class = await _by_class(context, policies)
    engine = await context.stack.enter_async_context(_engine(settings, policies, by_class))
    seen = partial(view, remediator=settings.admission.remediator)
    made = partial(
        DecisionClient,
        engine,
        gate,
        backoff=waits(engine_settings.backoff_seconds),
        attempts=engine_settings.attempts,
        read=partial(placement, read=DecisionReader(placements.unreadable, gate.modules)),
    )
    client = made(seen)

    def stored(review: Review) -> msgspec.Raw:
        return seen(as_remediated(review))

    # The same OPA: the two share a circuit breaker.
    checking = made(stored, breaker=client.breaker)
    if by_class is None:
        return client, (client, checking), []
    basis, decider = by_class
    return client, (decider(client, view=seen), decider(checking, view=stored)), [basis.run]


def _engine_reporter(readiness: Readiness, decider: Decider) -> Callable[[str | None], None]:
    """Return what reports whether OPA answers; ready also while it can be done without."""
    report = readiness.reporter("opa")

    def reported(reason: str | None) -> None:
        bridged = isinstance(decider, ClassDecider) and decider.does_without_opa
        if reason is not None and bridged:
            readiness.noted("opa", f"known classes are decided on without it: {reason}")
        else:
            report(reason)

    return reported


_ByClass = tuple[BasisFollower, Callable[..., ClassDecider]]


async def _by_class(context: Context, policies: _Policies) -> _ByClass | None:
    """Return what decides by class, around a client and its view; None if that is off."""
    settings = context.settings
    if (mode := settings.classes()) == "off":
        return None
    basis = await context.stack.enter_async_context(basis_follower(settings.decisions))
    return basis, partial(
        ClassDecider,
        basis=basis,
        answers=Answers(),
        origin=AnswerOrigin(partial(context.readiness.noted, "classes")),
        may_exist=policies.may_exist,
        mode=mode,
        outage_seconds=settings.admission.classes_outage_seconds,
    )


def _engine(
    settings: Settings, policies: _Policies, by_class: _ByClass | None
) -> AbstractAsyncContextManager[Engine]:
    """Return the engine's client; it learns the origin of answers that may be kept."""
    target, canary = target_of(settings), partial(canary_may_exist, policies.all)
    if by_class is None:
        return entry_client(target, canary)
    basis, _ = by_class
    return identifying_client(target, canary, lambda: basis.is_shared)


async def _authorization_check(context: Context) -> list[Service]:
    """Return the check that OPA requires authorization."""
    settings = context.settings
    elsewhere = settings.admission.engine.url or settings.enforce_scheduling_policy.url
    if elsewhere or settings.opa.token_file is None:
        return []
    opa = await context.stack.enter_async_context(opa_client(settings.opa))
    return [partial(watch_authorization, opa, settings.opa.url, context.readiness)]


class ChangeNotifier:
    """Notifies all registrations of a change."""

    def __init__(self) -> None:
        self.listeners: list[asyncio.Event] = []

    def notify(self) -> None:
        """Notify all listeners that something may have changed."""
        for listener in self.listeners:
            listener.set()


def _registrations(
    context: Context, policies: _Policies, systems: Sequence[Served], notifier: ChangeNotifier
) -> list[Service]:
    """Return the services that keep the webhook's registrations, if one is configured."""
    settings = context.settings
    if settings.admission.registration.name is None:
        return []
    metrics.admission_registration_kept.set(1)
    lease = context.lease(LEASE, notifier.notify, needed=False)
    # Without the Lease every replica keeps the registrations: unready replicas get no calls.
    lease_report = partial(
        report_lease, lease, LEASE, context.readiness, f"Lease {LEASE}", needed=False
    )
    kept = [(found, policies.exists) for found in kept_for_placement(settings)]
    kept += [(found, system.exists) for system in systems for found in system.kept]
    services: list[Service] = [lease.run, lease_report]
    for found, exists in kept:
        services += _registration(context, found, exists, lease, notifier)
    return services


def _registration(
    context: Context,
    kept: WebhookScope,
    exists: Callable[[], bool | None],
    lease: Lease,
    notifier: ChangeNotifier,
) -> list[Service]:
    """Return the services that keep one registration."""
    kube, own = context.kube, asyncio.Event()
    notifier.listeners.append(own)
    condition = "registration" if kept.path == PLACEMENT else f"registration of {kept.path}"
    note = partial(context.readiness.noted, condition)
    registration = Registration(kube, context.settings, lease, exists, note, own, kept=kept)
    source = KubeCollection(kube, kept.kind, field_selector=f"metadata.name={kept.name}")
    name = str(kept.kind) if kept.path == PLACEMENT else f"{kept.kind} {kept.name}"
    reflector = Reflector(name, source, registration.store, registration.seen)
    return [reflector.run, registration.run]
