"""Wires the replicator, and the server of the decision stream."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial

import structlog
from aiohttp import web

from kube_sync.config import PolicyTopology, Source, check_stream, parse_listen
from kube_sync.decisions.basis_server import basis_route
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.stream import protected_app, stream_app
from kube_sync.guard import stricter
from kube_sync.kube.client import KubeClient
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaClient, opa_client
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.policies.trial_run import Trial
from kube_sync.processes.board import serve_board
from kube_sync.processes.context import Context
from kube_sync.processes.ledger import Opened, open_ledger
from kube_sync.processes.opa_auth_check import watch_authorization
from kube_sync.processes.policyevents import CONTROLLER, PolicyEvents
from kube_sync.replicator.replica import Origin
from kube_sync.replicator.replicator import Listeners, Replicator
from kube_sync.replicator.versions import version_route
from kube_sync.runtime.configfile import ConfigFile
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.servertls import ServerTls, TlsFiles
from kube_sync.runtime.services import Service
from kube_sync.runtime.tokenfile import TokenFile

log: structlog.stdlib.BoundLogger = structlog.get_logger()

# Streams never finish by themselves, so there is nothing to wait for (0 would wait for ever).
_STREAM_GRACE = 0.1


async def replicate(context: Context, source: Source) -> list[Service]:
    """Return the services of the replicator; it reloads `source` when it changes."""
    settings = context.settings
    opa = await _opa(context)
    instance = secrets.token_hex(8)
    ledger = open_ledger(settings.ledger, instance, context.readiness)
    hub = DecisionHub(instance, stricter=stricter, recorder=ledger.recorder)
    for condition in ("data", "policies"):  # otherwise it would look ready before it has begun
        context.readiness.waiting(condition, "not loaded yet")
    events = context.recorder(CONTROLLER, metrics.replicator_events)
    bundles = BundleServer()
    replicator = _replicator(context, opa, hub, bundles, ledger, events)
    if not settings.targets():
        log.info("nothing_is_decided_on", setting="placement.resources")
    check_stream(settings.decisions)
    token = TokenFile(settings.decisions.token_file)
    token.current()
    services: list[Service] = [replicator.run, events.run, *ledger.services]
    if settings.builtin:
        services += _builtin_services(context, opa)
    if settings.opa.token_file is not None:
        services.append(partial(watch_authorization, opa, settings.opa.url, context.readiness))
    routes, tokenless = [*bundles.routes(), *ledger.routes], list[web.RouteDef]()
    routes.append(version_route(opa, lambda: replicator.policies.digest))
    basis = basis_route(hub.basis)
    routes.append(basis)
    if settings.decisions.board:
        board = await serve_board(context, replicator, hub, opa)
        routes, tokenless = [*routes, *board.routes], board.tokenless
    served = stream_app(hub, token, routes, settings.placement.path, tokenless, ledger.recorded)
    services += await _serve(context, served)
    services += await _serve_basis(context, protected_app(token, [basis]))
    context.readiness.met("start")
    if source.file is not None:
        watched = ConfigFile(source, settings, context.readiness)
        services.append(partial(watched.follow, replicator.configure))
    return services


def _replicator(
    context: Context,
    opa: OpaClient,
    hub: DecisionHub,
    bundles: BundleServer,
    ledger: Opened,
    events: EventRecorder,
) -> Replicator:
    compiler = ScratchOpa.of(context.settings)
    policy_events = PolicyEvents(events, ledger.head)
    return Replicator(
        context.settings,
        context.kube,
        opa,
        hub,
        context.readiness,
        compiler,
        shelf=bundles,
        listeners=Listeners(
            in_force=ledger.in_force,
            notes=ledger.notes,
            halted=policy_events.halted,
            failed=policy_events.failed,
        ),
        trial=Trial(compiler),
        topology=partial(_topology, context.kube),
    )


def _topology(
    kube: KubeClient,
    settings: PolicyTopology,
    readiness: Readiness,
    currency: Callable[[str, str | None], None],
) -> Origin:
    # Imported where a topology is replicated only.
    from kube_sync.topology.controller.topology_feed import gateway_api_feed  # noqa: PLC0415

    return gateway_api_feed(kube, settings, readiness, currency)


def _builtin_services(context: Context, opa: OpaClient) -> list[Service]:
    """Return the services for the policies of built-in systems."""
    # Imported where there is such a system only.
    from kube_sync.processes.conditions import install_defaults, keep_conditions  # noqa: PLC0415

    services = keep_conditions(context, opa)
    if "scheduling" in context.settings.builtin:
        services.append(install_defaults(context, opa))
    return services


async def _serve(context: Context, served: web.Application) -> list[Service]:
    """Serve the decision stream; return the service that reloads its certificate."""
    decisions = context.settings.decisions
    address = parse_listen("decisions.listen", decisions.listen)
    files = _files(decisions.cert_file, decisions.key_file)
    return await _serve_at(context, served, address, "decisions", files)


async def _serve_basis(context: Context, served: web.Application) -> list[Service]:
    """Serve the basis of decisions on its own port, if there is one; return likewise."""
    basis = context.settings.decisions.basis
    if basis.listen is None:
        return []
    address = parse_listen("decisions.basis.listen", basis.listen)
    files = _files(basis.cert_file, basis.key_file)
    return await _serve_at(context, served, address, "decisions.basis", files)


def _files(cert_file: str | None, key_file: str | None) -> TlsFiles | None:
    return TlsFiles(cert_file, key_file) if cert_file and key_file else None


async def _serve_at(
    context: Context,
    served: web.Application,
    address: tuple[str, int],
    name: str,
    files: TlsFiles | None,
) -> list[Service]:
    tls = None if files is None else ServerTls(name, files, context.readiness)
    await context.stack.enter_async_context(
        # Handlers write nothing: one whose client has gone can be cancelled.
        serving(served, address, None if tls is None else tls.context, _STREAM_GRACE, abandon=True)
    )
    return [] if tls is None else [tls.follow]


async def _opa(context: Context) -> OpaClient:
    TokenFile(context.settings.opa.token_file).current()  # if it is invalid now: fail at the start
    return await context.stack.enter_async_context(opa_client(context.settings.opa))
