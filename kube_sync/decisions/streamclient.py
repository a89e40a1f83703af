"""Read the decision stream, for ever, from wherever it is.

Yields records; `None` says that a new stream begins, so that everything known so far has to be
confirmed by it. After a connection that broke it goes on where its last bookmark was, without a
`None`, if the replicator still knows what changed since; else it starts afresh. A silent stream is
a broken one: it has a sign of life every few seconds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import structlog

from kube_sync.config import Decisions, masked
from kube_sync.decisions.records import BookmarkRecord, Record, decode
from kube_sync.decisions.stream import RESUMED, SILENCE_SECONDS
from kube_sync.errors import NO_JSON, Expired, Refused, Retriable, SyncError
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.clienttls import Tls, client_tls, in_the_clear
from kube_sync.runtime.httperrors import retriable
from kube_sync.runtime.tokenfile import TokenFile

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_CONNECT_SECONDS = 5.0
_REASON = 300  # characters of an answer that are told
_LINE_LIMIT = 1 << 22  # bytes; aiohttp's reader refuses lines longer than twice its buffer


class StreamClient:
    """One replicator's decisions."""

    def __init__(
        self,
        settings: Decisions,
        session: aiohttp.ClientSession,
        report: Callable[[str | None], None],
        backoff: Backoff | None = None,
        *,
        tls: Callable[[], Tls] = in_the_clear,
    ) -> None:
        """`report` is told why there is no stream, or None when there is one."""
        self._url = settings.url
        self._where = f"decision stream {masked(settings.url)}"
        self._token = TokenFile(settings.token_file)
        self._session = session
        self._tls = tls
        self._report = report
        self._backoff = backoff or Backoff(longest=5.0)

    async def records(self) -> AsyncGenerator[Record | None]:
        """Yield records until cancelled, None before the first one of each stream begun afresh."""
        since: str | None = None  # the last bookmark
        while True:
            at_least = None
            try:
                async with self._open(since) as (content, resumed):
                    self._report(None)
                    if not resumed:
                        since = None  # what is known is unconfirmed until the next bookmark
                        yield None
                    async for record in _records(content):
                        self._backoff.progressed()
                        # Noted first: whoever was given a bookmark has all that came before it.
                        if isinstance(record, BookmarkRecord):
                            since = f"{record.instance}:{record.seq}"
                        yield record
                self._report(f"{self._where}: ended")
            except Expired as error:
                since = None
                log.info("decisions_begun_again", reason=str(error))
            except SyncError as error:
                self._report(str(error))
                at_least = getattr(error, "retry_after", None)
            await self._backoff.wait(at_least)

    @asynccontextmanager
    async def _open(self, since: str | None) -> AsyncGenerator[tuple[aiohttp.StreamReader, bool]]:
        """Yield the lines, and whether they go on after what was read before."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=3 * SILENCE_SECONDS
        )
        where = self._where
        asked = {"watch": "true"} | ({} if since is None else {"since": since})
        with retriable(where):
            async with self._session.get(
                self._url,
                params=asked,
                headers=self._token.headers(),
                timeout=timeout,
                ssl=self._tls(),
            ) as response:
                if response.status in (401, 403):
                    msg = f"{where}: {response.status} (is decisions.token_file the right one?)"
                    raise Refused(msg)
                if response.status == 410 and since is not None:  # noqa: PLR2004 - HTTP's own
                    msg = f"{where}: {(await response.text()).strip()[:_REASON]}"
                    raise Expired(msg)
                if response.status != 200:  # noqa: PLR2004 - HTTP's own
                    msg = f"{where}: {response.status}"
                    raise Retriable(msg)
                # One that does not know `since` sends everything, and says nothing of what ended.
                yield response.content, since is not None and response.headers.get(RESUMED) == since


async def _records(content: aiohttp.StreamReader) -> AsyncIterator[Record]:
    async for line in content:
        if not line.endswith(b"\n"):
            return  # torn: the stream ended in the middle of it
        try:
            yield decode(line)
        except NO_JSON as error:
            msg = f"a line of the decision stream is not a record that is known here: {error}"
            raise Retriable(msg) from error


@asynccontextmanager
async def stream_client(
    settings: Decisions, report: Callable[[str | None], None]
) -> AsyncGenerator[StreamClient]:
    """Yield a client for the configured stream. Raises Misconfigured."""
    tls = client_tls(settings.url, settings.ca_file)
    async with aiohttp.ClientSession(read_bufsize=_LINE_LIMIT) as session:
        yield StreamClient(settings, session, report, tls=tls)
