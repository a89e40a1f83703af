from __future__ import annotations

import base64
import builtins
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.certificates import issue, make_authority
from kube_sync.errors import Misconfigured
from kube_sync.kube.inline import InlineCredentials, inline_credentials

SERVER = "https://east.example:6443"


def data(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def document(user: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    found = {"server": SERVER, "certificate-authority-data": data("PEM"), **cluster}
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": found}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
    }


def read(found: object) -> InlineCredentials:
    return inline_credentials(yaml.safe_dump(found).encode())


async def test_a_kubeconfig_with_a_token_says_where_and_who() -> None:
    found = read(document(None, server=SERVER + "/", **{"tls-server-name": "api"}))
    assert found.server == SERVER
    assert found.server_name == "api"
    assert found.authority == "PEM"
    assert await found.headers() == {"Authorization": "Bearer t"}
    found.forget()
    assert await found.headers() == {"Authorization": "Bearer t"}


async def test_a_certificate_speaks_without_a_header() -> None:
    user = {"client-certificate-data": data("C"), "client-key-data": data("K")}
    found = read(document(user))
    assert await found.headers() == {}
    assert found.pair == b"C\nK"
    assert found.server_name is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("exec", {"command": "sh"}),
        ("auth-provider", {"name": "gcp"}),
        ("client-certificate", "/etc/passwd"),
        ("client-key", "/etc/passwd"),
        ("tokenFile", "/etc/passwd"),
        ("username", "root"),
        ("password", "hush"),
        ("as", "system:admin"),
        ("as-uid", "0"),
        ("as-groups", ["system:masters"]),
        ("as-user-extra", {"a": ["b"]}),
    ],
)
def test_what_a_user_may_not_ask_for_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(Misconfigured, match=rf"^kubeconfig: users\[\]\.user\.{name} is refused"):
        read(document({"token": "t", name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("certificate-authority", "/etc/passwd"),
        ("insecure-skip-tls-verify", True),
        ("proxy-url", "http://proxy"),
    ],
)
def test_what_a_cluster_may_not_ask_for_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(Misconfigured, match=rf"clusters\[\]\.cluster\.{name} is refused"):
        read(document(None, **{name: value}))


@pytest.mark.parametrize(
    "server",
    [
        "http://east.example",
        "https://",
        "https://user:pass@east.example",
        "https://east.example/?a=b",
        "https://east.example/#a",
        "https://east.example:port",
        "https://[::1",
        "file:///etc/passwd",
        "",
        7,
    ],
)
def test_a_server_that_is_no_plain_https_url_is_refused(server: object) -> None:
    with pytest.raises(Misconfigured, match="server"):
        read(document(server=server))


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ({}, "neither a token nor"),
        ({"token": "a\nAuthorization: b"}, "more than one word"),
        ({"token": "ü"}, "more than one word"),
        ({"token": 7}, "token is no text"),
        ({"client-certificate-data": data("C")}, "without the other"),
        ({"client-key-data": data("K")}, "without the other"),
        ({"client-certificate-data": "?", "client-key-data": data("K")}, "not base64"),
        ({"client-certificate-data": "ü", "client-key-data": data("K")}, "not base64"),
    ],
)
def test_a_user_without_usable_credentials_is_refused(user: dict[str, Any], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        read(document(user))


def test_a_server_without_an_authority_of_its_own_is_refused() -> None:
    """The machine's own authorities vouch for any server in the world."""
    with pytest.raises(Misconfigured, match="certificate-authority-data is missing"):
        read(document(None, **{"certificate-authority-data": None}))


def test_an_authority_that_is_no_pem_is_refused() -> None:
    with pytest.raises(Misconfigured, match="is no PEM"):
        read(document(None, **{"certificate-authority-data": data(b"\xff")}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"- a",
        b"text",
        b"a: [",
        b"\xff\xfe\x00",
        b"!!python/object/apply:os.system ['true']",
        b"a: &a [x]\nb: [*a, *a]",
        b"a" * (32 * 1024 + 1),
        b"[" * 30000,  # minutes, for who would read it to its end
        b"{a: " * 8000,
    ],
)
def test_what_is_no_kubeconfig_is_refused(content: bytes) -> None:
    with pytest.raises(Misconfigured, match=r"^kubeconfig: is "):
        inline_credentials(content)


@pytest.mark.parametrize(
    "change",
    [
        {"current-context": None},
        {"current-context": "other"},
        {"contexts": None},
        {"contexts": "c"},
        {"contexts": ["c"]},
        {"contexts": [{"name": "c", "context": "k"}]},
        {"clusters": [{"name": "k"}]},
        {"users": []},
    ],
)
def test_a_kubeconfig_without_what_its_context_names_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match="has no entry that the current context names"):
        read(document() | change)


def test_no_content_is_told_by_an_error_or_a_representation() -> None:
    secret = "hush-hush"
    with pytest.raises(Misconfigured) as caught:
        read(document({"token": f"{secret} x", "client-key-data": secret}))
    assert secret not in str(caught.value)
    assert caught.value.__suppress_context__
    assert secret not in repr(read(document({"token": secret})))


def test_its_authority_alone_is_trusted() -> None:
    authority = make_authority("spoke")
    found = read(document(None, **{"certificate-authority-data": data(authority.cert_pem)}))
    context = found.tls()
    assert len(context.get_ca_certs()) == 1
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_certificate_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(Misconfigured, match="cannot be read"):
        read(document()).tls()


def by_certificate(certificate: bytes, key: bytes) -> InlineCredentials:
    pair = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
    authority = data(make_authority("spoke").cert_pem)
    return read(document(pair, **{"certificate-authority-data": authority}))


def test_a_client_certificate_is_loaded_by_way_of_memory_alone() -> None:
    pair = issue(make_authority("spoke"), "hub", [])
    before = set(Path("/proc/self/fd").iterdir())
    by_certificate(pair.cert_pem, pair.key_pem).tls()
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_key_of_another_certificate_is_refused() -> None:
    authority = make_authority("spoke")
    one, other = issue(authority, "a", []), issue(authority, "b", [])
    with pytest.raises(Misconfigured, match="cannot be read"):
        by_certificate(one.cert_pem, other.key_pem).tls()


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password() -> None:
    pair = issue(make_authority("spoke"), "hub", [])
    key = serialization.load_pem_private_key(pair.key_pem, None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"hush"),
    )
    with pytest.raises(Misconfigured, match="cannot be read"):
        by_certificate(pair.cert_pem, encrypted).tls()


@given(st.binary(max_size=300))
def test_whatever_comes_is_read_or_refused(content: bytes) -> None:
    with pytest.raises(Misconfigured):
        inline_credentials(content)


def test_reading_opens_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError

    monkeypatch.setattr(builtins, "open", refuse)
    assert read(document()).server == SERVER
