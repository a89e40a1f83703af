"""One HTTP request to a remediator that runs, for `kube-sync remediate status` and `apply`."""

from __future__ import annotations

import urllib.request
from http import HTTPStatus
from http.client import HTTPException
from urllib.error import HTTPError

from kube_sync.config import Settings, parse_listen
from kube_sync.errors import Refused, Retriable
from kube_sync.runtime.tokenfile import TokenFile

_SECONDS = 10.0
_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - an address to ask at, not to listen on


def request(settings: Settings, url: str | None, path: str, body: bytes | None = None) -> bytes:
    """Ask the remediator at `url`, or at remediate.listen; return its answer.

    Raises Refused, Retriable; Misconfigured for a token file that cannot be read.
    """
    host, port = parse_listen("remediate.listen", settings.remediate.listen)
    host = "127.0.0.1" if host in _ANYWHERE else host
    whole = (url or f"http://{f'[{host}]' if ':' in host else host}:{port}").rstrip("/") + path
    headers = {
        "Content-Type": "application/json",
        **TokenFile(settings.remediate.token_file).headers(),
    }
    try:
        asked = urllib.request.Request(whole, data=body, headers=headers)  # noqa: S310 - a person's
        # No proxy from the environment: the remediator is local.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(asked, timeout=_SECONDS) as response:
            found: bytes = response.read()
            return found
    except HTTPError as error:
        with error:
            said = error.read().decode("utf-8", "replace").strip()
        msg = f"{whole}: {error.code} {said}"
        if error.code == HTTPStatus.UNAUTHORIZED:
            msg += " (is remediate.token_file the right one?)"
        raise Refused(msg) from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)  # urllib's errors have that of the socket
        msg = f"{whole}: {getattr(reason, 'strerror', None) or reason}"
        raise Retriable(msg) from error
