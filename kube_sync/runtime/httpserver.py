"""Serves one aiohttp application on one address, for the length of a block."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web

from kube_sync.errors import Misconfigured
from kube_sync.runtime.connection import Connection, expecting
from kube_sync.runtime.draining import Drain
from kube_sync.runtime.listening import Connections, listening

# Longer than clients keep idle connections (Go: 90 s), so that they close first and no request
# meets a closing connection.
_KEEPALIVE_SECONDS = 120.0
_HANDSHAKE_SECONDS = 10.0
# Far more than API servers, OPAs and stream clients open. One with TLS takes 0.3 MB.
MOST_CONNECTIONS = 1000


@asynccontextmanager
async def serving(
    app: web.Application,
    address: tuple[str, int],
    tls: ssl.SSLContext | None = None,
    grace: float = 5.0,
    drain: Drain | None = None,
    *,
    abandon: bool = False,
) -> AsyncGenerator[int]:
    """Serve until the block ends, then let requests finish for `grace` seconds; yields the port.

    A `drain` that runs before the block ends stops accepting by itself. Raises Misconfigured
    when the address is not available. `abandon`: cancel a request whose client has gone.
    """
    runner = web.AppRunner(app, shutdown_timeout=grace, handler_cancellation=abandon)
    await runner.setup()
    servers: list[asyncio.Server] = []

    async def stop() -> None:
        for server in servers:
            server.close()

    try:
        connections = Connections(MOST_CONNECTIONS)
        await _listen(runner, address, tls, connections, servers)
        if drain is not None:
            drain.shuts(stop)
        yield connections.port
    finally:
        await stop()
        await runner.cleanup()


async def _listen(
    runner: web.AppRunner,
    address: tuple[str, int],
    tls: ssl.SSLContext | None,
    connections: Connections,
    servers: list[asyncio.Server],
) -> None:
    """Add listening servers to `servers`. Raises Misconfigured."""
    loop, handler = asyncio.get_running_loop(), runner.server
    assert handler is not None  # noqa: S101 - it is set up
    handler.request_handler = expecting(handler.request_handler)

    def connection() -> Connection:
        return Connection(handler, loop=loop, access_log=None, keepalive_timeout=_KEEPALIVE_SECONDS)

    patience = None if tls is None else _HANDSHAKE_SECONDS
    try:
        for sock in await listening(address, connections):
            server = await loop.create_server(
                connection, sock=sock, ssl=tls, ssl_handshake_timeout=patience
            )
            servers.append(server)
    except OSError as error:
        msg = f"cannot listen on {address[0]}:{address[1]}: {error.strerror}"
        raise Misconfigured(msg) from error
