"""Read the decision stream, for ever, from wherever it is.

Yields records; `None` says that a new stream begins, so that everything known so far has to be
confirmed by it. A silent stream is a broken one: it has a sign of life every few seconds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import structlog

from kube_sync.decisions.records import Record, decode
from kube_sync.decisions.stream import SILENCE_SECONDS
from kube_sync.errors import Refused, Retriable, SyncError
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.httperrors import retriable
from kube_sync.runtime.tls import client_context
from kube_sync.runtime.tokenfile import TokenFile
from kube_sync.settings import Decisions

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_CONNECT_SECONDS = 5.0
_LINE_LIMIT = 1 << 22  # bytes; aiohttp's reader refuses lines longer than twice its buffer


class StreamClient:
    """One replicator's decisions."""

    def __init__(
        self,
        settings: Decisions,
        session: aiohttp.ClientSession,
        report: Callable[[str | None], None],
        backoff: Backoff | None = None,
    ) -> None:
        """`report` is told why there is no stream, or None when there is one."""
        self._url = settings.url
        self._token = TokenFile(settings.token_file)
        self._session = session
        self._report = report
        self._backoff = backoff or Backoff(longest=5.0)

    async def records(self) -> AsyncGenerator[Record | None]:
        """Yield records until cancelled, None before the first one of each stream."""
        while True:
            at_least = None
            try:
                async with self._open() as content:
                    self._report(None)
                    yield None
                    async for record in _records(content):
                        self._backoff.progressed()
                        yield record
                self._report(f"decision stream {self._url}: ended")
            except SyncError as error:
                self._report(str(error))
                at_least = getattr(error, "retry_after", None)
            await self._backoff.wait(at_least)

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[aiohttp.StreamReader]:
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=3 * SILENCE_SECONDS
        )
        where = f"decision stream {self._url}"
        with retriable(where):
            async with self._session.get(
                self._url, headers=self._token.headers(), timeout=timeout
            ) as response:
                if response.status in (401, 403):
                    msg = f"{where}: {response.status} (is decisions.token_file the right one?)"
                    raise Refused(msg)
                if response.status != 200:  # noqa: PLR2004 - HTTP's own
                    msg = f"{where}: {response.status}"
                    raise Retriable(msg)
                yield response.content


async def _records(content: aiohttp.StreamReader) -> AsyncIterator[Record]:
    async for line in content:
        if not line.endswith(b"\n"):
            return  # torn: the stream ended in the middle of it
        try:
            yield decode(line)
        except msgspec.DecodeError as error:
            msg = f"a line of the decision stream is not a record that is known here: {error}"
            raise Retriable(msg) from error


@asynccontextmanager
async def stream_client(
    settings: Decisions, report: Callable[[str | None], None]
) -> AsyncGenerator[StreamClient]:
    """Yield a client for the configured stream. Raises Misconfigured."""
    tls = client_context(settings.ca_file) if settings.url.startswith("https:") else True
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=_LINE_LIMIT) as session:
        yield StreamClient(settings, session, report)
