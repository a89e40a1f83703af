"""HTTP requests to one API server: bytes in, bytes out, errors by what the caller does next.

Invariant: every request has a timeout, no aiohttp error leaves this module, and a status other than
2xx always raises. It decodes no body but the Status of an error.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from http import HTTPStatus
from http.client import responses
from typing import Final, Protocol

import aiohttp
import msgspec

from kube_sync import __version__
from kube_sync.config import Kubernetes
from kube_sync.errors import (
    NO_JSON,
    Conflict,
    Expired,
    NotFound,
    Overloaded,
    Refused,
    Retriable,
    SyncError,
    Terminal,
)
from kube_sync.kube.credentials import Credentials
from kube_sync.observability import metrics, tracing
from kube_sync.runtime.clienttls import in_the_clear
from kube_sync.runtime.httperrors import retriable

_USER_AGENT = f"kube-sync/{__version__}"
_CONNECT_SECONDS = 10.0
_REQUEST_SECONDS = 60.0
_ANSWER_SECONDS = 30.0  # until the response of a stream begins
_WEBSOCKET = aiohttp.ClientWSTimeout(ws_close=1.0)  # seconds that a peer has to say that it closes
_READ_BUFFER = 1 << 20  # bytes; LIST pages are megabytes


class Silent(Retriable):
    """An open stream was silent for too long: the connection may be dead, or nothing changed."""


class Status(msgspec.Struct):
    """The API server's answer to a failed request (meta/v1 Status)."""

    code: int = 0
    reason: str = ""
    message: str = ""


class Identity(Protocol):
    """Where an API server is, and the credentials for it."""

    @property
    def server(self) -> str:
        """Its URL without a trailing slash."""

    @property
    def server_name(self) -> str | None:
        """The server name to verify in its certificate, if it differs from the URL's."""

    def forget(self) -> None:
        """Reload the credentials before the next request: the API server refused them."""

    async def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request. Raises SyncError."""

    def tls(self, last: ssl.SSLContext | None) -> ssl.SSLContext:
        """Return the TLS context for the API server: `last` again unless it is out of date.

        Called before each request. Raises Misconfigured.
        """


class KubeClient:
    """A connection pool to one API server."""

    def __init__(
        self, credentials: Identity, session: aiohttp.ClientSession, tls: ssl.SSLContext | None
    ) -> None:
        self._credentials = credentials
        self._session = session
        self._tls = tls

    @property
    def server(self) -> str:
        """The API server's URL, for messages."""
        return self._credentials.server

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        """Make one request and return the whole body. Raises SyncError."""
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS, sock_connect=_CONNECT_SECONDS)
        with tracing.request("API server", method, path) as traced:
            headers |= traced.headers
            async with self._open(method, path, params, headers, timeout, body) as response:
                traced.answered(response.status)
                return await response.read()

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], accept: str, silence: float
    ) -> AsyncGenerator[aiohttp.StreamReader]:
        """GET a response that stays open, and end it after `silence` seconds without a byte.

        Raises SyncError, among them Silent.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence
        )
        headers = {"Accept": accept}
        async with AsyncExitStack() as opened:
            opening = self._open("GET", path, params, headers, timeout, None)
            with retriable(f"API server {self.server}"):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    response = await opened.enter_async_context(opening)
            try:
                yield response.content
            except TimeoutError as error:
                msg = f"API server {self.server}: nothing for {silence:.0f} s"
                raise Silent(msg) from error

    @asynccontextmanager
    async def websocket(
        self, path: str, *, params: Mapping[str, str], protocol: str
    ) -> AsyncGenerator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket of one subprotocol for the time of the block. Raises SyncError."""
        headers = await self._credentials.headers()
        self._tls = _tls(self._credentials, self._tls)
        with retriable(f"API server {self.server}"), _counted("GET") as answered:
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    socket = await self._session.ws_connect(
                        self.server + path,
                        params=params,
                        protocols=(protocol,),
                        headers=headers,
                        ssl=self._tls or in_the_clear(),
                        server_hostname=self._credentials.server_name,
                        timeout=_WEBSOCKET,
                    )
            except aiohttp.WSServerHandshakeError as error:  # aiohttp does not keep the body
                answered(error.status)
                if error.status == HTTPStatus.UNAUTHORIZED:
                    self._credentials.forget()
                raise failure(error.status, responses.get(error.status, "").encode()) from error
            answered(HTTPStatus.SWITCHING_PROTOCOLS.value)
            try:
                yield socket
            finally:
                await socket.close()

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, one for each phase
        body: bytes | None,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        # Uncompressed: the API server takes longer to compress a page than to send it.
        headers |= {"Accept-Encoding": "identity"} | await self._credentials.headers()
        self._tls = _tls(self._credentials, self._tls)
        with retriable(f"API server {self.server}"), _counted(method) as answered:
            async with self._session.request(
                method,
                self.server + path,
                params=params,
                headers=headers,
                data=body,
                timeout=timeout,
                ssl=self._tls or in_the_clear(),
                server_hostname=self._credentials.server_name,
                allow_redirects=False,
            ) as response:
                answered(response.status)
                if not 200 <= response.status < 300:  # noqa: PLR2004 - HTTP's own
                    raise await self._failure(response)
                yield response

    async def _failure(self, response: aiohttp.ClientResponse) -> SyncError:
        error = failure(
            response.status,
            await response.read(),
            retry_after=response.headers.get("Retry-After"),
        )
        if response.status != HTTPStatus.UNAUTHORIZED:
            return error
        self._credentials.forget()
        return Refused(f"{error} (have the credentials for {self.server} expired?)")


