"""The wiring: which parts a command is made of. The only module that knows every part.

Each `run_…` runs until a signal. What is wrong with the configuration raises Misconfigured; what
is wrong with the world outside is waited for, with the reason on the readiness page.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import structlog

from kube_sync.admission.judge import Judge
from kube_sync.admission.policygate import PolicyGate
from kube_sync.admission.server import webhook_app
from kube_sync.decisions.decision import REQUESTED
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.requested import FIELD_MANAGER
from kube_sync.decisions.stream import stream_app
from kube_sync.errors import Misconfigured, SyncError
from kube_sync.kube.client import KubeClient, kube_client
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.discovery import kind_of
from kube_sync.kube.patch import annotate, apply_metadata
from kube_sync.kube.policymaps import CONFIGMAPS, policy_maps
from kube_sync.kube.reflector import Reflector
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.observability.server import observability_app
from kube_sync.opa.client import OpaClient, opa_client
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.remediator.plan import Apply, Forget
from kube_sync.remediator.reconciler import Reconciler
from kube_sync.remediator.streamclient import stream_client
from kube_sync.replicator.agent import Replicator
from kube_sync.replicator.policies.shelf import Shelf
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.configfile import ConfigFile
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.services import Service, run_services
from kube_sync.runtime.tls import server_context
from kube_sync.runtime.tokenfile import TokenFile
from kube_sync.settings import Settings, Source, check_stream, parse_listen

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_PROBE_SECONDS = 5.0
# Streams never finish by themselves, so there is nothing to wait for (0 would wait for ever).
_STREAM_GRACE = 0.1
_WORKERS = 4  # PATCHes in flight at most


@dataclass(frozen=True, slots=True)
class Context:
    """What every part of a process shares."""

    settings: Settings
    readiness: Readiness
    stack: AsyncExitStack
    kube: KubeClient


async def run_replicate(settings: Settings, source: Source) -> None:
    """Replicate into OPA and serve the decision stream; follow `source` when it changes."""
    async with _context(settings, 9401) as context:
        await run_services(await _replicate(context, source))


async def run_remediate(settings: Settings) -> None:
    """Follow the decision stream and patch what it concerns."""
    async with _context(settings, 9402) as context:
        await run_services(await _remediate(context))


async def run_admit(settings: Settings) -> None:
    """Answer the API server's admission reviews."""
    async with _context(settings, 9403) as context:
        await run_services(await _admit(context))


async def run_all(settings: Settings, source: Source) -> None:
    """Run replicator and remediator in one process, and the webhook where it has certificates."""
    async with _context(settings, 9406) as context:
        services = [*await _replicate(context, source), *await _remediate(context)]
        if settings.admission.cert_file is not None:
            services += await _admit(context)
        else:
            log.warning("no_webhook", reason="admission.cert_file is not set")
        await run_services(services)


@asynccontextmanager
async def _context(settings: Settings, port: int) -> AsyncGenerator[Context]:
    readiness = Readiness()
    readiness.waiting("start", "starting")
    address = parse_listen("observe.listen", settings.observe.listen or f"0.0.0.0:{port}")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(observability_app(readiness), address))
        kube = await stack.enter_async_context(kube_client(settings.kubernetes))
        metrics.config_valid.set(1)  # or it would not have come so far
        log.info("started", api_server=kube.server, opa=settings.opa.url)
        yield Context(settings, readiness, stack, kube)


async def _replicate(context: Context, source: Source) -> list[Service]:
    settings = context.settings
    opa = await _opa(context)
    hub = DecisionHub(secrets.token_hex(8))
    for condition in ("data", "policies"):  # or it would look ready before it has begun
        context.readiness.waiting(condition, "not loaded yet")
    shelf, compiler = Shelf(), ScratchOpa(settings.opa.binary)
    replicator = Replicator(settings, context.kube, opa, hub, context.readiness, compiler, shelf)
    decisions = settings.decisions
    check_stream(decisions)
    token = TokenFile(decisions.token_file)
    token.current()
    tls = (
        server_context(decisions.cert_file, decisions.key_file)
        if decisions.cert_file and decisions.key_file
        else None
    )
    address = parse_listen("decisions.listen", decisions.listen)
    await context.stack.enter_async_context(
        serving(stream_app(hub, token, shelf.routes()), address, tls, _STREAM_GRACE)
    )
    context.readiness.met("start")
    services: list[Service] = [replicator.run]
    if source.file is not None:
        watched = ConfigFile(source, settings, context.readiness)
        services.append(partial(watched.follow, replicator.configure))
    return services


