from __future__ import annotations

from pathlib import Path

import pytest

from kube_sync.config import Settings, check_stream, load_settings, parse_listen
from kube_sync.errors import Misconfigured


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def _load(file: Path, text: str) -> Settings:
    file.write_text(text)
    return load_settings(str(file), {})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9400", ("127.0.0.1", 9400)),
        ("localhost:0", ("localhost", 0)),
        (":8443", ("0.0.0.0", 8443)),  # noqa: S104 - nothing listens here
        ("[::1]:65535", ("::1", 65535)),
        ("[::ffff:127.0.0.1]:1", ("::ffff:127.0.0.1", 1)),
    ],
)
def test_an_address_is_split_into_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_listen("x", text) == address


@pytest.mark.parametrize(
    "text", ["", "9400", "a", "a:", "a:b", "a:-1", "a:65536", "::1:80", "[::1]", "[x]:1", "a b:1"]
)
def test_anything_else_is_no_address(text: str) -> None:
    with pytest.raises(Misconfigured, match=r'^some\.listen: ".*" is not host:port, as in'):
        parse_listen("some.listen", text)


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:9400", "127.8.9.1:1", "localhost:9400", "[::1]:9400"]
)
def test_a_stream_on_this_machine_alone_may_do_without_token_and_certificate(
    file: Path, listen: str
) -> None:
    check_stream(_load(file, f"decisions: {{listen: '{listen}'}}").decisions)


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:9400", ":9400", "10.0.0.1:1", "[::]:1", "replicator:1"]
)
@pytest.mark.parametrize(
    ("have", "missing"),
    [
        ("", "token_file"),
        ("token_file: /t", "cert_file"),
        ("cert_file: /c, key_file: /k", "token_file"),
    ],
)
def test_a_stream_for_others_needs_token_and_certificate(
    file: Path, listen: str, have: str, missing: str
) -> None:
    decisions = _load(file, f"decisions: {{listen: '{listen}', {have}}}").decisions
    with pytest.raises(Misconfigured) as raised:
        check_stream(decisions)
    assert str(raised.value) == (
        f"decisions.{missing}: needed, since decisions.listen ({listen}) is not a loopback "
        "address and the stream shows what runs where"
    )


def test_a_stream_for_others_with_token_and_certificate_is_served(file: Path) -> None:
    text = "decisions: {listen: ':9400', token_file: /t, cert_file: /c, key_file: /k}"
    check_stream(_load(file, text).decisions)


@pytest.mark.parametrize(
    ("have", "missing"),
    [
        ("", "token_file"),
        ("token_file: /t, ", "basis.cert_file"),
    ],
)
@pytest.mark.parametrize("listen", ["127.0.0.1:9408", ":9408"])
def test_port_of_the_basis_needs_token_and_certificate(
    file: Path, listen: str, have: str, missing: str
) -> None:
    text = f"decisions: {{{have}basis: {{listen: '{listen}'}}}}"
    with pytest.raises(Misconfigured) as raised:
        check_stream(_load(file, text).decisions)
    expected = f"decisions.{missing}: needed, since decisions.basis.listen is set"
    assert str(raised.value) == expected


def test_port_of_the_basis_with_token_and_certificate_is_served(file: Path) -> None:
    basis = "{listen: ':9408', cert_file: /c, key_file: /k}"
    check_stream(_load(file, f"decisions: {{token_file: /t, basis: {basis}}}").decisions)


def test_the_status_for_others_needs_a_token(file: Path) -> None:
    with pytest.raises(Misconfigured) as raised:
        _load(file, "remediate: {listen: ':9404'}")
    assert str(raised.value) == (
        "remediate.token_file: needed, since remediate.listen (:9404) is not a loopback address "
        "and its clients may approve changes"
    )
    assert _load(file, "remediate: {listen: ':9404', token_file: /t}").remediate.token_file == "/t"


@pytest.mark.parametrize(
    ("have", "missing"),
    [
        ("", "token_file"),
        ("token_file: /t, ", "cert_file"),
        ("cert_file: /c, key_file: /k, ", "token_file"),
    ],
)
def test_a_generator_for_others_needs_token_and_certificate(
    file: Path, have: str, missing: str
) -> None:
    with pytest.raises(Misconfigured) as raised:
        _load(file, f"remediate: {{argocd: {{{have}listen: ':9409'}}}}")
    assert str(raised.value) == (
        f"remediate.argocd.{missing}: needed, since remediate.argocd.listen (:9409) is not a "
        "loopback address and answers show what runs where"
    )


def test_a_generator_on_this_machine_alone_needs_neither(file: Path) -> None:
    text = "remediate: {argocd: {listen: 'localhost:9409'}}"
    assert _load(file, text).remediate.argocd.listen == "localhost:9409"


def test_a_generator_has_both_halves_of_its_certificate_or_none(file: Path) -> None:
    with pytest.raises(Misconfigured, match=r"^remediate\.argocd\.key_file: needed, since"):
        _load(file, "remediate: {argocd: {cert_file: /c}}")
