"""Rejects requests that a foreign web page makes through a browser that can reach this server.

A browser requests any URL that a page names. It shows the page no answer of another origin, but
DNS rebinding (a page's own name that later resolves to 127.0.0.1) makes us the same origin.
A server with a token is safe, since the browser does not send the token by itself. Without one
only this machine can connect, so the Host must be a name of this machine.
Invariant: clients that are no browsers, and send none of these headers, are not affected.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

# The browser's own statement of the requesting site (W3C, Fetch Metadata Request Headers).
_OWN: Final = ("same-origin", "none")
_LOCAL: Final = ("localhost", "ip6-localhost", "ip6-loopback")


def foreign(
    headers: Mapping[str, str], *, open_to_all: bool, setting: str = "decisions.token_file"
) -> str | None:
    """Return why a request is refused, None: it is not.

    `open_to_all` means that no token is required; `setting` is the field to configure one.
    """
    host = headers.get("Host")
    if open_to_all and host is not None and not _is_local(host):
        return f"call it by a name of this machine, as localhost, or set {setting}"
    origin = headers.get("Origin")
    if origin is not None and _authority(origin) != (host or "").lower():
        return "a page of another origin asks"
    site = headers.get("Sec-Fetch-Site", "none")
    if site not in _OWN and headers.get("Sec-Fetch-Mode") != "navigate":
        return "a page of another site asks"
    return None


def _is_local(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in _LOCAL or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""  # an opaque origin (`null`), which is not ours