@contextmanager
def _counted(method: str) -> Iterator[Callable[[int], None]]:
    """Count one request when its response begins, or when it fails without one."""
    counted = False

    def count(status: int | str) -> None:
        nonlocal counted
        counted = True
        metrics.api_requests.labels(method, str(status)).inc()

    try:
        yield count
    finally:
        if not counted:
            count("none")


_TOO_LARGE: Final = "etcdserver: request is too large"


def failure(code: int, body: bytes, retry_after: str | None = None) -> SyncError:
    """Return the error for an HTTP status and its body."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except NO_JSON:
        status = Status(message=body[:200].decode("utf-8", "replace").strip())
    message = f"{code} {status.message or status.reason or 'no message'}"
    match code:
        case 401 | 403:
            return Refused(message)
        case 404:
            return NotFound(message)
        case 409:
            return Conflict(message)
        case 410:
            return Expired(message)
        # An object that is too large will be too large at each retry.
        case _ if (code == 429 or code >= 500) and _TOO_LARGE not in message:  # noqa: PLR2004
            seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
            # 500 is none: a webhook that fails for one namespace must not slow down all others.
            load = code in (429, 503, 504) or seconds is not None
            return Overloaded(message, seconds) if load else Retriable(message, seconds)
        case _:
            return Terminal(message)


@asynccontextmanager
async def kube_client(settings: Kubernetes) -> AsyncGenerator[KubeClient]:
    """Yield a client for the configured API server. Raises Misconfigured."""
    credentials = Credentials(settings)
    await credentials.load()
    async with connected(credentials) as client:
        yield client


@asynccontextmanager
async def connected(identity: Identity) -> AsyncGenerator[KubeClient]:
    """Yield a client for one API server. Raises Misconfigured."""
    tls = _tls(identity)  # fail at start if TLS is misconfigured
    try:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            headers={"User-Agent": _USER_AGENT},
            read_bufsize=_READ_BUFFER,
        ) as session:
            yield KubeClient(identity, session, tls)
    finally:
        # A cancelled handshake closes its socket in the next iteration of the loop; a process that
        # ends with this client would have none.
        await asyncio.sleep(0)


def _tls(identity: Identity, last: ssl.SSLContext | None = None) -> ssl.SSLContext | None:
    """Return the TLS context for an API server, None if it is reached without TLS."""
    return identity.tls(last) if identity.server.startswith("https:") else None
