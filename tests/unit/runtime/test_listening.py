"""How many connections a server holds, and how long it holds one that takes nothing."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from kube_sync.certificates import write_certificates
from kube_sync.runtime import httpserver, listening
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tls import client_context, server_context
from tests.unit.async_tools import PATIENCE, until

_ASKED = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def _app(size: int = 1) -> web.Application:
    async def much(_request: web.Request) -> web.Response:
        return web.Response(body=bytes(size))

    app = web.Application()
    app.router.add_get("/", much)
    return app


class Client:
    """Connections to one port, which live until they are closed."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.port = port
        self._tls = tls
        self._open: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self._tls)
        self._open.append(writer)
        return reader, writer

    def stop_reading(self) -> None:
        for writer in self._open:
            transport = writer.transport
            assert isinstance(transport, asyncio.ReadTransport)
            transport.pause_reading()

    async def is_answered(self) -> bool:
        try:
            reader, writer = await self.connect()
            writer.write(_ASKED)
            async with asyncio.timeout(PATIENCE):
                return b" 200 " in await reader.readline()
        except ConnectionError:
            return False

    async def close(self) -> None:
        for writer in self._open:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
        self._open.clear()


def _refused(port: int) -> float:
    name, labels = "kube_sync_connections_refused_total", {"port": str(port)}
    return REGISTRY.get_sample_value(name, labels) or 0


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    write_certificates(tmp_path, ["127.0.0.1"])
    server = server_context(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"), None)
    return server, client_context(str(tmp_path / "ca.crt"))


async def test_one_connection_too_many_is_closed_counted_and_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(httpserver, "MOST_CONNECTIONS", 4)
    with capture_logs() as logs:
        async with serving(_app(), ("127.0.0.1", 0), grace=0.05) as port:
            client = Client(port)
            assert [await client.is_answered() for _ in range(6)] == [True] * 4 + [False] * 2
            await client.close()
            assert _refused(port) == 2
    assert [log for log in logs if log["log_level"] == "warning"] == [
        {"event": "too_many_connections", "log_level": "warning", "port": port, "most": 4}
    ]


async def test_there_is_room_again_for_each_connection_that_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(httpserver, "MOST_CONNECTIONS", 2)
    async with serving(_app(), ("127.0.0.1", 0), grace=0.05) as port:
        client = Client(port)
        for _ in range(20):
            assert await client.is_answered()
            await client.close()
            await _room(client)
        assert [await client.is_answered() for _ in range(3)] == [True, True, False]
        await client.close()


async def _room(client: Client) -> None:
    """Wait until the server has seen the ends."""
    async with asyncio.timeout(PATIENCE):
        while not await client.is_answered():
            await client.close()
    await client.close()


async def test_connections_that_never_shake_hands_count_and_end(
    monkeypatch: pytest.MonkeyPatch, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    monkeypatch.setattr(httpserver, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(httpserver, "_HANDSHAKE_SECONDS", 0.3)
    server, trusting = tls
    async with serving(_app(), ("127.0.0.1", 0), server, grace=0.05) as port:
        silent, client = Client(port), Client(port, trusting)
        ends = [await silent.connect() for _ in range(3)]
        await until(lambda: _refused(port) == 0)
        assert not await client.is_answered()
        async with asyncio.timeout(PATIENCE):
            for reader, _ in ends:
                assert await reader.read() == b""
        assert await client.is_answered()
        await silent.close()
        await client.close()


async def test_what_is_no_handshake_does_not_count_any_more(
    monkeypatch: pytest.MonkeyPatch, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    monkeypatch.setattr(httpserver, "MOST_CONNECTIONS", 2)
    server, trusting = tls
    async with serving(_app(), ("127.0.0.1", 0), server, grace=0.05) as port:
        for sent in (_ASKED, b"\x16\x03\x01", b"\0" * 1000, b"") * 10:
            garbage = Client(port)
            _, writer = await garbage.connect()
            writer.write(sent)
            with suppress(ConnectionError):
                await writer.drain()
            await garbage.close()
        client = Client(port, trusting)
        await _room(client)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux ends it")
@pytest.mark.parametrize("secured", [False, True])
async def test_a_reader_that_never_reads_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
    secured: bool,  # noqa: FBT001 - a parameter
) -> None:
    monkeypatch.setattr(listening, "UNTAKEN_SECONDS", 0.3)
    server, trusting = tls if secured else (None, None)
    async with serving(_app(20_000_000), ("127.0.0.1", 0), server, grace=0.05) as port:
        before = len(asyncio.all_tasks())
        client = Client(port, trusting)
        reader, writer = await client.connect()
        writer.write(_ASKED)
        await reader.readline()
        client.stop_reading()
        await until(lambda: len(asyncio.all_tasks()) > before)
        await until(lambda: len(asyncio.all_tasks()) == before)
        await client.close()


async def test_both_addresses_of_localhost_are_served() -> None:
    async with serving(_app(), ("localhost", 0), grace=0.05) as port:
        client = Client(port)
        assert await client.is_answered()
        await client.close()


async def test_a_connection_that_is_cancelled_before_its_first_step_is_closed() -> None:
    connections = listening.Connections(2)
    [bound] = await listening.listening(("127.0.0.1", 0), connections)
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=bound)
    with socket.create_connection(("127.0.0.1", connections.port)) as client:
        client.settimeout(PATIENCE)
        await _cancel_what_comes()
        gc.collect()
        assert client.recv(1) == b""
    assert len(connections) == 0
    server.close()
    await server.wait_closed()


async def _cancel_what_comes() -> None:
    mine = asyncio.all_tasks()
    async with asyncio.timeout(PATIENCE):
        while not (new := asyncio.all_tasks() - mine):  # noqa: ASYNC110 - its first step is awaited
            await asyncio.sleep(0)
    for task in new:
        task.cancel()
    await asyncio.wait(new)


async def test_of_connections_that_wait_for_several_processes_each_takes_one_at_a_time() -> None:
    """Where a process does not share them, asyncio accepts until none waits."""
    for shared, taken in ((True, [True, False, True, False]), (False, [True, True, True, False])):
        connections = listening.Connections(9, shared=shared)
        [bound] = await listening.listening(("127.0.0.1", 0), connections)
        bound.listen()
        where = ("127.0.0.1", connections.port)
        clients = [socket.create_connection(where) for _ in range(3)]
        assert [_accepts(bound) for _ in range(4)] == taken
        for one in (bound, *clients):
            one.close()


def _accepts(bound: socket.socket) -> bool:
    try:
        bound.accept()[0].close()
    except BlockingIOError:
        return False
    return True
