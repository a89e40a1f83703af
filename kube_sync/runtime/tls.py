"""TLS contexts from files, with errors that name the file.

Invariant: verification is never switched off, and the minimum is TLS 1.2.
"""

from __future__ import annotations

import base64
import re
import ssl
from datetime import datetime
from pathlib import Path

import structlog

from kube_sync.errors import Misconfigured

log: structlog.stdlib.BoundLogger = structlog.get_logger()


_FIRST = re.compile(rb"-----BEGIN (?:X509 )?CERTIFICATE-----(.+?)-----END", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17  # tags of DER (X.690)


class _Handshake(ssl.SSLObject):
    """Logs why a handshake failed; asyncio only closes the connection."""

    def do_handshake(self) -> None:
        """Continue the handshake."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            log.info("tls_handshake_failed", reason=error.reason)
            raise


def server_context(
    cert_file: str, key_file: str, client_ca_file: str | None = None
) -> ssl.SSLContext:
    """Return a server context; with a client CA, clients need a certificate of it.

    Raises Misconfigured with the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslobject_class = _Handshake
    _load_pair(context, cert_file, key_file)
    if client_ca_file is not None:
        _trust(context, client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
        # A resumed session would skip verification, whatever became of the authority.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context


def _trust(context: ssl.SSLContext, ca_file: str) -> None:
    _readable(ca_file)
    try:
        context.load_verify_locations(ca_file)
    except (ssl.SSLError, OSError) as error:
        msg = f"{ca_file} holds no certificate authority: {error}"
        raise Misconfigured(msg) from error


def client_context(
    ca_file: str | None, cert_file: str | None = None, key_file: str | None = None
) -> ssl.SSLContext:
    """Return a client context that trusts `ca_file` alone, or the machine's authorities.

    Raises Misconfigured with the file.
    """
    if ca_file is not None:
        _readable(ca_file)
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (ssl.SSLError, OSError) as error:
        msg = f"{ca_file} holds no certificate authority: {error}"
        raise Misconfigured(msg) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert_file is not None and key_file is not None:
        _load_pair(context, cert_file, key_file)
    return context


def _load_pair(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    for file in (cert_file, key_file):
        _readable(file)
    try:
        context.load_cert_chain(cert_file, key_file)
    except (ssl.SSLError, OSError) as error:
        msg = f"{cert_file} and {key_file} are not a certificate and its key: {error}"
        raise Misconfigured(msg) from error


def _readable(file: str) -> None:
    try:
        Path(file).read_bytes()
    except OSError as error:
        msg = f"{file}: {error.strerror}"
        raise Misconfigured(msg) from error


def expiry(cert_pem: bytes) -> datetime:
    """Return the expiry of a certificate (RFC 5280, 4.1.2.5), the first of a chain.

    Raises ValueError. The ssl module shows this of a peer's certificate only, and the cryptography
    library takes 0.03 s and 9 MB to import.
    """
    found = _FIRST.search(cert_pem)
    if found is None:
        msg = "no certificate in PEM"
        raise ValueError(msg)
    der = base64.b64decode(found[1])
    try:
        _, at, _ = _element(der, 0)  # Certificate
        _, at, _ = _element(der, at)  # TBSCertificate
        tag, _, end = _element(der, at)
        at = end if tag == _VERSION else at
        for _ in ("serialNumber", "signature", "issuer"):
            _, _, at = _element(der, at)
        _, at, _ = _element(der, at)  # Validity
        _, _, at = _element(der, at)  # notBefore
        tag, at, end = _element(der, at)  # notAfter
    except IndexError as error:
        msg = "no X.509 certificate"
        raise ValueError(msg) from error
    text = der[at:end].decode("ascii")
    if tag == _UTC_TIME:  # with two digits of the year
        text = ("19" if text >= "50" else "20") + text
    return datetime.fromisoformat(f"{text[:8]}T{text[8:].removesuffix('Z')}+00:00")


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return an element's tag, and where its content begins and ends. Raises IndexError."""
    tag, length = der[at], der[at + 1]
    start = at + 2
    if length & 0x80:  # so many octets hold the length
        start += length & 0x7F
        length = int.from_bytes(der[at + 2 : start])
    return tag, start, start + length
