"""Who calls the webhook, by the certificate that the TLS handshake has verified.

The API server presents one where its AdmissionConfiguration gives it a kubeconfig for webhooks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

PeerCert = Mapping[str, Any]  # as ssl.SSLSocket.getpeercert() returns it


def is_known(certificate: PeerCert | None, names: Collection[str]) -> bool:
    """Tell whether a certificate has one of these names; without names anybody is known."""
    return not names or not names_of(certificate or {}).isdisjoint(names)


def names_of(certificate: PeerCert) -> set[str]:
    """Return the common name and the DNS names (RFC 5280, 4.1.2.6 and 4.2.1.6)."""
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    common = {value for key, value in subject if key == "commonName"}
    return common | {
        value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"
    }
