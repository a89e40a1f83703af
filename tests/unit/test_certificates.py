from __future__ import annotations

import os
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from kube_sync.certificates import Authority, issue, make_authority, write_certificates
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tls import client_context, server_context


async def _handshake(server: Path, authority: Path, host: str = "127.0.0.1") -> None:
    """Serve with `server`'s certificate and call it as `host`, trusting `authority` alone."""
    tls = server_context(str(server / "tls.crt"), str(server / "tls.key"))
    connector = aiohttp.TCPConnector(ssl=client_context(str(authority / "ca.crt")))
    async with (
        serving(web.Application(), ("127.0.0.1", 0), tls, grace=0.05) as port,
        aiohttp.ClientSession(connector=connector) as session,
        session.get(f"https://127.0.0.1:{port}/", server_hostname=host),
    ):
        pass


@pytest.mark.parametrize("host", ["127.0.0.1", "webhook.kube-sync.svc"])
async def test_the_chain_verifies_in_a_handshake_for_every_host(tmp_path: Path, host: str) -> None:
    write_certificates(tmp_path, ["webhook.kube-sync.svc", "127.0.0.1"])
    await _handshake(tmp_path, tmp_path, host)


async def test_another_host_is_refused(tmp_path: Path) -> None:
    write_certificates(tmp_path, ["127.0.0.1"])
    with pytest.raises(aiohttp.ClientConnectorCertificateError, match="mismatch"):
        await _handshake(tmp_path, tmp_path, "elsewhere.example")


async def test_another_authority_is_refused(tmp_path: Path) -> None:
    write_certificates(tmp_path / "one", ["127.0.0.1"])
    write_certificates(tmp_path / "two", ["127.0.0.1"])
    with pytest.raises(aiohttp.ClientConnectorCertificateError, match="verify failed"):
        await _handshake(tmp_path / "one", tmp_path / "two")


async def test_a_server_certificate_cannot_sign_another(tmp_path: Path) -> None:
    authority = make_authority("ca")
    leaf = issue(authority, "leaf", ["leaf"])
    forged = issue(Authority(leaf.cert_pem, leaf.key_pem), "forged", ["127.0.0.1"])
    (tmp_path / "ca.crt").write_bytes(authority.cert_pem)
    (tmp_path / "tls.crt").write_bytes(forged.cert_pem + leaf.cert_pem)
    (tmp_path / "tls.key").write_bytes(forged.key_pem)
    with pytest.raises(aiohttp.ClientConnectorCertificateError, match="verify failed"):
        await _handshake(tmp_path, tmp_path)


def test_only_the_authority_says_that_it_may_sign() -> None:
    authority = make_authority("ca")
    may_sign = [
        x509.load_pem_x509_certificate(pair.cert_pem)
        .extensions.get_extension_for_class(x509.BasicConstraints)
        .value.ca
        for pair in (authority, issue(authority, "leaf", ["leaf"]))
    ]
    assert may_sign == [True, False]


async def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    authority = make_authority("ca")
    expired = issue(authority, "x", ["127.0.0.1"], timedelta(minutes=-1))
    (tmp_path / "ca.crt").write_bytes(authority.cert_pem)
    (tmp_path / "tls.crt").write_bytes(expired.cert_pem)
    (tmp_path / "tls.key").write_bytes(expired.key_pem)
    with pytest.raises(aiohttp.ClientConnectorCertificateError, match="expired"):
        await _handshake(tmp_path, tmp_path)


def test_a_certificate_is_valid_already_on_a_clock_that_is_late() -> None:
    cert = x509.load_pem_x509_certificate(make_authority("ca").cert_pem)
    assert cert.not_valid_before_utc < datetime.now(UTC) - timedelta(minutes=4)


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        written = write_certificates(tmp_path, ["localhost"])
    finally:
        os.umask(before)
    assert [file.name for file in written] == ["ca.key", "ca.crt", "tls.key", "tls.crt"]
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in written}
    assert (modes["ca.key"], modes["tls.key"]) == (0o600, 0o600)


def test_an_existing_certificate_is_not_overwritten(tmp_path: Path) -> None:
    write_certificates(tmp_path, ["localhost"])
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(FileExistsError):
        write_certificates(tmp_path, ["localhost"])
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_an_existing_key_alone_is_not_overwritten_either(tmp_path: Path) -> None:
    write_certificates(tmp_path, ["localhost"])
    (tmp_path / "tls.crt").unlink()
    key = (tmp_path / "tls.key").read_bytes()
    with pytest.raises(FileExistsError):
        write_certificates(tmp_path, ["localhost"])
    assert (tmp_path / "tls.key").read_bytes() == key


async def test_an_existing_authority_signs_again(tmp_path: Path) -> None:
    """So that clients that trust it go on working when the certificate is renewed."""
    write_certificates(tmp_path, ["127.0.0.1"])
    authority = (tmp_path / "ca.crt").read_bytes()
    (tmp_path / "tls.crt").unlink()
    (tmp_path / "tls.key").unlink()
    written = write_certificates(tmp_path, ["127.0.0.1"])
    assert [file.name for file in written] == ["tls.key", "tls.crt"]
    assert (tmp_path / "ca.crt").read_bytes() == authority
    await _handshake(tmp_path, tmp_path)


def test_a_host_longer_than_a_common_name_is_served_all_the_same(tmp_path: Path) -> None:
    host = f"{'a' * 60}.{'b' * 60}.svc.cluster.local"
    write_certificates(tmp_path, [host])
    cert = x509.load_pem_x509_certificate((tmp_path / "tls.crt").read_bytes())
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [host]
    (name,) = cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == host[:64]


def test_an_authority_with_another_kind_of_key_is_not_used() -> None:
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with pytest.raises(TypeError, match="not an elliptic curve key"):
        issue(Authority(make_authority("ca").cert_pem, pem), "x", ["x"])


def test_the_key_pair_loads_as_one(tmp_path: Path) -> None:
    write_certificates(tmp_path, ["localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
