"""Clients that break the rules of HTTP, byte by byte, and what must be as before when they left."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.unit.async_tools import until

SECRET = b"s3cr3t-t0ken"  # what nobody may find in an answer or a log
_ANSWER_SECONDS = 0.2  # some get none, and are left waiting
_MOST = 1 << 16

H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(193)


@dataclass
class Port:
    """One port of ours: how it is asked properly, and where it is open to odd requests."""

    port: int
    good: bytes  # a whole request that is answered with 200
    paths: Sequence[str]
    method: str = "GET"
    token: bytes = b""  # the right one
    tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def connected(
        self,
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Yield a connection, and let go of it without waiting for anything."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def send(self, *pieces: bytes, seconds: float = _ANSWER_SECONDS) -> bytes:
        """Send bytes, return what comes back until the end or until nothing more comes."""
        found = b""
        async with self.connected() as (reader, writer):
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(seconds):
                    for piece in pieces:
                        writer.write(piece)
                        await writer.drain()
                    while len(found) < _MOST and (some := await reader.read(_MOST)):
                        found += some
        return found

    async def is_well(self) -> bool:
        """Tell whether a good request is answered."""
        async with self.connected() as (reader, writer):
            writer.write(self.good)
            return b" 200 " in await reader.readline()


@dataclass(frozen=True)
class Held:
    """What this process holds now."""

    descriptors: int
    tasks: int

    @staticmethod
    def now() -> Held:
        """Count."""
        return Held(sum(1 for _ in Path("/proc/self/fd").iterdir()), len(asyncio.all_tasks()))

    def is_within(self, other: Held) -> bool:
        """Tell whether this is no more."""
        return self.descriptors <= other.descriptors and self.tasks <= other.tasks


@asynccontextmanager
async def unharmed(port: Port) -> AsyncGenerator[None]:
    """Let the block do its worst: then the port answers, and holds nothing more than before."""
    assert await port.is_well()
    before = Held.now()
    yield
    assert await port.is_well()
    await until(lambda: Held.now().is_within(before))


def heads(port: Port, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield whole requests with something wrong in their heads, and what."""
    for name, lines in _HEADERS.items():
        yield name, _request(port, path, lines)
    for name, line in _REQUEST_LINES.items():
        written = line.replace(b"PATH", path.encode()).replace(b"METHOD", port.method.encode())
        yield name, written + b"\r\n" + _proper(port) + b"\r\n"


def _proper(port: Port) -> bytes:
    return b"Host: x\r\nAuthorization: Bearer " + port.token + b"\r\n"


def _request(port: Port, path: str, lines: bytes) -> bytes:
    line = f"{port.method} {path} HTTP/1.1\r\n".encode()
    return line + _proper(port) + lines + b"\r\n"


