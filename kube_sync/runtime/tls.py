"""TLS contexts from files, with errors that name the file.

Keeps true: verification is never switched off, and nothing below TLS 1.2 is spoken.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from kube_sync.errors import Misconfigured


def server_context(cert_file: str, key_file: str) -> ssl.SSLContext:
    """Serve with this certificate. Raises Misconfigured, naming the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for file in (cert_file, key_file):
        _readable(file)
    try:
        context.load_cert_chain(cert_file, key_file)
    except (ssl.SSLError, OSError) as error:
        msg = f"{cert_file} and {key_file} are not a certificate and its key: {error}"
        raise Misconfigured(msg) from error
    return context


def client_context(
    ca_file: str | None, cert_file: str | None = None, key_file: str | None = None
) -> ssl.SSLContext:
    """Trust `ca_file` alone, or the machine's authorities; show a certificate where there is one.

    Raises Misconfigured, naming the file.
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
