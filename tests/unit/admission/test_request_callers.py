from __future__ import annotations

from kube_sync.admission.request import PeerCert, is_known, names_of

CERTIFICATE: PeerCert = {
    "subject": ((("organizationName", "acme"),), (("commonName", "front-proxy"),)),
    "subjectAltName": (("DNS", "apiserver.example"), ("IP Address", "10.0.0.1")),
}


def test_a_name_is_the_common_name_or_a_dns_name() -> None:
    assert names_of(CERTIFICATE) == {"front-proxy", "apiserver.example"}


def test_one_name_is_enough() -> None:
    assert is_known(CERTIFICATE, {"other", "front-proxy"})
    assert is_known(CERTIFICATE, {"apiserver.example"})


def test_an_organization_and_an_address_are_no_names() -> None:
    assert not is_known(CERTIFICATE, {"acme", "10.0.0.1"})


def test_without_names_anybody_is_known() -> None:
    assert is_known(CERTIFICATE, ())
    assert is_known(None, ())


def test_nobody_has_no_name() -> None:
    assert not is_known(None, {"front-proxy"})
    assert not is_known({}, {"front-proxy"})
