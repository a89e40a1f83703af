"""What every part of a process shares, made before any of them and ended after all."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog

from kube_sync.kube.client import KubeClient, kube_client
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.observability.server import observability_app
from kube_sync.runtime.draining import Drain
from kube_sync.runtime.httpserver import serving
from kube_sync.settings import Settings, parse_listen

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Context:
    """What every part of a process shares."""

    settings: Settings
    readiness: Readiness
    stack: AsyncExitStack
    kube: KubeClient
    drain: Drain  # of the webhook


@asynccontextmanager
async def process(settings: Settings, port: int) -> AsyncGenerator[Context]:
    """Serve metrics and readiness, by default on `port`, and reach the API server."""
    readiness = Readiness()
    readiness.waiting("start", "starting")
    address = parse_listen("observe.listen", settings.observe.listen or f"0.0.0.0:{port}")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(observability_app(readiness), address))
        kube = await stack.enter_async_context(kube_client(settings.kubernetes))
        metrics.config_valid.set(1)  # or it would not have come so far
        log.info("started", api_server=kube.server, opa=settings.opa.url)
        drain = Drain(settings.admission.drain_seconds, readiness.waiting)
        yield Context(settings, readiness, stack, kube, drain)
