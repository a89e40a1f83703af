"""A TCP proxy on the loopback that does to connections what networks and servers do.

Keeps true: bytes pass unchanged and in order until a fault is asked for, and what was cut stays
cut. Given certificates it ends TLS and begins it again, so that it sees requests and can answer
in the server's place; without, a cut falls anywhere, in a TLS record or a handshake too.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

_HOST = "127.0.0.1"
_METHODS = (b"GET ", b"PUT ", b"POST ", b"PATCH ", b"DELETE ")
_END_OF_CHUNK = b"\n\r\n"  # of a line of a WATCH, and of a response's head


@dataclass(slots=True, eq=False)
class _Link:
    """One connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    request: bytes = b""  # the first line of the newest
    answered: bool = False  # in the server's place: what else comes is dropped
    swallowed: bool = False  # what the server answers does not come through
    last: bytes = b""  # bytes that went to the client

    def abort(self) -> None:
        for writer in (self.client, self.server):
            writer.transport.abort()


@dataclass(slots=True)
class _Reply:
    wanted: bytes  # in the first line of the request
    answer: bytes | None  # None: the server's own, which is swallowed
    times: int


class FaultProxy:
    """Stands before one port; every fault may be asked for at any moment."""

    def __init__(
        self,
        upstream: int,
        *,
        serve: ssl.SSLContext | None = None,
        reach: ssl.SSLContext | None = None,
    ) -> None:
        self.refusing = False  # new connections end at once
        self.delay = 0.0  # seconds, for each piece
        self.passed = 0  # bytes, both ways
        self.port = 0
        self._upstream = upstream
        self._serve = serve
        self._reach = reach
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._left: int | None = None
        self._then: Callable[[], None] = self.cut
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._replies: list[_Reply] = []

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._opened, _HOST, 0, ssl=self._serve)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.wait_closed()

    def cut(self, wanted: bytes = b"") -> None:
        """End every connection without a word, or those whose last request holds `wanted`."""
        for link in self._links:
            if wanted in link.request:
                link.abort()

    def stall(self) -> None:
        """Let nothing pass, and keep the connections."""
        self._flowing.clear()

    @property
    def stalled(self) -> bool:
        """Whether nothing passes."""
        return not self._flowing.is_set()

    def after(self, count: int, fault: Callable[[], None]) -> None:
        """Ask for a fault when so many more bytes have passed; it replaces an earlier wish."""
        self._left, self._then = count, fault

    def reply(self, wanted: bytes, answer: bytes, times: int) -> None:
        """Answer the next requests whose first line holds `wanted` in the server's place."""
        self._replies.append(_Reply(wanted, answer, times))

    def swallow(self, wanted: bytes, times: int) -> None:
        """Let the server answer the next requests whose first line holds `wanted`, then cut."""
        self._replies.append(_Reply(wanted, None, times))

    @property
    def replied(self) -> bool:
        """Whether every reply asked for was given."""
        return not any(reply.times for reply in self._replies)

    def inject(self, wanted: bytes, line: bytes) -> int:
        """Put a line into every WATCH whose first line holds `wanted`; returns into how many."""
        links = [e for e in self._links if wanted in e.request and e.last == _END_OF_CHUNK]
        for link in links:
            link.client.write(b"%x\r\n%s\r\n" % (len(line), line))
        return len(links)

    def calm(self) -> None:
        """Take every fault back."""
        self.refusing, self.delay, self._left = False, 0.0, None
        self._replies.clear()
        self._flowing.set()

    def _opened(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of ours: asyncio reports its own as failed when they are cancelled.
        task = asyncio.create_task(self._accept(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not self.refusing:
                await self._join(reader, writer)
        except* OSError:
            pass  # what the two ends make of it is what the tests are about
        finally:
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source, server = await asyncio.open_connection(_HOST, self._upstream, ssl=self._reach)
        link = _Link(writer, server)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(link, reader))
                group.create_task(self._answers(link, source))
        finally:
            self._links.discard(link)
            server.transport.abort()

    async def _requests(self, link: _Link, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(1 << 16):
            if data.startswith(_METHODS):
                link.request = data.partition(b"\r\n")[0]
                if reply := self._due(link.request):
                    self._meet(link, reply)
            if not link.answered:
                await self._pass(data, link.server)
        link.server.close()

    async def _answers(self, link: _Link, source: asyncio.StreamReader) -> None:
        while data := await source.read(1 << 16):
            if link.swallowed:
                link.abort()
            elif not link.answered:
                link.last = (link.last + data)[-len(_END_OF_CHUNK) :]
                await self._pass(data, link.client)
        link.client.close()

    async def _pass(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._flowing.wait()
        if self._left is not None and len(data) >= self._left:
            first, data = data[: self._left], data[self._left :]
            self._left = None
            writer.write(first)
            with suppress(OSError):
                await writer.drain()
            self._then()
            await self._flowing.wait()
        elif self._left is not None:
            self._left -= len(data)
        self.passed += len(data)
        writer.write(data)
        await writer.drain()

    def _due(self, request: bytes) -> _Reply | None:
        for reply in self._replies:
            if reply.times and reply.wanted in request:
                reply.times -= 1
                return reply
        return None

    def _meet(self, link: _Link, reply: _Reply) -> None:
        if reply.answer is None:
            link.swallowed = True
        else:
            link.answered = True
            link.client.write(reply.answer)


def reply(code: int, *headers: str) -> bytes:
    """Return a whole answer with a Status, for `FaultProxy.reply`."""
    reason = json.dumps({"kind": "Status", "code": code, "message": "a fault"})
    lines = [
        f"HTTP/1.1 {code} Fault",
        "Content-Type: application/json",
        f"Content-Length: {len(reason)}",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join([*lines, "", reason]).encode()
