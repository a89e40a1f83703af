from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime

import pytest
from aiohttp import web

from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.jsonreply import JsonReply
from tests.unit.async_tools import PATIENCE

_CLOSING = "/closing"


def _app() -> web.Application:
    async def answer(request: web.Request) -> JsonReply:
        reply = JsonReply(b'{"said": "%b"}' % await request.read())
        if request.path == _CLOSING:
            reply.force_close()
        return reply

    app = web.Application()
    app.router.add_post("/", answer)
    app.router.add_post(_CLOSING, answer)
    return app


@asynccontextmanager
async def _connected() -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(PATIENCE), serving(_app(), ("127.0.0.1", 0), grace=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer
        writer.close()


def _post(body: bytes, path: str = "/", version: str = "1.1", more: str = "") -> bytes:
    head = f"POST {path} HTTP/{version}\r\nHost: x\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


async def _read(reader: asyncio.StreamReader) -> tuple[dict[str, str], bytes]:
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
    assert status == "HTTP/1.1 200 OK"
    headers = dict(line.split(": ", 1) for line in lines)
    return headers, await reader.readexactly(int(headers.pop("Content-Length")))


async def test_reply_is_json_with_its_length_and_the_date() -> None:
    async with _connected() as (reader, writer):
        writer.write(_post(b"a"))
        headers, body = await _read(reader)
    assert body == b'{"said": "a"}'
    assert parsedate_to_datetime(headers.pop("Date")).tzinfo is not None
    assert headers == {"Content-Type": "application/json"}


async def test_connection_stays_open_for_the_next_request() -> None:
    async with _connected() as (reader, writer):
        writer.write(_post(b"a") + _post(b"b"))  # one behind the other
        assert (await _read(reader))[1] == b'{"said": "a"}'
        assert (await _read(reader))[1] == b'{"said": "b"}'
        writer.write(_post(b"c"))
        assert (await _read(reader))[1] == b'{"said": "c"}'


@pytest.mark.parametrize(
    "asked",
    [
        _post(b"a", path=_CLOSING),
        _post(b"a", more="Connection: close\r\n"),
        _post(b"a", version="1.0"),
        _post(b"a", version="1.0", more="Connection: keep-alive\r\n"),
    ],
)
async def test_connection_is_closed_with_notice_when_either_side_wants_it(asked: bytes) -> None:
    async with _connected() as (reader, writer):
        writer.write(asked)
        headers, body = await _read(reader)
        assert headers["Connection"] == "close"
        assert body == b'{"said": "a"}'
        assert await reader.read() == b""


async def test_client_that_has_left_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with _connected() as (_, writer):
        writer.write(_post(b"a" * 10))
        writer.transport.abort()
    assert caplog.records == []
