"""The parts that all services of a process share, created first and closed last."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import NoReturn, TypeVar

import structlog
from aiohttp import web
from prometheus_client import Counter

from kube_sync.config import Settings, parse_listen
from kube_sync.errors import Misconfigured
from kube_sync.kube.client import KubeClient, kube_client
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import Reporter
from kube_sync.kube.lease import Lease
from kube_sync.kube.reflector import ListerWatcher, Reflector, Store
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.observability.server import observability_app
from kube_sync.runtime.draining import Drain
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.services import Service

log: structlog.stdlib.BoundLogger = structlog.get_logger()


T = TypeVar("T")

_AGAIN_SECONDS = 2.0
_CHECK_SECONDS = 2.0  # between two checks of who holds a Lease

# Returns the pages of a process by its readiness; None: it has none.
Page = Callable[[Readiness], web.Application | None]
# Whether to retry a failed start; False: fail, and let somebody else repair it.
Patience = Callable[[], bool]


def impatient() -> bool:
    """Never retry."""
    return False


def _nobody(_reason: str | None) -> None:
    return


@dataclass(frozen=True, slots=True)
class Context:
    """The shared parts of a process."""

    settings: Settings
    readiness: Readiness
    stack: AsyncExitStack
    kube: KubeClient
    drain: Drain  # of the webhook

    def lease(
        self,
        name: str,
        on_acquired: Callable[[], None],
        notes: Callable[[], Mapping[str, str]] = dict,
        *,
        needed: bool = True,
    ) -> Lease:
        """Return a Lease for which this process is a candidate."""
        identity = f"{socket.gethostname()}_{secrets.token_hex(8)}"
        namespace = self.settings.coordination.namespace
        return Lease(
            self.kube,
            namespace,
            name,
            identity,
            needed=needed,
            on_acquired=on_acquired,
            notes=notes,
        )

    def followed(
        self,
        name: str,
        source: ListerWatcher,
        store: Store,
        on_report: Callable[[str | None], None] = _nobody,
        behind: Callable[[str], None] = _nobody,
    ) -> Service:
        """Return the Reflector of `store`; until it is listed the process is not ready.

        `on_report` is called with why it is stale, or None; `behind` as by a Reflector.
        """
        self.readiness.waiting(name, "not listed yet")
        ready = self.readiness.reporter(name)

        def report(reason: str | None) -> None:
            on_report(reason)
            ready(reason)

        return Reflector(name, source, store, report, behind=behind).run

    def recorder(self, controller: str, counter: Counter) -> EventRecorder:
        """Return the recorder of Events of a controller."""
        return EventRecorder(self.kube, Reporter(controller, socket.gethostname()), counter)


@asynccontextmanager
async def process(
    settings: Settings, port: int, patience: Patience = impatient, page: Page = observability_app
) -> AsyncGenerator[Context]:
    """Serve metrics and readiness, by default on `port`, and connect to the API server."""
    readiness = Readiness()
    readiness.waiting("start", "starting")
    address = parse_listen("observe.listen", settings.observe.listen or f"0.0.0.0:{port}")
    async with AsyncExitStack() as stack:
        if (app := page(readiness)) is not None:
            await stack.enter_async_context(serving(app, address))
        kube = await _retried(
            lambda: stack.enter_async_context(kube_client(settings.kubernetes)), readiness, patience
        )
        metrics.config_valid.set(1)  # an invalid configuration does not get here
        log.info("started", api_server=kube.server, opa=settings.opa.url)
        drain = Drain(settings.admission.drain_seconds, readiness.waiting)
        yield Context(settings, readiness, stack, kube, drain)


async def begun(
    context: Context, start: Callable[[Context], Awaitable[T]], patience: Patience
) -> T:
    """Return the result of `start`, and keep what it has opened. Raises Misconfigured.

    With patience it is retried: what it opened before it failed is closed first.
    """

    async def once() -> T:
        async with AsyncExitStack() as stack:
            started = await start(replace(context, stack=stack))
            context.stack.push_async_exit(stack.pop_all())
            return started

    return await _retried(once, context.readiness, patience)


async def _retried(
    attempt: Callable[[], Awaitable[T]], readiness: Readiness, patience: Patience
) -> T:
    while True:
        try:
            return await attempt()
        except Misconfigured as error:
            if not patience():
                raise
            readiness.waiting("start", str(error))
        await asyncio.sleep(_AGAIN_SECONDS)


async def report_lease(
    lease: Lease,
    name: str,
    readiness: Readiness,
    condition: str = "lease",
    *,
    needed: bool = True,
) -> NoReturn:
    """Report the Lease's state: a standby is ready, a process that can have no Lease is not.

    Without `needed` it works without a Lease too, and only the reason is shown.
    """
    while True:
        if lease.lacking is not None:
            report = readiness.waiting if needed else readiness.noted
            report(condition, f"there can be no Lease {name}: {lease.lacking}")
        elif lease.held:
            readiness.noted(condition, "this process writes")
        elif lease.holder is not None or condition not in readiness.reasons:
            readiness.noted(condition, f"{lease.holder or 'nobody'} writes")
        await asyncio.sleep(_CHECK_SECONDS)