async def _remediate(context: Context) -> list[Service]:
    settings, readiness, kube = context.settings, context.readiness, context.kube
    report = readiness.reporter("decisions")
    report(f"decision stream {settings.decisions.url}: not connected yet")
    stream = await context.stack.enter_async_context(stream_client(settings.decisions, report))
    kinds: dict[GroupVersionResource, str] = {}

    async def patch(gvr: GroupVersionResource, key: ObjectKey, step: Apply | Forget) -> None:
        if isinstance(step, Forget):
            await annotate(kube, gvr, key, step.version, {REQUESTED: None}, FIELD_MANAGER)
            return
        if gvr not in kinds:
            kinds[gvr] = await kind_of(kube, gvr)
        await apply_metadata(kube, gvr, kinds[gvr], key, step, FIELD_MANAGER)

    reconciler = Reconciler(patch, settings.remediate.mode)
    services: list[Service] = [partial(reconciler.follow, stream), *[reconciler.run] * _WORKERS]
    for resource in settings.targets():
        source = KubeCollection(kube, resource.gvr, metadata_only=True)
        name = f"{resource.gvr} to remediate"
        readiness.waiting(name, "not listed yet")
        store = reconciler.targets(resource.gvr)
        services.append(Reflector(name, source, store, readiness.reporter(name)).run)
    readiness.met("start")
    return services


async def _admit(context: Context) -> list[Service]:
    settings, readiness = context.settings, context.readiness
    cert_file, key_file = settings.admission.cert_file, settings.admission.key_file
    if cert_file is None or key_file is None:
        msg = "admission.cert_file: needed, since the API server only calls webhooks over TLS"
        raise Misconfigured(msg)
    opa = await _opa(context)
    maps = policy_maps(settings.policies, lambda: None)
    gate = PolicyGate(maps, static=settings.policies.static)
    judge = Judge(opa, settings.placement.path, gate)
    address = parse_listen("admission.listen", settings.admission.listen)
    tls = server_context(cert_file, key_file)
    await context.stack.enter_async_context(
        serving(webhook_app(judge, settings.admission), address, tls)
    )
    readiness.met("start")
    services: list[Service] = [partial(_probe, opa, settings.placement.path, readiness)]
    for found in maps:
        source = KubeCollection(
            context.kube, CONFIGMAPS, namespace=found.scope, label_selector=found.selector
        )
        name = f"{CONFIGMAPS} in {found.where} for admission"
        readiness.waiting(name, "not listed yet")
        report = _gate_report(gate, found.namespace, readiness.reporter(name))
        services.append(Reflector(name, source, found, report).run)
    return services


async def _opa(context: Context) -> OpaClient:
    TokenFile(context.settings.opa.token_file).current()  # wrong now: say so and exit
    return await context.stack.enter_async_context(opa_client(context.settings.opa))


async def _probe(opa: OpaClient, path: str, readiness: Readiness) -> NoReturn:
    """Ask OPA now and then, so that the readiness page knows before the first review does."""
    backoff = Backoff(_PROBE_SECONDS, _PROBE_SECONDS)
    while True:
        try:
            await opa.query(path, b'{"input":{}}')
            readiness.met("opa")
        except SyncError as error:
            readiness.waiting("opa", str(error))
        await backoff.wait()


def _gate_report(
    gate: PolicyGate, namespace: str, then: Callable[[str | None], None]
) -> Callable[[str | None], None]:
    def report(reason: str | None) -> None:
        gate.found(namespace) if reason is None else gate.lost(namespace)
        then(reason)

    return report
