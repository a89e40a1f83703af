from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.web_request import BaseRequest

from kube_sync.runtime.connection import DIRECT, Handler
from kube_sync.runtime.httpserver import serving
from tests.unit.async_tools import PATIENCE


def _app() -> web.Application:
    """An application whose router and direct handler answer the same path differently."""

    async def direct(request: BaseRequest) -> web.Response:
        return web.Response(text=f"direct {len(await request.read())}")

    async def routed(request: web.Request) -> web.Response:
        return web.Response(text=f"routed {len(await request.read())}")

    app = web.Application(client_max_size=10 << 20)
    handlers: dict[str, Handler] = {"/a": direct}
    app[DIRECT] = handlers
    for path in ("/a", "/b"):
        app.router.add_post(path, routed)
    return app


@asynccontextmanager
async def _connected() -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(PATIENCE), serving(_app(), ("127.0.0.1", 0), grace=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[str, str]:
    """Return the status and the body of the next response."""
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines if line)
    body = await reader.readexactly(int(headers.get("Content-Length", 0)))
    return status.split(" ")[1], body.decode()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("POST /a", ("200", "direct 1")),
        ("POST /a?timeout=5s", ("200", "direct 1")),
        ("POST /b", ("200", "routed 1")),
        ("GET /a", ("405", "405: Method Not Allowed")),
        ("POST /a/", ("404", "404: Not Found")),
        ("POST /A", ("404", "404: Not Found")),
    ],
)
async def test_direct_handler_has_post_at_its_path_alone(
    line: str, answer: tuple[str, str]
) -> None:
    async with _connected() as (reader, writer):
        writer.write(f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na".encode())
        assert await _answer(reader) == answer


async def test_client_that_waits_for_leave_to_send_its_body_gets_it() -> None:
    async with _connected() as (reader, writer):
        head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\n"
        writer.write(head.encode())
        assert await _answer(reader) == ("100", "")
        writer.write(b"a")
        assert await _answer(reader) == ("200", "routed 1")


async def test_another_expectation_is_417_and_is_not_repeated() -> None:
    async with _connected() as (reader, writer):
        writer.write(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nExpect: s3cret\r\n\r\n")
        status, text = await _answer(reader)
    assert status == "417"
    assert "s3cret" not in text


async def test_bodies_that_reading_was_paused_for_arrive_whole_one_after_the_other() -> None:
    """A body beyond the buffer of a connection pauses its transport until it is read."""
    size = 3 << 20
    head = f"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()
    async with _connected() as (reader, writer):
        for _ in range(3):
            writer.write(head + b"x" * size)
            assert await _answer(reader) == ("200", f"direct {size}")
        writer.write((head.replace(str(size).encode(), b"1") + b"x") * 50)  # more than are queued
        for _ in range(50):
            assert await _answer(reader) == ("200", "direct 1")
