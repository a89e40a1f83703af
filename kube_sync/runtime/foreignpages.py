"""Whether a request was made by a web page of somebody else, in a browser that can reach us.

A browser asks whatever server a page names. It shows the page no answer of another origin, but a
name that is the page's own today and 127.0.0.1 tomorrow (DNS rebinding) makes us the same origin.
Who needs a token is safe from that, since the browser has none to send by itself. Where there is
none only this machine can ask, so it has to call us by a name of this machine.
Keeps true: programs that are no browsers, and say none of this, notice nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

# What a browser says of who asks (W3C, Fetch Metadata Request Headers).
_OWN: Final = ("same-origin", "none")
_LOCAL: Final = ("localhost", "ip6-localhost", "ip6-loopback")


def foreign(
    headers: Mapping[str, str], *, open_to_all: bool, setting: str = "decisions.token_file"
) -> str | None:
    """Return why a request is refused, None: it is not.

    `open_to_all` says that no token is asked for; `setting` is where to configure one.
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
        return ""  # as `null`, which is no origin of ours
