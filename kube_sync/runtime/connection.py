"""One server connection, hardened against slow and invalid clients beyond aiohttp's own checks.

Invariant: a request that has begun must have its whole head within `HEAD_SECONDS` and 64 KiB, or
its connection is cut; an idle one may wait, as clients keep connections for later. A
client's own fault (invalid HTTP, a body that is not as announced, a client that leaves)
is no error of this server: there is no traceback, and neither the answer nor the log repeats
the request, which may contain a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from aiohttp import hdrs, web
from aiohttp.http import HttpProcessingError
from aiohttp.web_request import BaseRequest

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Handler = Callable[[BaseRequest], Awaitable[web.StreamResponse]]

# Handlers of POST by path, which are also routes: called without aiohttp's router, which takes as
# long as the rest of its work on a request. They cannot ask a request for its application.
DIRECT: Final = web.AppKey("direct", dict[str, Handler])

HEAD_SECONDS = 10.0
_HEAD_BYTES: Final = 1 << 16
_CLIENTS_FAULT = (HttpProcessingError, web.RequestPayloadError)


# By inheritance: aiohttp calls these methods, and has no setting for any of this.
class Connection(web.RequestHandler):
    """The server's side of a connection."""

    __slots__ = ("_head", "_timer")

    def __init__(self, server: web.Server, **settings: Any) -> None:  # noqa: ANN401 - aiohttp's own
        super().__init__(server, **settings)
        self._head = 0  # bytes of a request whose head is incomplete
        self._timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Receive bytes."""
        super().data_received(data)
        # aiohttp's own way to distinguish an idle connection from one with a request.
        if self._waiter is None or self._waiter.done():
            if self._timer is not None:
                self._reset_head()
            return
        self._head += len(data)
        if self._head > _HEAD_BYTES:
            self._cut()
        elif self._timer is None:
            self._timer = self._loop.call_later(HEAD_SECONDS / 2, self._check_again)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Handle the end of the connection."""
        self._reset_head()
        task = None if self._request_in_progress else self._task_handler
        super().connection_lost(exc)
        if task is not None:  # otherwise it would wait for the rest of a body, which never comes
            task.cancel()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request whose handler failed."""
        if isinstance(exc, ConnectionError) and self.transport is None:
            raise exc  # the client is gone: there is nobody to answer
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
        """Log an error of this server; an invalid body that arrives after its answer is none."""
        if isinstance(kw.get("exc_info"), _CLIENTS_FAULT):
            log.info("request_malformed", error=type(kw["exc_info"]).__name__)
        else:
            super().log_exception(*args, **kw)

    def _reset_head(self) -> None:
        self._head = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_again(self) -> None:
        # Twice half the time: after a pause of this process, received bytes are not read yet.
        self._timer = self._loop.call_later(HEAD_SECONDS / 2, self._cut)

    def _cut(self) -> None:
        log.info("request_cut_off", bytes=self._head)
        if self.transport is not None:
            self.transport.abort()


def dispatching(app: web.Application, routed: Handler) -> Handler:
    """Return the handler of all requests to an application; `routed` uses its router.

    It calls `DIRECT` handlers itself, and checks the Expect header (RFC 9110, section 10.1.1):
    aiohttp's own answer would repeat an unsupported value.
    """
    direct = app.get(DIRECT, {})

    def handle(request: BaseRequest) -> Awaitable[web.StreamResponse]:
        if hdrs.EXPECT in request.headers:
            met = request.headers[hdrs.EXPECT].lower() == "100-continue"
            return routed(request) if met else _unmet()
        if request.method == hdrs.METH_POST:
            return direct.get(request.rel_url.raw_path, routed)(request)
        return routed(request)

    return handle


async def _unmet() -> web.Response:
    return web.Response(status=417, text="nothing is met but 100-continue\n")
