"""What a client trusts and shows, as its files say now.

Keeps true: whoever replaces the files needs no restart, and an authority that was taken out is no
longer trusted by new connections. Contexts are never changed but replaced, each made whole before
it counts: files that do not match, are half written or gone leave the last good ones in use, and
are told in the log. Connections that are open stay as they are.
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

_LOOK_SECONDS = 5.0

Tls = ssl.SSLContext | bool  # what aiohttp takes for one request


class ClientTls:
    """One client's context; ask for it again for each request."""

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
        self._said: str | None = None
        self._content = self._read()
        self._context = client_context(*self._files)
        self._looked = clock()

    def current(self) -> ssl.SSLContext:
        """Return the context; the files are looked at every 5 seconds at most."""
        if self._clock() - self._looked >= _LOOK_SECONDS:
            self._looked = self._clock()
            self._look()
        return self._context

    def _look(self) -> None:
        try:
            # Read before it is loaded: what is swapped in between is found by the next look.
            content = self._read()
            if content != self._content:
                self._context = client_context(*self._files)
                self._content = content
                log.info("client_certificates_loaded", files=self._named())
        except Misconfigured as error:
            if self._said != str(error):
                log.warning("client_certificates_not_good", reason=str(error))
            self._said = str(error)
        else:
            self._said = None

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
    """Return what to ask before each request to `url`. Raises Misconfigured, naming the file."""
    if not url.startswith("https:"):
        return in_the_clear
    return ClientTls(ca_file, cert_file, key_file).current


def in_the_clear() -> Tls:
    """Return aiohttp's default, which an `http:` URL has no use for."""
    return True
