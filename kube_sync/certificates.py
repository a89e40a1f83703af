"""A self-made certificate authority, for laptops, tests and first installs.

Invariant: every certificate names the hosts it serves, private keys are written readable by
their owner only, and an existing pair is never overwritten. It knows nothing of Kubernetes.
Production clusters let cert-manager or their own authority make these files instead.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=365)
# Clocks of two machines differ: a certificate that starts in the future is refused.
_BACKDATE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    cert_pem: bytes
    key_pem: bytes


@dataclass(frozen=True, slots=True)
class Authority(KeyPair):
    """A key pair that may sign others."""


def make_authority(
    common_name: str, lifetime: timedelta = LIFETIME, now: datetime | None = None
) -> Authority:
    """Make a self-signed certificate authority (P-256), valid from `now` on."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    cert = (
        _builder(name, name, key.public_key(), lifetime, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(_cert_pem(cert), _key_pem(key))


def issue(
    authority: Authority,
    common_name: str,
    hosts: Sequence[str],
    lifetime: timedelta = LIFETIME,
    now: datetime | None = None,
) -> KeyPair:
    """Issue a certificate for `hosts` (DNS names or IP addresses), as server and as client."""
    signer = x509.load_pem_x509_certificate(authority.cert_pem)
    signing_key = serialization.load_pem_private_key(authority.key_pem, password=None)
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        msg = "the authority's key is not an elliptic curve key"
        raise TypeError(msg)
    key = ec.generate_private_key(ec.SECP256R1())
    roles = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    cert = (
        _builder(_name(common_name), signer.subject, key.public_key(), lifetime, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(roles), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()),
            critical=False,
        )
        .sign(signing_key, hashes.SHA256())
    )
    return KeyPair(_cert_pem(cert), _key_pem(key))


def write_certificates(folder: Path, hosts: Sequence[str]) -> list[Path]:
    """Write ca.crt, ca.key, tls.crt and tls.key for `hosts`; an existing authority is reused.

    Returns the files written. Raises FileExistsError when tls.crt exists already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "tls.crt").exists():
        raise FileExistsError(folder / "tls.crt")
    written: list[Path] = []
    if (folder / "ca.key").exists():
        authority = Authority((folder / "ca.crt").read_bytes(), (folder / "ca.key").read_bytes())
    else:
        authority = make_authority("kube-sync authority")
        written += _write_pair(folder, "ca", authority)
    # A common name holds 64 characters at most; what clients verify are the hosts.
    written += _write_pair(folder, "tls", issue(authority, hosts[0][:64], hosts))
    return written


def _write_pair(folder: Path, stem: str, pair: KeyPair) -> list[Path]:
    key, cert = folder / f"{stem}.key", folder / f"{stem}.crt"
    # Created with its final mode, so that the key is never readable by others, not even briefly.
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pair.key_pem)
    cert.write_bytes(pair.cert_pem)
    return [key, cert]


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    lifetime: timedelta,
    now: datetime | None,
) -> x509.CertificateBuilder:
    now = now or datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + lifetime)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _cert_pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
