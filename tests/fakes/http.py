"""What both fakes stand on: a real HTTP server on a free port, a record of requests, faults.

Keeps true: every request is recorded before anything else happens to it; a fault is used up by
the requests it matches, in order; whoever waits in `until` looks again after every answer.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from aiohttp import web

_BODY_LIMIT = 256 << 20  # bytes, as OPA
_PATIENCE = 30.0  # seconds; only a broken test waits so long


@dataclass(frozen=True)
class Recorded:
    """One request as it came."""

    method: str
    path: str  # decoded
    raw_path: str  # as sent, with the query
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


Proceed = Callable[[], Awaitable[web.StreamResponse]]
Handler = Callable[[web.Request, Proceed], Awaitable[web.StreamResponse]]
Matches = Callable[[Recorded], bool]


@dataclass
class Fault:
    """What happens to the next `times` requests that match, in place of the right answer."""

    matches: Matches
    handler: Handler
    times: int = 1
    met: asyncio.Event = field(default_factory=asyncio.Event)  # set when the first one came


class FakeServer:
    """Answers with `handler` what no fault answers; it can be stopped and started on its port."""

    def __init__(self, handler: Callable[[web.Request, Recorded], Awaitable[Any]]) -> None:
        self.requests: list[Recorded] = []
        self.faults: list[Fault] = []
        self._handler = handler
        self._port = 0
        self.tls: ssl.SSLContext | None = None  # serves https when set before `start`
        self._runner: web.AppRunner | None = None
        self._news = asyncio.Event()
        self._open: dict[int, web.Request] = {}  # a request cannot be hashed

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self._port}"

    @property
    def under_way(self) -> int:
        """How many requests have no whole answer yet."""
        return len(self._open)

    async def start(self) -> None:
        app = web.Application(client_max_size=_BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.01, handler_cancellation=True
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port, ssl_context=self.tls).start()
        self._port = int(runner.addresses[0][1])
        self._runner = runner

    async def stop(self) -> None:
        """Refuse connections from now on, and break those that are open."""
        if self._runner is not None:
            self.cut()
            await self._runner.cleanup()
            self._runner = None

    def cut(self) -> None:
        """Break every connection that waits for the rest of its answer."""
        for request in list(self._open.values()):
            if request.transport is not None:
                request.transport.abort()

    def fault(self, matches: Matches, handler: Handler, times: int = 1) -> Fault:
        """Let `handler` answer the next `times` requests that match."""
        fault = Fault(matches, handler, times)
        self.faults.append(fault)
        return fault

    def tell(self) -> None:
        """Make everybody in `until` look again."""
        self._news.set()
        self._news = asyncio.Event()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until `condition` holds; it is looked at after every answer."""
        async with asyncio.timeout(_PATIENCE):
            while not condition():
                await self._news.wait()

    async def until_next(self, matches: Matches) -> Recorded:
        """Wait for a request that comes after now and matches."""
        seen = len(self.requests)
        await self.until(lambda: any(map(matches, self.requests[seen:])))
        return next(filter(matches, self.requests[seen:]))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        recorded = Recorded(
            request.method,
            request.path,
            request.raw_path,
            dict(request.query),
            dict(request.headers),
            await request.read(),
        )
        self.requests.append(recorded)
        self._open[id(request)] = request

        async def proceed() -> web.StreamResponse:
            answer: web.StreamResponse = await self._handler(request, recorded)
            return answer

        try:
            if (fault := self._due(recorded)) is None:
                return await proceed()
            fault.met.set()
            return await fault.handler(request, proceed)
        finally:
            del self._open[id(request)]
            self.tell()

    def _due(self, recorded: Recorded) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.matches(recorded):
                fault.times -= 1
                return fault
        return None


S = TypeVar("S")


@asynccontextmanager
async def served(fake: S, server: FakeServer) -> AsyncGenerator[S]:
    """Serve a fake until the block ends."""
    await server.start()
    try:
        yield fake
    finally:
        await server.stop()


def answer(
    status: int, body: bytes = b"", *, retry_after: str | None = None, kind: str = "text/plain"
) -> Handler:
    """Answer with a status, and nothing else."""
    headers = {"Content-Type": kind} | ({"Retry-After": retry_after} if retry_after else {})

    async def handle(_request: web.Request, _proceed: Proceed) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers=headers)

    return handle


def failing(code: int, message: str) -> Handler:
    """Answer as an API server that fails in these words."""
    return answer(code, json.dumps({"message": message, "code": code}).encode())


def hang() -> Handler:
    """Never answer; the client has to give up."""

    async def handle(_request: web.Request, _proceed: Proceed) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError

    return handle


def held(gate: asyncio.Event) -> Handler:
    """Answer rightly, but only when `gate` is set."""

    async def handle(_request: web.Request, proceed: Proceed) -> web.StreamResponse:
        await gate.wait()
        return await proceed()

    return handle


def answered_late(gate: asyncio.Event) -> Handler:
    """Do what was asked at once, and answer when `gate` is set."""

    async def handle(_request: web.Request, proceed: Proceed) -> web.StreamResponse:
        response = await proceed()
        await gate.wait()
        return response

    return handle


def lose_answer() -> Handler:
    """Do what was asked, then break the connection in place of an answer."""

    async def handle(request: web.Request, proceed: Proceed) -> web.StreamResponse:
        response = await proceed()
        if request.transport is not None:
            request.transport.abort()
        return response

    return handle


class Delayed:
    """A request whose sender gives up, and that is done all the same, whenever the test says."""

    def __init__(self) -> None:
        self._proceed: Proceed | None = None

    async def handle(self, request: web.Request, proceed: Proceed) -> web.StreamResponse:
        """Break the connection, as a Handler."""
        self._proceed = proceed
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    @property
    def asked(self) -> bool:
        """Whether there was a request."""
        return self._proceed is not None

    async def arrive(self) -> int:
        """Do what was asked; returns the status that nobody reads."""
        assert self._proceed is not None, "nothing was asked yet"
        return (await self._proceed()).status


def stream(*chunks: bytes, cut: bool = False, status: int = 200) -> Handler:
    """Send these bytes as a body that seems to go on, then end it, or cut the connection."""

    async def handle(request: web.Request, _proceed: Proceed) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if cut and request.transport is not None:
            # Closed, not aborted: what was sent arrives, the end of the body does not.
            request.transport.close()
        return response

    return handle
