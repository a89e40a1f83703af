"""Forwards local connections to a port of a pod through the API server, as `kubectl port-forward`.

The kubelet connects within the pod's network namespace: also to what listens on its loopback
only, whatever network policies say. The caller needs `get` and `create` of `pods/portforward`.

The protocol is the kubelet's for WebSockets, `v4.channel.k8s.io`: a WebSocket for each connection,
in which the first byte of a message names its channel: 0 has the data, 1 what failed. The first
message of each channel is the port, as two bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import aiohttp

from kube_sync.errors import Refused, Retriable, SyncError, first_of
from kube_sync.kube.client import KubeClient
from kube_sync.kube.pods import PODS
from kube_sync.objects import ObjectKey

PROTOCOL: Final = "v4.channel.k8s.io"
_DATA, _FAILED = 0, 1  # channels
_CHUNK = 1 << 16  # bytes


@dataclass(frozen=True, slots=True)
class PodPort:
    """A port of a pod."""

    pod: ObjectKey
    port: int

    @property
    def path(self) -> str:
        """The subresource of the API server."""
        return PODS.path(self.pod.namespace, self.pod.name) + "/portforward"

    def __str__(self) -> str:
        """Format for people."""
        return f"port {self.port} of pod {self.pod}"


class Forwarder:
    """Forwards each local connection to the port that `target` names by then."""

    def __init__(self, client: KubeClient, target: Callable[[], Awaitable[PodPort]]) -> None:
        """`target` may raise SyncError."""
        self._client = client
        self._target = target
        self.failure: SyncError | None = None  # of the last connection

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[int]:
        """Listen on the loopback for the time of the block, and yield the port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()  # connections that are open end with the loop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.failure = None
            await self._forward(await self._target(), reader, writer)
        except SyncError as error:
            self.failure = error
        finally:
            writer.close()

    async def _forward(
        self, target: PodPort, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        params = {"ports": str(target.port)}
        try:
            async with self._client.websocket(
                target.path, params=params, protocol=PROTOCOL
            ) as socket:
                await _relay(target, socket, reader, writer)
        except Refused as error:
            msg = f"{target}: {error} (it takes get and create of pods/portforward)"
            raise Refused(msg) from error


async def _relay(
    target: PodPort,
    socket: aiohttp.ClientWebSocketResponse,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Pass bytes on in both directions until either side ends. Raises SyncError."""
    try:
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(_send(socket, reader))
            try:
                await _receive(target, socket, writer)
            finally:
                sending.cancel()
    except ExceptionGroup as errors:
        raise first_of(errors) from errors


async def _send(socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK):
            await socket.send_bytes(bytes((_DATA,)) + chunk)
    await socket.close()  # which ends the other direction


async def _receive(
    target: PodPort, socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter
) -> None:
    begun: set[int] = set()
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY:
            msg = f"{target}: the API server sent what is no data: {message.type.name}"
            raise Retriable(msg)
        channel, content = message.data[0], message.data[1:]
        if channel not in begun:
            begun.add(channel)
        elif channel == _FAILED:
            msg = f"{target}: {content.decode('utf-8', 'replace').strip()}"
            raise Retriable(msg)
        else:
            with suppress(ConnectionError):  # who asked has gone, which `_send` notices
                writer.write(content)
                await writer.drain()
