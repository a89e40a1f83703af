"""Parse an untrusted kubeconfig from a Secret.

Invariant: nothing in it makes this process run a program, open a file, use a proxy, impersonate
somebody, or connect without verified TLS; a field that asks for it is refused by name. No error and
no log contains any of its content, and a private key is never written to disk.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from kube_sync.errors import Misconfigured
from kube_sync.yamlnodes import NotYaml, Rules, plain, single

_MAX_BYTES: Final = 32 * 1024
# Fields of client-go's api/v1 types, with what each would make this process do.
_REFUSED_USER: Final = {
    "exec": "runs a program",
    "auth-provider": "runs a program",
    "client-certificate": "reads a file",
    "client-key": "reads a file",
    "tokenFile": "reads a file",
    "username": "is not spoken by API servers any more",
    "password": "is not spoken by API servers any more",
    "as": "acts as somebody else",
    "as-uid": "acts as somebody else",
    "as-groups": "acts as somebody else",
    "as-user-extra": "acts as somebody else",
}
_REFUSED_CLUSTER: Final = {
    "certificate-authority": "reads a file",
    "insecure-skip-tls-verify": "trusts anybody",
    "proxy-url": "goes through a proxy",
}


@dataclass(frozen=True, slots=True, repr=False)
class InlineCredentials:
    """The address of an API server and the credentials for it, read once."""

    server: str
    server_name: str | None
    authority: str  # PEM
    token: str  # empty if a client certificate is used
    pair: bytes  # PEM of certificate and key; empty if a token is used

    def __repr__(self) -> str:
        return f"InlineCredentials({self.server!r})"

    def forget(self) -> None:
        """Do nothing: a refused token is replaced by another Secret."""

    async def headers(self) -> dict[str, str]:
        """Return the Authorization header, or none if a client certificate authenticates us."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def tls(self, last: ssl.SSLContext | None = None) -> ssl.SSLContext:
        """Build the context for the API server, once. Raises Misconfigured."""
        if last is not None:
            return last
        try:
            context = ssl.create_default_context(cadata=self.authority)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.pair:
                _load(context, self.pair)
        except (OSError, ValueError) as error:
            msg = "kubeconfig: a certificate or key in it cannot be read"
            raise Misconfigured(msg) from error
        return context


def inline_credentials(content: bytes, schemes: tuple[str, ...] = ("https",)) -> InlineCredentials:
    """Parse the current context of a self-contained kubeconfig.

    Raises Misconfigured, naming the field; `schemes` are the allowed URL schemes of the server.
    """
    document = _document(content)
    context = _named(document, "contexts", "context", document.get("current-context"))
    cluster = _named(document, "clusters", "cluster", context.get("cluster"))
    user = _named(document, "users", "user", context.get("user"))
    _refuse("cluster", cluster, _REFUSED_CLUSTER)
    _refuse("user", user, _REFUSED_USER)
    authority = _decoded(cluster, "certificate-authority-data")
    if not authority and "http" not in schemes:
        # The system's CAs would verify any server in the world.
        _wrong("clusters[].cluster.certificate-authority-data is missing")
    return InlineCredentials(
        _server(cluster, schemes),
        _text(cluster, "tls-server-name") or None,
        _ascii(authority),
        _token(user),
        _pair(user),
    )


def _document(content: bytes) -> Mapping[str, Any]:
    if len(content) > _MAX_BYTES:
        _wrong(f"is larger than {_MAX_BYTES} bytes")
    try:
        node = single(content.decode(), Rules(aliases=False), "kubeconfig")
    except (NotYaml, UnicodeError):
        node = None
    document = None if node is None else plain(node)
    if not isinstance(document, dict):
        _wrong("is no kubeconfig")
    return document


def _named(document: Mapping[str, Any], field: str, inner: str, name: object) -> Mapping[str, Any]:
    entries = document.get(field)
    entries = entries if isinstance(entries, list) else []
    named = [one for one in entries if isinstance(one, dict) and one.get("name") == name]
    found = named[0].get(inner) if named and name is not None else None
    if not isinstance(found, dict):
        _wrong(f"{field} has no entry that the current context names")
    return found


def _refuse(which: str, found: Mapping[str, Any], refused: Mapping[str, str]) -> None:
    for name, why in refused.items():
        if found.get(name):
            _wrong(f"{which}s[].{which}.{name} is refused: it {why}")


def _server(cluster: Mapping[str, Any], schemes: tuple[str, ...]) -> str:
    server = _text(cluster, "server").rstrip("/")
    try:
        parts = urlsplit(server)
        usable = parts.scheme in schemes and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.username or parts.query or parts.fragment:
        _wrong(f"clusters[].cluster.server is no URL of {' or '.join(schemes)}")
    return server


def _token(user: Mapping[str, Any]) -> str:
    token = _text(user, "token")
    if len(token.split()) > 1 or not token.isascii():
        # A line break would add another header.
        _wrong("users[].user.token is more than one word")
    return token


def _pair(user: Mapping[str, Any]) -> bytes:
    certificate = _decoded(user, "client-certificate-data")
    key = _decoded(user, "client-key-data")
    if bool(certificate) != bool(key):
        _wrong("users[].user has a client certificate or a key without the other")
    if not certificate and not _text(user, "token"):
        _wrong("users[].user has neither a token nor a client certificate")
    return certificate + b"\n" + key if certificate else b""


def _decoded(found: Mapping[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(_text(found, name), validate=True)
    except (binascii.Error, ValueError):
        _wrong(f"{name} is not base64")


def _ascii(pem: bytes) -> str:
    try:
        return pem.decode("ascii")
    except UnicodeError:
        _wrong("certificate-authority-data is no PEM")


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        _wrong(f"{name} is no text")
    return "".join(value.splitlines()) if name.endswith("-data") else value.strip()


def _load(context: ssl.SSLContext, pair: bytes) -> None:
    """Load a certificate and its key from memory; `ssl` reads only files."""
    with _in_memory(pair) as path:
        # For an encrypted key OpenSSL would prompt at the terminal.
        context.load_cert_chain(path, password=lambda: "")


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    number = os.memfd_create("kubeconfig", os.MFD_CLOEXEC)
    try:
        os.write(number, content)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


def _wrong(why: str) -> NoReturn:
    msg = f"kubeconfig: {why}"
    # No cause: a parser's errors quote its input.
    raise Misconfigured(msg) from None
