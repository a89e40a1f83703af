from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.certificates import make_authority, write_certificates
from kube_sync.errors import Misconfigured
from kube_sync.runtime.tls import client_context, expiry, server_context

_AUTHORITY = make_authority("authority")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    write_certificates(folder, ["localhost"])
    return folder


def test_a_missing_certificate_is_named(tmp_path: Path, files: Path) -> None:
    with pytest.raises(Misconfigured, match=r"^.*/gone\.crt: No such file"):
        server_context(str(tmp_path / "gone.crt"), str(files / "tls.key"))


def test_a_missing_key_is_named(tmp_path: Path, files: Path) -> None:
    with pytest.raises(Misconfigured, match=r"^.*/gone\.key: No such file"):
        server_context(str(files / "tls.crt"), str(tmp_path / "gone.key"))


def test_a_missing_authority_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"^.*/gone\.crt: No such file"):
        client_context(str(tmp_path / "gone.crt"))


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=rf"^{tmp_path}: Is a directory"):
        client_context(str(tmp_path))


def test_a_key_of_another_certificate_names_both_files(files: Path) -> None:
    with pytest.raises(Misconfigured, match=r"tls\.crt and .*ca\.key are not a certificate"):
        server_context(str(files / "tls.crt"), str(files / "ca.key"))


def test_a_clients_certificate_and_key_that_do_not_fit_name_both_files(files: Path) -> None:
    ca, cert, key = (str(files / name) for name in ("ca.crt", "tls.crt", "ca.key"))
    with pytest.raises(Misconfigured, match=r"tls\.crt and .*ca\.key are not a certificate"):
        client_context(ca, cert, key)
    with pytest.raises(Misconfigured, match=r"^.*/gone\.crt: No such file"):
        client_context(ca, str(files / "gone.crt"), key)


def test_text_that_is_no_certificate_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("hello")
    with pytest.raises(Misconfigured, match=r"ca\.crt holds no certificate authority"):
        client_context(str(tmp_path / "ca.crt"))


def test_a_client_verifies_and_trusts_the_given_authority_alone(files: Path) -> None:
    context = client_context(str(files / "ca.crt"))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    (trusted,) = context.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "kube-sync authority"),),)


def test_without_an_authority_the_machines_own_are_asked() -> None:
    assert client_context(None).verify_mode is ssl.CERT_REQUIRED


def test_nothing_below_tls_1_2_is_spoken(files: Path) -> None:
    contexts = (
        server_context(str(files / "tls.crt"), str(files / "tls.key")),
        client_context(str(files / "ca.crt")),
    )
    assert [c.minimum_version for c in contexts] == [ssl.TLSVersion.TLSv1_2] * 2


@given(
    name=st.text("abcö", min_size=1, max_size=64),
    days=st.one_of(st.just(1), st.integers(1, 365 * 300)),
    now=st.datetimes(datetime(1960, 1, 1), datetime(2600, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - its timezone follows
)
def test_a_certificate_expires_when_the_cryptography_library_says(
    name: str, days: int, now: datetime
) -> None:
    pem = make_authority(name, timedelta(days=days), now).cert_pem
    assert expiry(pem) == x509.load_pem_x509_certificate(pem).not_valid_after_utc
    assert expiry(b"text before\n" + pem + b"-----BEGIN CERTIFICATE-----\nof another") == expiry(
        pem
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----",
        b"-----BEGIN CERTIFICATE-----\nMAA\n-----END CERTIFICATE-----",
        b"-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_certificate_has_no_expiry(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        expiry(content)


@given(st.data())
def test_a_damaged_certificate_raises_nothing_but_value_errors(data: st.DataObject) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(_AUTHORITY.cert_pem.decode()))
    der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    damaged = der[: data.draw(st.integers(0, len(der)))]
    with suppress(ValueError):
        assert expiry(ssl.DER_cert_to_PEM_cert(bytes(damaged)).encode()).tzinfo is UTC
