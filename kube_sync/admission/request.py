"""Reads an admission request: the client's identity, the deadline, and the body.

Invariant: the memory for a body is limited, however it is sent; a slow client is not waited for
longer than for an answer; and errors are returned as status and text, as a `web.HTTPException`.

A client is identified by the certificate that the TLS handshake has verified: the API server
presents one if its AdmissionConfiguration has a kubeconfig for webhooks. It sends its time-out
(`?timeout=5s`), which runs from its call; a time-out at the API server reads as a broken webhook,
while our own response names the cause. So some of the time is left for the way back.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web
from aiohttp.web_request import BaseRequest

_JSON = "application/json"
_KIND = 80  # characters of another content type in the message


async def read_body(request: BaseRequest, limit: int, seconds: float) -> bytes:
    """Return the JSON of a request, of at most `limit` bytes, arriving within `seconds`.

    `limit` is the application's `client_max_size`. Raises HTTPException, 400, 408, 413 or 415.
    """
    kind = request.headers.get("Content-Type", "")
    if kind != _JSON and kind.partition(";")[0].strip().lower() != _JSON:
        said = ascii(kind)[1:-1][:_KIND] or "missing"  # it may be no text
        msg = f"the content type is {said}, not application/json\n"
        raise web.HTTPUnsupportedMediaType(text=msg)
    content = request.content
    try:
        if content.is_eof():  # complete: there is nothing to wait for
            if content.total_bytes > limit:
                raise _too_large(limit)
            return content.read_nowait()
        if (request.content_length or 0) > limit:
            raise _too_large(limit)
        async with asyncio.timeout(seconds):
            return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise _too_large(limit) from error
    except TimeoutError as error:
        msg = f"the body did not arrive within {seconds:.1f} s\n"
        raise web.HTTPRequestTimeout(text=msg) from error
    except (web.RequestPayloadError, ConnectionError) as error:
        msg = f"the body cannot be read: {error}\n"
        raise web.HTTPBadRequest(text=msg) from error


def _too_large(limit: int) -> web.HTTPRequestEntityTooLarge:
    msg = f"the body is longer than the {limit} bytes of admission.max_body_bytes\n"
    return web.HTTPRequestEntityTooLarge(limit, text=msg)


_DEFAULT_SECONDS = 10.0  # the API server's own default
# The API server's maximum of `timeoutSeconds`, so that no client holds a request longer.
_MOST_SECONDS = 30.0
_MARGIN = 0.2  # of the time-out, but at most these seconds:
_MOST_MARGIN = 0.5

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ms|us|µs|ns|h|m|s)")


@lru_cache(64)  # there is one such query for each webhook that is configured
def seconds_to_answer(query: str) -> float:
    """Return the seconds within which a request with this query has to be answered."""
    given = duration(parse_qs(query).get("timeout", [""])[0]) or _DEFAULT_SECONDS
    given = min(given, _MOST_SECONDS)
    return given - min(given * _MARGIN, _MOST_MARGIN)


def duration(text: str) -> float | None:
    """Parse a duration as Go does (`time.ParseDuration`), in seconds; None if invalid."""
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


PeerCert = Mapping[str, Any]  # as ssl.SSLSocket.getpeercert() returns it


def is_known(certificate: PeerCert | None, names: Collection[str]) -> bool:
    """Return whether a certificate has one of these names; without names anybody is accepted."""
    return not names or not names_of(certificate or {}).isdisjoint(names)


def names_of(certificate: PeerCert) -> set[str]:
    """Return the common name and the DNS names (RFC 5280, 4.1.2.6 and 4.2.1.6)."""
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    common = {value for key, value in subject if key == "commonName"}
    return common | {
        value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"
    }
