"""Listening sockets of one server, with a limit of open connections.

Invariant: a connection counts from its acceptance until it is closed, including its TLS
handshake, which no protocol sees; one over the limit is closed at once, counted and, once for
each time that the limit is reached, logged. A peer that does not read within
`UNTAKEN_SECONDS` is disconnected: otherwise its connection would stay for ever, also after
`close()`, which waits for unsent data.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import weakref
from typing import NamedTuple

import structlog

from kube_sync.observability import metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()

UNTAKEN_SECONDS = 60.0

_Address = tuple[str, int]


class Connections:
    """The open connections of one server."""

    def __init__(self, most: int, *, shared: bool = False) -> None:
        """At most `most` may be open; `shared`: other processes accept on the same sockets."""
        self._most = most
        self.shared = shared
        # Weak: asyncio drops a connection cancelled before its first step without closing it.
        self._open: weakref.WeakSet[_Accepted] = weakref.WeakSet()
        self._warned = False
        self.port = 0

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, accepted: _Accepted) -> None:
        """Count a connection."""
        self._open.add(accepted)
        self._warned = self._warned and len(self._open) > self._most // 2

    def closed(self, accepted: _Accepted) -> None:
        """Stop counting a connection."""
        self._open.discard(accepted)

    def full(self) -> bool:
        """Return whether the limit is reached; the caller then rejects a connection."""
        if len(self._open) < self._most:
            return False
        metrics.connections_refused.labels(str(self.port)).inc()
        if not self._warned:
            log.warning("too_many_connections", port=self.port, most=self._most)
        self._warned = True
        return True


# By inheritance, since asyncio accepts and closes a socket: there is no other seam that sees a
# connection before its handshake and after its end.
class _Accepted(socket.socket):
    def __init__(self, descriptor: int, connections: Connections) -> None:
        super().__init__(fileno=descriptor)
        self._connections = connections
        connections.opened(self)

    def close(self) -> None:
        self._connections.closed(self)
        super().close()

    def __del__(self) -> None:
        # Accepted while its server closed: asyncio would never handle it, and its peer would wait.
        self.close()


class _Listening(socket.socket):
    def __init__(self, family: int, connections: Connections) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._connections = connections
        self._took = False

    def accept(self) -> tuple[socket.socket, object]:
        if self._connections.shared and self._took:
            # One in each turn of the loop: asyncio would take all that wait, and leave none to the
            # other processes.
            self._took = False
            raise BlockingIOError
        found, address = super().accept()
        self._took = True
        if self._connections.full():
            found.close()
            raise ConnectionAbortedError  # asyncio treats it as: nothing to accept now
        if sys.platform == "linux":
            wait = int(UNTAKEN_SECONDS * 1000)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, wait)
        return _Accepted(found.detach(), self._connections), address


class Bound(NamedTuple):
    """Sockets that are bound to all addresses of a host name, and their connections."""

    connections: Connections
    sockets: list[socket.socket]


async def listening(address: _Address, connections: Connections) -> list[socket.socket]:
    """Return sockets bound to all addresses of a host name. Raises OSError."""
    host, port = address
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, where in dict.fromkeys((family, where) for family, _, _, _, where in found):
            sockets.append(_Listening(family, connections))
            _bind(sockets[-1], where)
    except OSError:
        for one in sockets:
            one.close()
        raise
    connections.port = sockets[0].getsockname()[1]
    metrics.connections_refused.labels(str(connections.port))
    return sockets


def _bind(found: socket.socket, where: object) -> None:
    found.setblocking(False)  # noqa: FBT003 - its only name
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if found.family == socket.AF_INET6:  # otherwise it could not share a port with IPv4
        found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    found.bind(where)  # type: ignore[arg-type] # as getaddrinfo gave it
