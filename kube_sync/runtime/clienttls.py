"""TLS contexts of clients, reloaded when their CA or certificate files change.

Invariant: replaced files need no restart, and new connections no longer trust an authority that
was removed. A context is never modified but replaced by one that was loaded completely: files that
do not match, are partly written or missing leave the last good context in use, which is
logged. Open connections stay as they are.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from kube_sync.errors import Misconfigured
from kube_sync.runtime.tls import client_context

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_CHECK_SECONDS = 5.0

Tls = ssl.SSLContext | bool  # aiohttp's `ssl` argument of one request


class ClientTls:
    """One client's context; call it again for each request."""

    def __init__(
        self,
        ca_file: str | None,
        cert_file: str | None = None,
        key_file: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Load the files. Raises Misconfigured, naming the file."""
        self._files = (ca_file, cert_file, key_file)
        self._clock = clock
        self._logged: str | None = None
        self._content = self._read()
        self._context = client_context(*self._files)
        self._checked_at = clock()

    def current(self) -> ssl.SSLContext:
        """Return the context; the files are checked every 5 seconds at most."""
        if self._clock() - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = self._clock()
            self._reload()
        return self._context

    def _reload(self) -> None:
        try:
            # Read before it is loaded: the next check finds a file that is replaced in between.
            content = self._read()
            if content != self._content:
                self._context = client_context(*self._files)
                self._content = content
                log.info("client_certificates_loaded", files=self._named())
        except Misconfigured as error:
            if self._logged != str(error):
                log.warning("client_certificates_not_good", reason=str(error))
            self._logged = str(error)
        else:
            self._logged = None

    def _read(self) -> tuple[bytes, ...]:
        try:
            return tuple(Path(file).read_bytes() for file in self._named())
        except OSError as error:
            msg = f"{error.filename}: {error.strerror}"
            raise Misconfigured(msg) from error

    def _named(self) -> list[str]:
        return [file for file in self._files if file is not None]


def client_tls(
    url: str, ca_file: str | None, cert_file: str | None = None, key_file: str | None = None
) -> Callable[[], Tls]:
    """Return a function to call before each request to `url`. Raises Misconfigured."""
    if not url.startswith("https:"):
        return in_the_clear
    return ClientTls(ca_file, cert_file, key_file).current


def in_the_clear() -> Tls:
    """Return aiohttp's default, which an `http:` URL does not use."""
    return True
