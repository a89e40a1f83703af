"""One aiohttp application on one address, started and stopped as a pair."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web

from kube_sync.errors import Misconfigured
from kube_sync.runtime.draining import Drain

# Longer than clients keep idle connections (Go: 90 s), so that they close first and no request
# meets a closing connection; and a bound for whoever sends a request line byte by byte.
_KEEPALIVE_SECONDS = 120.0


@asynccontextmanager
async def serving(
    app: web.Application,
    address: tuple[str, int],
    tls: ssl.SSLContext | None = None,
    grace: float = 5.0,
    drain: Drain | None = None,
) -> AsyncGenerator[int]:
    """Serve until the block ends, then let requests finish for `grace` seconds; yields the port.

    A `drain` that runs before the block ends stops accepting when it is time. Raises Misconfigured
    when the address cannot be had.
    """
    host, port = address
    runner = web.AppRunner(
        app, access_log=None, shutdown_timeout=grace, keepalive_timeout=_KEEPALIVE_SECONDS
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            msg = f"cannot listen on {host}:{port}: {error.strerror}"
            raise Misconfigured(msg) from error
        if drain is not None:
            drain.shuts(site.stop)
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
