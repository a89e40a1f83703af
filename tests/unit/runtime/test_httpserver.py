from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest
from aiohttp import web

from kube_sync.errors import Misconfigured
from kube_sync.runtime import httpserver
from kube_sync.runtime.httpserver import serving
from tests.unit.async_tools import PATIENCE, LoopTime


def _app() -> web.Application:
    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", hello)
    return app


async def test_port_0_yields_the_port_that_was_chosen() -> None:
    async with (
        serving(_app(), ("127.0.0.1", 0)) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/") as response,
    ):
        assert await response.text() == "hello"


async def test_after_the_block_nobody_listens() -> None:
    async with serving(_app(), ("127.0.0.1", 0)) as port:
        pass
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


async def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Misconfigured, match=rf"^cannot listen on 127\.0\.0\.1:{port}: .*use"):
            async with serving(_app(), ("127.0.0.1", port)):
                pytest.fail("two servers on one port")


async def test_a_host_that_is_not_here_is_named() -> None:
    with pytest.raises(Misconfigured, match=r"^cannot listen on 192\.0\.2\.1:0: "):
        async with serving(_app(), ("192.0.2.1", 0)):
            pytest.fail("listening on somebody else's address")


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: x\r\nX"])
async def test_a_request_that_does_not_get_on_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(httpserver, "_KEEPALIVE_SECONDS", 0.05)
    async with serving(_app(), ("127.0.0.1", 0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
        writer.close()


async def test_a_connection_outlives_a_clients_own_idle_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Go closes after 90 s; a server that is first can meet a request, which is not sent again."""
    time = LoopTime(monkeypatch)
    async with serving(_app(), ("127.0.0.1", 0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for idle in (0.0, 91.0):
            time.forward(idle)
            for _ in range(5):
                await asyncio.sleep(0)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(5) == b"hello"
        writer.close()
