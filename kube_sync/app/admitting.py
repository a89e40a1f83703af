"""The admission webhook, its registration and its Events."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Sequence
from functools import partial

from kube_sync.admission.asking import as_remediated, view
from kube_sync.admission.engine import engine_client
from kube_sync.admission.events import CONTROLLER, Denials
from kube_sync.admission.fleet import FleetJudge
from kube_sync.admission.judge import Judge, placement, waits
from kube_sync.admission.kept import Kept, kept_for_placement
from kube_sync.admission.policygate import PolicyGate, canary_may_exist
from kube_sync.admission.probe import probing
from kube_sync.admission.registration import LEASE, Registration, policy_exists
from kube_sync.admission.server import webhook_app
from kube_sync.admission.target import target_of
from kube_sync.admission.way import PLACEMENT, nobody, placement_check
from kube_sync.app.context import Context, tell_lease
from kube_sync.app.door import watch_door
from kube_sync.app.fleet import watch_fleet
from kube_sync.app.systems import serve_systems
from kube_sync.decisions.reading import DecisionReader
from kube_sync.decisions.sealing import Seals
from kube_sync.errors import Misconfigured
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import Reporter
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
from kube_sync.opa.client import opa_client
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.servertls import ServerTls, TlsFiles
from kube_sync.runtime.services import Service
from kube_sync.safety import Placements
from kube_sync.settings import parse_listen

_Keeping = tuple[Kept, Callable[[], bool | None]]  # and whether any policy exists
_WEBHOOK_GRACE = 1.0  # what is in progress has ended by then: see Drain


async def admit(context: Context) -> list[Service]:
    """Serve the webhook; return what runs beside it. Raises Misconfigured without certificates."""
    settings, readiness, drain = context.settings, context.readiness, context.drain
    cert_file, key_file = settings.admission.cert_file, settings.admission.key_file
    if cert_file is None or key_file is None:
        msg = "admission.cert_file: needed, since the API server only calls webhooks over TLS"
        raise Misconfigured(msg)
    news = News()
    maps = policy_maps(settings.policies, news.tell)
    objects = placement_policies(settings.policies, news.tell)
    policies: list[PolicyMaps | PlacementPolicies] = [*maps, *objects]
    gate = PolicyGate(policies, static=settings.policies.static)
    engine = await context.stack.enter_async_context(
        engine_client(target_of(settings), partial(canary_may_exist, policies))
    )
    asking, seals = settings.admission.engine, Seals(settings.placement.key_file)
    seen = partial(view, remediator=settings.admission.remediator)
    placements = Placements(settings.remediate.guard.placements)
    read = partial(placement, read=DecisionReader(placements.unreadable, gate.modules))
    judge = Judge(
        engine,
        gate,
        seen,
        backoff=waits(asking.backoff_seconds),
        attempts=asking.attempts,
        read=read,
    )
    checking = Judge(  # the same engine: what one knows of it, both do
        engine,
        gate,
        lambda review: seen(as_remediated(review)),
        backoff=waits(asking.backoff_seconds),
        attempts=asking.attempts,
        read=read,
        breaker=judge.breaker,
    )
    address = parse_listen("admission.listen", settings.admission.listen)
    tls = ServerTls(
        "admission", TlsFiles(cert_file, key_file, settings.admission.client_ca_file), readiness
    )
    reporter = Reporter(CONTROLLER, socket.gethostname())
    recorder = EventRecorder(context.kube, reporter, metrics.admission_events)
    denied = Denials(recorder).denied if settings.admission.events else nobody
    systems = await serve_systems(context, recorder, news.tell)
    ways = [way for system in systems for way in system.ways]
    fleet, watching = watch_fleet(context)
    compares = FleetJudge(checking, placements, fleet)
    ways.append(
        placement_check(compares, lambda: gate.policy_may_exist, settings.admission, denied, seals)
    )
    decides = FleetJudge(judge, placements, fleet)
    app = webhook_app(decides, settings.admission, drain, denied, ways, seals)
    exists = partial(policy_exists, gate, policies, static=settings.policies.static)
    kept: list[_Keeping] = [(found, exists) for found in kept_for_placement(settings)]
    kept += [(found, system.exists) for system in systems for found in system.kept]
    services = _registrations(context, kept, news)
    services += [service for system in systems for service in system.services]
    await context.stack.enter_async_context(
        serving(app, address, tls.context, _WEBHOOK_GRACE, drain)
    )
    readiness.met("start")
    probe = partial(probing, judge, readiness.reporter("opa"))
    services += [tls.follow, probe, recorder.run, *await _door(context), *watching]
    for found in maps:
        source = KubeCollection(
            context.kube, CONFIGMAPS, namespace=found.scope, label_selector=found.selector
        )
        name = f"{CONFIGMAPS} in {found.where} for admission"
        services.append(_watch(context, gate, name, source, found))
    for held in objects:
        served = MaybeServed(context.kube, PLACEMENT_POLICIES, held.namespace)
        name = f"{PLACEMENT_POLICIES} in {held.namespace} for admission"
        services.append(_watch(context, gate, name, served, held))
    return services


async def _door(context: Context) -> list[Service]:
    """Return what watches whether the OPA that is asked asks back who calls."""
    settings = context.settings
    elsewhere = settings.admission.engine.url or settings.enforce_scheduling_policy.url
    if elsewhere or settings.opa.token_file is None:
        return []
    opa = await context.stack.enter_async_context(opa_client(settings.opa))
    return [partial(watch_door, opa, settings.opa.url, context.readiness)]


class News:
    """Told once, heard by every registration."""

    def __init__(self) -> None:
        self.listeners: list[asyncio.Event] = []

    def tell(self) -> None:
        """Say that something may have changed."""
        for listener in self.listeners:
            listener.set()


def _registrations(context: Context, kept: Sequence[_Keeping], news: News) -> list[Service]:
    """Return what keeps the webhook's registrations right, where one is named."""
    settings = context.settings
    if settings.admission.registration.name is None:
        return []
    metrics.admission_registration_kept.set(1)
    identity = f"{socket.gethostname()}_{secrets.token_hex(8)}"
    lease = Lease(context.kube, settings.coordination.namespace, LEASE, identity, news=news.tell)
    # Every replica keeps the registrations then: what is not ready would be called by nobody.
    telling = partial(tell_lease, lease, LEASE, context.readiness, f"Lease {LEASE}", needed=False)
    services: list[Service] = [lease.run, telling]
    for found, exists in kept:
        services += _registration(context, found, exists, lease, news)
    return services


def _registration(
    context: Context, kept: Kept, exists: Callable[[], bool | None], lease: Lease, news: News
) -> list[Service]:
    """Return what keeps one of them right."""
    kube, own = context.kube, asyncio.Event()
    news.listeners.append(own)
    condition = "registration" if kept.path == PLACEMENT else f"registration of {kept.path}"
    note = partial(context.readiness.noted, condition)
    registration = Registration(kube, context.settings, lease, exists, note, own, kept=kept)
    source = KubeCollection(kube, kept.kind, field_selector=f"metadata.name={kept.name}")
    name = str(kept.kind) if kept.path == PLACEMENT else f"{kept.kind} {kept.name}"
    reflector = Reflector(name, source, registration.store, registration.seen)
    return [reflector.run, registration.run]


def _watch(
    context: Context,
    gate: PolicyGate,
    name: str,
    source: ListerWatcher,
    policies: PolicyMaps | PlacementPolicies,
) -> Service:
    context.readiness.waiting(name, "not listed yet")
    then = context.readiness.reporter(name)

    def report(reason: str | None) -> None:
        gate.found(policies) if reason is None else gate.lost(policies)
        then(reason)

    return Reflector(name, source, policies, report).run
