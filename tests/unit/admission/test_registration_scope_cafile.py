from __future__ import annotations

import base64
from pathlib import Path

import pytest

from kube_sync.admission.registration_scope import CaFile
from kube_sync.certificates import issue, make_authority
from kube_sync.errors import Misconfigured

AUTHORITY = make_authority("one")


def test_without_a_file_there_is_nothing_to_say() -> None:
    assert CaFile(None).current() is None


def test_the_content_is_told_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    found = CaFile(str(file))
    other = "# Züri\n".encode() + make_authority("two").cert_pem
    for content in (AUTHORITY.cert_pem, AUTHORITY.cert_pem + other):
        file.write_bytes(content)
        assert base64.b64decode(found.current() or "") == content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        AUTHORITY.cert_pem[:-40],
        AUTHORITY.cert_pem + AUTHORITY.cert_pem[:-40],
        AUTHORITY.key_pem,
    ],
    ids=["empty", "text", "half", "one and a half", "key"],
)
def test_what_holds_no_certificates_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(content)
    with pytest.raises(Misconfigured, match=r"^admission.registration.ca_file: .* in PEM"):
        CaFile(str(file)).current()


def test_a_private_key_is_not_told_to_everybody(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    pair = issue(AUTHORITY, "tls", ("localhost",))
    file.write_bytes(pair.cert_pem + pair.key_pem)
    with pytest.raises(Misconfigured, match="private key"):
        CaFile(str(file)).current()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"no\.crt: No such file"):
        CaFile(str(tmp_path / "no.crt")).current()
