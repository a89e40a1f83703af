"""Parses and validates addresses and URLs of the configuration, and masks their passwords."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from kube_sync.config.remediation import ArgoCd, Remediate
from kube_sync.config.replication import Decisions
from kube_sync.errors import Misconfigured


def parse_listen(path: str, text: str) -> tuple[str, int]:
    """Split `host:port` (`[::1]:8443` for IPv6). Raises Misconfigured with `path`."""
    match = re.fullmatch(
        r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\[\]\s]*)):(?P<port>[0-9]{1,5})", text
    )
    # Port 0 lets the system choose one; tests use it.
    if match is None or not 0 <= (port := int(match["port"])) < 65536:  # noqa: PLR2004
        msg = f'{path}: "{text}" is not host:port, as in 127.0.0.1:9400'
        raise Misconfigured(msg)
    return match["v6"] or match["host"] or "0.0.0.0", port  # noqa: S104 - ":8443" means all


def check_stream(decisions: Decisions) -> None:
    """Check that the decision stream needs TLS and a token beyond this machine, the basis always.

    For the process that serves the stream; others may share its configuration without its files.
    Raises Misconfigured.
    """
    basis = decisions.basis
    for name, file in (
        ("token_file", decisions.token_file),
        ("basis.cert_file", basis.cert_file),
    ):
        if basis.listen is not None and file is None:
            msg = f"decisions.{name}: needed, since decisions.basis.listen is set"
            raise Misconfigured(msg)
    files = {"token_file": decisions.token_file, "cert_file": decisions.cert_file}
    _check_exposure("decisions", decisions.listen, files, "the stream shows what runs where")


def check_status(remediate: Remediate) -> None:
    """Check that the status page needs a token beyond this machine.

    Raises Misconfigured.
    """
    files = {"token_file": remediate.token_file}
    _check_exposure("remediate", remediate.listen, files, "its clients may approve changes")


def check_generator(generator: ArgoCd) -> None:
    """Check that the generator needs TLS and a token beyond this machine.

    Raises Misconfigured.
    """
    if generator.listen is not None:
        files = {"token_file": generator.token_file, "cert_file": generator.cert_file}
        why = "answers show what runs where"
        _check_exposure("remediate.argocd", generator.listen, files, why)


def _check_exposure(section: str, listen: str, files: Mapping[str, str | None], why: str) -> None:
    host, _ = parse_listen(f"{section}.listen", listen)
    for name, file in files.items():
        if file is None and not _is_loopback(host):
            msg = (
                f"{section}.{name}: needed, since {section}.listen ({listen}) is not a loopback "
                f"address and {why}"
            )
            raise Misconfigured(msg)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"  # any other name may have another address


def masked(url: str) -> str:
    """Return a URL without its password."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]))


def check_url(path: str, url: str) -> None:
    """Check that a URL is http or https. Raises Misconfigured with `path`."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError as error:
        # Neither the URL nor the error is quoted: the end of the password is unknown.
        msg = f"{path}: not a URL: its address or its port is malformed"
        raise Misconfigured(msg) from error
    if not usable:
        msg = f'{path}: "{masked(url)}" is not an http or https URL'
        raise Misconfigured(msg)
