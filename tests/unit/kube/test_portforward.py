from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kube_sync.errors import NotFound, Refused, Retriable, SyncError
from kube_sync.kube.portforward import PROTOCOL, Forwarder, PodPort
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import key, kube_of
from tests.fakes.http import Handler, failing
from tests.fakes.installations import closed_port, forwarding, forwards, talking

_LARGE = 300_000  # bytes: more than one message


@asynccontextmanager
async def echoing() -> AsyncGenerator[int]:
    """Serve what sends back each line, and closes after an empty one."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (line := await reader.readline()).strip():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, limit=1 << 20)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def forwarded(
    folder: Path, handler: Handler, target: Callable[[], Awaitable[PodPort]] | None = None
) -> AsyncGenerator[tuple[FakeApiServer, Forwarder, int]]:
    async def pod() -> PodPort:
        return PodPort(key("web-0", "shop"), 9400)

    async with fake_apiserver() as api:
        api.token = "mine"
        async with kube_of(api, folder) as client:
            api.http.fault(forwards("web-0"), handler, times=9)
            forwarder = Forwarder(client, target or pod)
            async with forwarder.listening() as port:
                yield api, forwarder, port


async def asked(port: int, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(text)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_bytes_go_both_ways_on_as_many_connections_as_are_made(tmp_path: Path) -> None:
    async with echoing() as server, forwarded(tmp_path, forwarding(server)) as (api, _, port):
        long = b"x" * _LARGE + b"\n"
        answers = await asyncio.gather(*(asked(port, text + b"\n") for text in (b"a\n", long)))
        assert answers == [b"a\n", long]
        first, second = api.http.requests
        assert first.query == second.query == {"ports": "9400"}
        assert first.path == "/api/v1/namespaces/shop/pods/web-0/portforward"
        assert first.headers["Authorization"] == "Bearer mine"
        assert first.headers["Sec-WebSocket-Protocol"] == PROTOCOL


@pytest.mark.parametrize(
    ("handler", "kind", "said"),
    [
        (failing(403, "no"), Refused, "port 9400 of pod shop/web-0: 403 .*get and create of pods/"),
        (failing(404, "no"), NotFound, "404"),
        (closed_port(), Retriable, "port 9400 of pod shop/web-0: connection refused"),
        (talking(), Retriable, "what is no data: TEXT"),
    ],
)
async def test_a_connection_that_fails_is_closed_and_its_reason_is_known(
    tmp_path: Path, handler: Handler, kind: type[SyncError], said: str
) -> None:
    async with forwarded(tmp_path, handler) as (_, forwarder, port):
        assert await asked(port, b"a\n") == b""
        with pytest.raises(kind, match=said):
            raise forwarder.failure or AssertionError


async def test_a_target_that_is_not_found_is_the_reason(tmp_path: Path) -> None:
    async def nowhere() -> PodPort:
        msg = "no pod"
        raise NotFound(msg)

    async with forwarded(tmp_path, talking(), nowhere) as (_, forwarder, port):
        assert await asked(port, b"") == b""
        assert str(forwarder.failure) == "no pod"


async def test_a_client_that_leaves_ends_its_connection_alone(tmp_path: Path) -> None:
    async with echoing() as server, forwarded(tmp_path, forwarding(server)) as (api, f, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"a\n")
        assert await reader.readline() == b"a\n"
        writer.close()
        await api.http.until(lambda: api.http.under_way == 0)
        assert await asked(port, b"b\n\n") == b"b\n"
        assert f.failure is None
