"""A response of JSON that is written in one piece, as the webhook answers thousands a second.

aiohttp makes and encodes the headers of each response anew, which takes longer than a decision that
is known. These are always the same but for the length and the date (RFC 9110, section 6.6.1).
"""

from __future__ import annotations

import time
from email.utils import formatdate
from functools import lru_cache
from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_request import BaseRequest

_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: %b\r\nContent-Length: %d\r\n%b\r\n"
)


# By inheritance, since aiohttp calls these methods of whatever a handler returns.
class JsonReply(web.StreamResponse):
    """The answer to a POST, with the status 200."""

    def __init__(self, body: bytes) -> None:
        """Answer with this JSON."""
        super().__init__()
        self._json = body
        self._closes = False
        self._writer: AbstractStreamWriter | None = None

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open."""
        return not self._closes

    def force_close(self) -> None:
        """Close the connection after this response."""
        self._closes = True

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter:
        """Take the request that is answered: nothing is sent before its end."""
        # The default of version 1.0 is to close, and a header would be needed not to.
        self._closes |= not request.keep_alive or request.version != HttpVersion11
        self._writer = request.writer
        return self._writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the response."""
        assert self._writer is not None  # noqa: S101 - it is prepared
        close = b"Connection: close\r\n" if self._closes else b""
        body = self._json + data
        await self._writer.write_eof(_HEAD % (_date(int(time.time())), len(body), close) + body)


@lru_cache(1)
def _date(now: int) -> bytes:
    return formatdate(now, usegmt=True).encode()
