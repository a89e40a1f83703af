"""TLS context of a server, reloaded when its certificate or client CA files change.

Invariant: replaced files (by cert-manager, or by the kubelet swapping a symbolic link)
need no restart. A context is never modified but replaced by one that was loaded completely, so that
a pair that does not match, is partly written or missing changes only the readiness page; an
authority that was removed is no longer trusted. Open connections stay as they are.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import structlog

from kube_sync.errors import Misconfigured
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.runtime.tls import expiry, server_context

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_CHECK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a server; with `client_ca`, clients need a certificate of that authority."""

    cert: str
    key: str
    client_ca: str | None = None

    def content(self) -> tuple[bytes, ...]:
        """Return the contents of the files. Raises Misconfigured with the file."""
        files = (self.cert, self.key, self.client_ca)
        try:
            return tuple(Path(file).read_bytes() for file in files if file is not None)
        except OSError as error:
            msg = f"{error.filename}: {error.strerror}"
            raise Misconfigured(msg) from error


class ServerTls:
    """One server's context; every handshake uses the latest one."""

    def __init__(
        self,
        name: str,
        files: TlsFiles,
        readiness: Readiness,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Load the files of server `name`. Raises Misconfigured with the file."""
        self._name = name
        self._files = files
        self._readiness = readiness
        self._sleep = sleep
        self._now = now
        self._reported = "ok"
        self._load()
        self.context = self._current
        # Called in every handshake, with a server name or without.
        self.context.sni_callback = self._use_current

    async def follow(self) -> NoReturn:
        """Check the files every few seconds, for ever."""
        while True:
            self._report(self._reload(), expired=self._now() >= self._expiry)
            await self._sleep(_CHECK_SECONDS)

    def _reload(self) -> str:
        """Load changed files; return a note on them for people."""
        try:
            if self._files.content() != self._content:
                self._load()
                log.info("certificate_loaded", server=self._name, expires=str(self._expiry))
        except Misconfigured as error:
            if self._now() < self._expiry:
                return f"the last good certificate is in use, since {error}"
        if self._now() >= self._expiry:
            return f"{self._files.cert}: expired on {self._expiry:%Y-%m-%d %H:%M} UTC"
        return "ok"

    def _load(self) -> None:
        # Read before it is loaded: the next check finds a file that is replaced in between.
        content = self._files.content()
        context = server_context(self._files.cert, self._files.key, self._files.client_ca)
        try:
            expires = expiry(content[0])
        except ValueError as error:  # being replaced: OpenSSL has read another content
            msg = f"{self._files.cert}: {error}"
            raise Misconfigured(msg) from error
        self._content, self._current, self._expiry = content, context, expires
        metrics.certificate_expiry_timestamp_seconds.labels(self._name).set(
            self._expiry.timestamp()
        )

    def _use_current(self, handshake: ssl.SSLObject, *_: object) -> None:
        handshake.context = self._current

    def _report(self, detail: str, *, expired: bool) -> None:
        # No client that verifies accepts an expired certificate: the server is of no use then.
        report = self._readiness.waiting if expired else self._readiness.noted
        report(f"{self._name} certificate", detail)
        if not expired and detail not in (self._reported, "ok"):
            log.warning("certificate_not_good", server=self._name, reason=detail)
        self._reported = detail
