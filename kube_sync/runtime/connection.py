"""One connection of a client, in what aiohttp leaves open: clients that are slow, or wrong.

Keeps true: a request that has begun has its whole head within `HEAD_SECONDS` and 64 KiB, or its
connection is cut; one that says nothing may wait, as clients keep connections for later. What is a
client's own fault (what is no HTTP, a body that is not as it was announced, a client that leaves)
is no error of this server: there is no traceback, and neither the answer nor the log repeats what
was sent, in which a token may be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.web_request import BaseRequest

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_Handler = Callable[[BaseRequest], Awaitable[web.StreamResponse]]

HEAD_SECONDS = 10.0
_HEAD_BYTES: Final = 1 << 16
_CLIENTS_FAULT = (HttpProcessingError, web.RequestPayloadError)


# Inherited, since these are the methods that aiohttp calls, and it has no setting for any of this.
class Connection(web.RequestHandler):
    """The server's side of a connection."""

    __slots__ = ("_head", "_timer")

    def __init__(self, server: web.Server, **settings: Any) -> None:  # noqa: ANN401 - aiohttp's own
        super().__init__(server, **settings)
        self._head = 0  # bytes of a request whose head is not whole
        self._timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Take what was sent."""
        super().data_received(data)
        # As aiohttp itself tells a connection that waits for a request from one that has one.
        if self._waiter is None or self._waiter.done():
            self._came()
            return
        self._head += len(data)
        if self._head > _HEAD_BYTES:
            self._cut()
        elif self._timer is None:
            self._timer = self._loop.call_later(HEAD_SECONDS / 2, self._look_again)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Take note of the end."""
        self._came()
        task = None if self._request_in_progress else self._task_handler
        super().connection_lost(exc)
        if task is not None:  # else it would wait for the rest of a body, which comes no more
            task.cancel()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be answered."""
        if isinstance(exc, ConnectionError) and self.transport is None:
            raise exc  # the client is gone, which is its right: there is nobody to answer
        if not isinstance(exc, _CLIENTS_FAULT):
            return super().handle_error(request, status, exc, message)
        log.info("request_malformed", client=request.remote, error=type(exc).__name__)
        if request.writer.output_size > 0:
            msg = "there is an answer already"
            raise ConnectionResetError(msg) from exc
        response = web.Response(status=400, text="the request is malformed\n")
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:  # noqa: ANN401 - aiohttp's own
        """Log what went wrong here; a body that comes after its answer, and is wrong, did not."""
        if isinstance(kw.get("exc_info"), _CLIENTS_FAULT):
            log.info("request_malformed", error=type(kw["exc_info"]).__name__)
        else:
            super().log_exception(*args, **kw)

    def _came(self) -> None:
        self._head = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_again(self) -> None:
        # Twice half the time: whoever was stopped itself all the while has not read what is there.
        self._timer = self._loop.call_later(HEAD_SECONDS / 2, self._cut)

    def _cut(self) -> None:
        log.info("request_cut_off", bytes=self._head)
        if self.transport is not None:
            self.transport.abort()


def expecting(handler: _Handler) -> _Handler:
    """Return `handler` for requests that expect what can be met (RFC 9110, section 10.1.1).

    aiohttp would repeat in its answer what else was expected.
    """

    async def handle(request: BaseRequest) -> web.StreamResponse:
        if request.headers.get("Expect", "100-continue").lower() != "100-continue":
            return web.Response(status=417, text="nothing is met but 100-continue\n")
        return await handler(request)

    return handle
