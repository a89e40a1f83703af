"""One aiohttp application on one address, started and stopped as a pair."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web

from kube_sync.errors import Misconfigured


@asynccontextmanager
async def serving(
    app: web.Application,
    address: tuple[str, int],
    tls: ssl.SSLContext | None = None,
    grace: float = 5.0,
) -> AsyncGenerator[int]:
    """Serve until the block ends, then let requests finish for `grace` seconds; yields the port.

    Raises Misconfigured when the address cannot be had.
    """
    host, port = address
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=grace)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            msg = f"cannot listen on {host}:{port}: {error.strerror}"
            raise Misconfigured(msg) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
