"""Checks the readiness page of a local process, for `HEALTHCHECK` in an image without a shell.

Its only input is an address. Standard library only, since it runs every few seconds.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import HTTPError

# The default ports of the commands' readiness pages; 9404 is the remediator's status page.
PORTS = (9401, 9402, 9403, 9405, 9406, 9407, 9408, 9409)
_SECONDS = 5.0
_NOT_FOUND = 404


class Health(NamedTuple):
    """The result of one page; `there` is false if nobody, or another program, listens there."""

    good: bool
    said: str
    there: bool = True


def page(listen: tuple[str, int]) -> str:
    """Return the local URL of the readiness page at a listen address."""
    host, port = listen
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not to bind
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/readyz"


def usual_pages(ports: Iterable[int] = PORTS) -> list[str]:
    """Return the local URLs of all commands' readiness pages, if no address is configured."""
    return [page(("127.0.0.1", port)) for port in ports]


def asked(url: str) -> Health:
    """Request one page, within 5 seconds."""
    # Never through a proxy of the environment: the page is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_SECONDS) as response:
            return Health(good=True, said=response.read().decode())
    except HTTPError as error:
        with error:
            said = error.read().decode(errors="replace").strip()
        return Health(good=False, said=said or f"{url}: {error}", there=error.code != _NOT_FOUND)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        there = not isinstance(reason, ConnectionRefusedError)
        return Health(good=False, said=f"{url}: {error}", there=there)


def found(urls: Sequence[str]) -> Health:
    """Check the pages that exist; if there are several, all have to be ready."""
    answers = [health for health in map(asked, urls) if health.there]
    if not answers:
        return Health(good=False, said=f"nobody answers at {', '.join(urls)}", there=False)
    return min(answers, key=lambda health: health.good)
