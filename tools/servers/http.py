"""One blocking request over HTTP or verified HTTPS; proxies of the environment are not used.

Raises OSError for whatever keeps an answer from coming. Standard library only.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    body: bytes


def get(url: str, *, ca_file: Path | None = None, token: str | None = None) -> Answer:
    """Ask once; an answer of any status is an answer."""
    return request("GET", url, ca_file=ca_file, token=token)


def request(
    method: str,
    url: str,
    *,
    ca_file: Path | None = None,
    token: str | None = None,
    body: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request, with a body of JSON where one is given, and with `more` headers."""
    where = urlsplit(url)
    headers = {"Content-Type": "application/json", **(more or {})}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    path = (where.path or "/") + (f"?{where.query}" if where.query else "")
    try:
        with closing(_connection(where.scheme, where.netloc, ca_file)) as connection:
            connection.request(method, path, body, headers)
            with connection.getresponse() as response:
                return Answer(response.status, response.read())
    except http.client.HTTPException as error:
        msg = f"no HTTP answer from {url}: {error!r}"
        raise OSError(msg) from error


def _connection(scheme: str, host: str, ca_file: Path | None) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, timeout=_TIMEOUT)
    context = ssl.create_default_context(cafile=ca_file)
    return http.client.HTTPSConnection(host, timeout=_TIMEOUT, context=context)