_LONG = 100_000
_HEADERS: Mapping[str, bytes] = {
    "a huge value": b"X-A: " + SECRET + b"a" * _LONG + b"\r\n",
    "a huge name": b"a" * _LONG + b": 1\r\n",
    "too many": b"".join(b"X-%d: 1\r\n" % n for n in range(5000)),
    "no colon": SECRET + b"\r\n",
    "a blank before the colon": b"X-A : " + SECRET + b"\r\n",
    "folded": b"X-A: 1\r\n " + SECRET + b"\r\n",
    "NUL": b"X-A: " + SECRET + b"\0\r\n",
    "a lone CR": b"X-A: " + SECRET + b"\rX-B: 1\r\n",
    "lone LFs": b"X-A: " + SECRET + b"\nX-B: 1\n\n",
    "an empty name": b": " + SECRET + b"\r\n",
    "two hosts": b"Host: y\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + SECRET,
    "two equal lengths": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": b"Content-Length: 5, 6\r\n\r\nhello",
    "length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + SECRET,
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"
    + SECRET,
    "chunked and not": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
    "chunked, not last": b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "not quite chunked": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked after a tab": b"Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n",
    "a length below 0": b"Content-Length: -1\r\n",
    "a length with a sign": b"Content-Length: +5\r\n\r\nhello",
    "a length in hex": b"Content-Length: 0x5\r\n\r\nhello",
    "a length beyond all numbers": b"Content-Length: " + b"9" * 40 + b"\r\n",
    "a length of 5000 digits": b"Content-Length: " + b"9" * 5000 + b"\r\n",
    "a length that no file has": b"Content-Length: 9223372036854775807\r\n\r\nx",
    "a chunk's length beyond all numbers": b"Transfer-Encoding: chunked\r\n\r\n"
    + b"f" * 40
    + b"\r\n",
    "a chunk's length below 0": b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + SECRET,
    "a chunk without length": b"Transfer-Encoding: chunked\r\n\r\n" + SECRET + b"\r\n",
    "a huge extension": b"Transfer-Encoding: chunked\r\n\r\n5;"
    + b"a" * _LONG
    + b"\r\nhello\r\n0\r\n\r\n",
    "an extension": b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
    "an extension with LF": b"Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
    "a huge trailer": b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: " + b"a" * _LONG + b"\r\n\r\n",
    "no gzip": b"Content-Encoding: gzip\r\nContent-Length: 12\r\n\r\n" + SECRET,
    "no deflate": b"Content-Encoding: deflate\r\nContent-Length: 12\r\n\r\n" + SECRET,
    "no brotli": b"Content-Encoding: br\r\nContent-Length: 12\r\n\r\n" + SECRET,
    "a websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + SECRET,
    "HTTP/2 in the clear": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"
    + H2_PREFACE,
    "an upgrade and a flood": b"Connection: Upgrade\r\nUpgrade: x\r\n\r\n" + b"a" * _LONG,
    "an odd expectation": b"Expect: " + SECRET + b"\r\n",
    "an expectation that is no text": b"Expect: \xff\xfe\r\n",
    "a body to wait for": b"Expect: 100-continue\r\nContent-Length: 12\r\n",
    "an odd range": b"Range: bytes=9-1,-0,x\r\nIf-Range: \xff\r\nIf-Modified-Since: \xff\r\n",
    "wanting what is no number": b"Prefer: wait=" + b"9" * 5000 + b"\r\n",
    "digits of other scripts": b"Prefer: wait=\xd9\xa3\r\n",
    **{
        f"{name} that is no text": name.encode() + b": \xff\xfe\xed\xa0\x80\r\n"
        for name in (
            *("Authorization", "Host", "Content-Type", "Accept", "Accept-Encoding", "Cookie"),
            *("If-None-Match", "Prefer", "Connection", "Content-Encoding", "Origin", "Via"),
        )
    },
}
# Whoever stands between could find another end of these, and so another request behind it.
AMBIGUOUS = (
    *("two lengths", "a list of lengths", "length and chunks", "chunks and length"),
    *("chunked and not", "chunked, not last", "not quite chunked", "a length with a sign"),
    *("a length below 0", "a length in hex", "a length beyond all numbers", "a lone CR"),
    *("a blank before the colon", "NUL", "no colon", "an empty name", "folded", "lone LFs"),
)
_REQUEST_LINES: Mapping[str, bytes] = {
    "no version": b"METHOD PATH",
    "another version": b"METHOD PATH HTTP/9.9",
    "no HTTP": b"METHOD PATH RTSP/1.0",
    "version 2": b"METHOD PATH HTTP/2.0",
    "a version without an end": b"METHOD PATH HTTP/1." + b"1" * 1000,
    "small letters": b"get PATH HTTP/1.1",
    "a method that is no text": b"\xff\xfe PATH HTTP/1.1",
    "a method of our own": SECRET.replace(b"-", b"") + b" PATH HTTP/1.1",
    "a tunnel": b"CONNECT x:443 HTTP/1.1",
    "a tunnel to nowhere": b"CONNECT [ HTTP/1.1",
    "a trace": b"TRACE PATH HTTP/1.1",
    "a star": b"OPTIONS * HTTP/1.1",
    "a whole URL": b"METHOD http://elsewhere/x HTTP/1.1",
    "no URL": b"METHOD http://[::1 HTTP/1.1",
    "a port that is none": b"METHOD http://x:99999999/ HTTP/1.1",
    "a path from nowhere": b"METHOD x HTTP/1.1",
    "two slashes": b"METHOD //x:y@[/PATH HTTP/1.1",
    "blanks": b"METHOD  PATH  HTTP/1.1",
    "tabs": b"METHOD\tPATH\tHTTP/1.1",
    "NUL in the path": b"METHOD PATH/\0 HTTP/1.1",
    "NUL in disguise": b"METHOD PATH/%00%0d%0aX:%201 HTTP/1.1",
    "no text in the path": b"METHOD PATH/\xff\xfe HTTP/1.1",
    "no text in disguise": b"METHOD PATH/%ff%fe%ed%a0%80?watch=%ff&since=%ed%a0%80:1 HTTP/1.1",
    "half an escape": b"METHOD PATH/%?watch=%u00&%=% HTTP/1.1",
    "up": b"METHOD PATH/../../../../etc/passwd HTTP/1.1",
    "up in disguise": b"METHOD PATH/%2e%2e%2f..%2f..%5c..%2fetc%2fpasswd HTTP/1.1",
    "up in disguise, twice": b"METHOD PATH/%252e%252e%252fetc%252fpasswd HTTP/1.1",
    "a fragment": b"METHOD PATH#x?watch HTTP/1.1",
    "a huge path": b"METHOD PATH/" + b"a" * _LONG + b" HTTP/1.1",
    "a huge query": b"METHOD PATH?" + b"a=1&" * (_LONG // 4) + b" HTTP/1.1",
    "a query with a thousand names": b"METHOD PATH?" + b"a&" * 1000 + b" HTTP/1.1",
    "positions that are none": b"METHOD PATH?since=a:" + b"9" * 300 + b" HTTP/1.1",
    "a position of another script": b"METHOD PATH?since=a:%D9%A3 HTTP/1.1",
    "a way of watching that is none": b"METHOD PATH?watch=" + SECRET + b" HTTP/1.1",
    "a time that is none": b"METHOD PATH?timeout=" + b"9" * 400 + b"h&timeout=nan HTTP/1.1",
}
NO_REQUESTS: Mapping[str, bytes] = {
    "nothing": b"",
    "NULs": bytes(10_000),
    "all bytes": bytes(range(256)) * 40,
    "empty lines": b"\r\n" * 10_000,
    "the preface of HTTP/2": H2_PREFACE,
    "the beginning of TLS": TLS_HELLO,
    "a secret": SECRET * 10_000,
    "mail": b"EHLO " + SECRET + b"\r\n",
    "one long line": b"GET /" + SECRET + b"a" * 1_000_000,
}
