"""Serves one aiohttp application on one address, for the length of a block."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web

from kube_sync.errors import Misconfigured
from kube_sync.runtime.connection import Connection, dispatching
from kube_sync.runtime.draining import Drain
from kube_sync.runtime.listening import Bound, Connections, listening

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
    bound: Bound | None = None,
) -> AsyncGenerator[int]:
    """Serve until the block ends, then let requests finish for `grace` seconds; yields the port.

    A `drain` that runs before the block ends stops accepting by itself. Raises Misconfigured
    when the address is not available. `abandon`: cancel a request whose client has gone. `bound`
    are sockets that are bound to the address already.
    """
    runner = web.AppRunner(app, shutdown_timeout=grace, handler_cancellation=abandon)
    await runner.setup()
    servers: list[asyncio.Server] = []

    async def stop() -> None:
        for server in servers:
            server.close()

    try:
        with _available(address):
            bound = bound or await _bound(address)
            await _listen(app, runner, bound.sockets, tls, servers)
        if drain is not None:
            drain.shuts(stop)
        yield bound.connections.port
    finally:
        await stop()
        await runner.cleanup()


async def bind(address: tuple[str, int]) -> Bound:
    """Return sockets for several processes that serve one address. Raises Misconfigured."""
    with _available(address):
        return await _bound(address, shared=True)


async def _bound(address: tuple[str, int], *, shared: bool = False) -> Bound:
    connections = Connections(MOST_CONNECTIONS, shared=shared)
    return Bound(connections, await listening(address, connections))


@contextmanager
def _available(address: tuple[str, int]) -> Iterator[None]:
    """Raise Misconfigured if the block finds that it cannot listen on an address."""
    try:
        yield
    except OSError as error:
        where = f"{address[0]}:{address[1]}"
        msg = f"cannot listen on {where}: {error.strerror} (settings that end in .listen say where)"
        raise Misconfigured(msg) from error


async def _listen(
    app: web.Application,
    runner: web.AppRunner,
    sockets: Sequence[socket.socket],
    tls: ssl.SSLContext | None,
    servers: list[asyncio.Server],
) -> None:
    """Add listening servers to `servers`. Raises OSError."""
    loop, handler = asyncio.get_running_loop(), runner.server
    assert handler is not None  # noqa: S101 - it is set up
    handler.request_handler = dispatching(app, handler.request_handler)

    def connection() -> Connection:
        return Connection(handler, loop=loop, access_log=None, keepalive_timeout=_KEEPALIVE_SECONDS)

    patience = None if tls is None else _HANDSHAKE_SECONDS
    for sock in sockets:
        server = await loop.create_server(
            connection, sock=sock, ssl=tls, ssl_handshake_timeout=patience
        )
        servers.append(server)
