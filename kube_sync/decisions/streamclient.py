"""Client of the decision stream, which reconnects until cancelled.

It yields records; `None` marks a new stream, which has to confirm everything known so far. After a
broken connection it resumes at its last bookmark, without a `None`, if the replicator still knows
the changes since; else it starts over. A silent stream counts as broken: a keep-alive is due every
few seconds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import structlog

from kube_sync.config import Decisions, masked
from kube_sync.decisions.records import BookmarkRecord, Record, decode_grouped
from kube_sync.decisions.stream import GROUPED, KEEPALIVE_SECONDS, RESUMED
from kube_sync.errors import NO_JSON, Expired, Refused, Retriable, SyncError
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.clienttls import Tls, client_tls, in_the_clear
from kube_sync.runtime.httperrors import retriable
from kube_sync.runtime.tokenfile import TokenFile

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_CONNECT_SECONDS = 5.0
_REASON = 300  # characters of an answer in an error
_LINE_LIMIT = 1 << 22  # bytes; aiohttp's reader refuses lines longer than twice its buffer


class StreamClient:
    """Reads the decisions of one replicator."""

    def __init__(
        self,
        settings: Decisions,
        session: aiohttp.ClientSession,
        report: Callable[[str | None], None],
        backoff: Backoff | None = None,
        *,
        tls: Callable[[], Tls] = in_the_clear,
    ) -> None:
        """`report` receives why there is no stream, or None when there is one."""
        self._url = settings.url
        self._name = f"decision stream {masked(settings.url)}"
        self._token = TokenFile(settings.token_file)
        self._session = session
        self._tls = tls
        self._report = report
        self._backoff = backoff or Backoff(longest=5.0)

    async def records(self) -> AsyncGenerator[Record | None]:
        """Yield records until cancelled, None before the first one of each new stream."""
        since: str | None = None  # the last bookmark
        while True:
            retry_after = None
            try:
                async with self._open(since) as (content, resumed):
                    self._report(None)
                    if not resumed:
                        since = None  # what is known is unconfirmed until the next bookmark
                        yield None
                    async for record in _records(content):
                        self._backoff.progressed()
                        # Before the yield: a consumer of the bookmark has everything before it.
                        if isinstance(record, BookmarkRecord):
                            since = f"{record.instance}:{record.seq}"
                        yield record
                self._report(f"{self._name}: ended")
            except Expired as error:
                since = None
                log.info("decisions_begun_again", reason=str(error))
            except SyncError as error:
                self._report(str(error))
                retry_after = getattr(error, "retry_after", None)
            await self._backoff.wait(retry_after)

    @asynccontextmanager
    async def _open(self, since: str | None) -> AsyncGenerator[tuple[aiohttp.StreamReader, bool]]:
        """Yield the lines, and whether they continue after `since`."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=3 * KEEPALIVE_SECONDS
        )
        name = self._name
        params = {"watch": "true"} | ({} if since is None else {"since": since})
        with retriable(name):
            async with self._session.get(
                self._url,
                params=params,
                headers=GROUPED | self._token.headers(),
                timeout=timeout,
                ssl=self._tls(),
            ) as response:
                if response.status in (401, 403):
                    msg = f"{name}: {response.status} (is decisions.token_file the right one?)"
                    raise Refused(msg)
                if response.status == 410 and since is not None:  # noqa: PLR2004 - HTTP's own
                    msg = f"{name}: {(await response.text()).strip()[:_REASON]}"
                    raise Expired(msg)
                if response.status != 200:  # noqa: PLR2004 - HTTP's own
                    msg = f"{name}: {response.status}"
                    raise Retriable(msg)
                # A server that does not know `since` sends everything, without deletions.
                yield response.content, since is not None and response.headers.get(RESUMED) == since


async def _records(content: aiohttp.StreamReader) -> AsyncIterator[Record]:
    async for line in content:
        if not line.endswith(b"\n"):
            return  # truncated: the stream ended within the line
        try:
            records = decode_grouped(line)
        except NO_JSON as error:
            msg = f"a line of the decision stream is not a record that is known here: {error}"
            raise Retriable(msg) from error
        for record in records:
            yield record


@asynccontextmanager
async def stream_client(
    settings: Decisions, report: Callable[[str | None], None]
) -> AsyncGenerator[StreamClient]:
    """Yield a client for the configured stream. Raises Misconfigured."""
    tls = client_tls(settings.url, settings.ca_file)
    async with aiohttp.ClientSession(read_bufsize=_LINE_LIMIT) as session:
        yield StreamClient(settings, session, report, tls=tls)
