"""The /metrics, /livez and /readyz pages of one process.

Liveness only shows that the event loop runs: a restart of a sidecar never repairs an OPA or an API
server that is down. Readiness names every condition that is not met.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.exposition import choose_encoder

from kube_sync.observability import metrics, tracing
from kube_sync.observability.readiness import Readiness

Gather = Callable[[], Awaitable[bytes]]

_READINESS = web.AppKey("readiness", Readiness)
_GATHER: web.AppKey[Gather] = web.AppKey("gather")


async def _own() -> bytes:
    return generate_latest()


def observability_app(readiness: Readiness, gather: Gather = _own) -> web.Application:
    """Build the application; `gather` returns the metrics to show, else those of this process."""
    app = web.Application()
    app[_READINESS] = readiness
    app[_GATHER] = gather
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/livez", _livez)
    app.router.add_get("/readyz", _readyz)
    return app


async def _metrics(request: web.Request) -> web.Response:
    metrics.ready.set(not request.app[_READINESS].reasons)
    gather = request.app[_GATHER]
    if tracing.recorder is not None and gather is _own:
        # As Prometheus asks for it: only OpenMetrics has exemplars.
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(REGISTRY), headers={"Content-Type": content_type})
    body = await gather()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _livez(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    readiness = request.app[_READINESS]
    lines = [f"{name}: {state}" for name, state in readiness.conditions.items()]
    ready = not readiness.reasons
    lines.append("ready" if ready else "not ready")
    return web.Response(text="\n".join(lines) + "\n", status=200 if ready else 503)
