"""Plans the content of Secrets from their current content.

Invariant: valid content stays; a Secret of another owner is used and not changed; OPA learns
a token before anybody uses it (its Secret comes first), and a certificate is signed by an
authority that was announced before. A second plan right away is empty. Generates keys and
tokens, and makes no requests.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from cryptography import x509

from kube_sync.certificates import Authority, KeyPair, issue, make_authority
from kube_sync.errors import Terminal
from kube_sync.provisioning.authorization import ARCHIVE, archive
from kube_sync.provisioning.rotation import Pace, Rotating, rotated
from kube_sync.provisioning.secrets import OPAQUE, TLS, Content
from kube_sync.provisioning.wanted import (
    ACCESS,
    AUTHORITY,
    DECISIONS,
    GENERATOR,
    NOTES,
    OPA_TOKENS,
    REMEDIATION,
    Certificate,
    Wanted,
)

_DAY: Final = 86400.0
# Far longer than the kubelet needs to update a volume from its Secret.
_OVERLAP: Final = 1800.0
_TOKENS: Final = Pace(30 * _DAY, _OVERLAP)
_CERTIFICATE: Final = 90 * _DAY
_AUTHORITY_LIFETIME: Final = 3 * 365 * _DAY
_AUTHORITIES: Final = Pace(_AUTHORITY_LIFETIME / 2, _OVERLAP)
_TOKEN_SECRETS: Final = (*OPA_TOKENS.values(), DECISIONS, REMEDIATION)

Secrets = Mapping[str, Content]


def planned(held: Secrets, wanted: Wanted, now: float) -> dict[str, Content]:
    """Return the Secrets to write, in this order. Raises Terminal."""
    tokens = {name: _token(name, held, now) for name in _TOKEN_SECRETS}
    plan = _access(held, wanted, tokens, now)
    plan |= {name: content for name, content in tokens.items() if content != held.get(name)}
    plan |= _keys(held.get(NOTES), now)
    if wanted.certificates:
        plan |= _certificates(held, wanted, now)
    return plan


def planned_generator(
    own: Content | None, sent: Content | None, now: float
) -> tuple[Content | None, Content | None]:
    """Return the Secrets of the generator's token to write, None: it stays. Raises Terminal.

    Argo CD sends `token` of its Secret (`sent`); the remediator accepts each line of `token` in its
    `own`, so that a rotation loses nothing while the kubelet has not updated the file yet.
    """
    if sent is not None and sent.since is None:  # somebody else's
        given = _token(GENERATOR, {GENERATOR: sent}, now).data["token"]
        token, sent_now = Content({"token": given}), sent
    else:
        first = own and replace(own, data={**own.data, "token": _line(own.data.get("token", b""))})
        token = _token(GENERATOR, {} if first is None else {GENERATOR: first}, now)
        data = {"token": token.data["token"]}
        is_same = sent is not None and sent.data == data
        sent_now = sent if sent is not None and is_same else Content(data, OPAQUE, now)
    own_now = _accepting(own, token, now)
    return None if own_now == own else own_now, None if sent_now == sent else sent_now


def _accepting(own: Content | None, token: Content, now: float) -> Content:
    """Return the Secret of who accepts a token, and those announced and used before it."""
    if own is not None and own.since is None:
        return own
    keys = ("token", "next", "previous")
    lines = b"\n".join(token.data[key] for key in keys if key in token.data)
    since = now if own is None else own.since
    return Content({**token.data, "token": lines}, OPAQUE, token.since or since)


def _line(text: bytes) -> bytes:
    return next(iter(text.split()), b"")


def names(wanted: Wanted) -> tuple[str, ...]:
    """Return the Secrets to read for a plan."""
    certificates = [certificate.secret for certificate in wanted.certificates]
    authority = [AUTHORITY] if certificates else []
    return (ACCESS, *_TOKEN_SECRETS, NOTES, *authority, *certificates)


def _token(name: str, held: Secrets, now: float) -> Content:
    found = held.get(name)
    if found is None:
        return _token_content(Rotating(_new_token(), now))
    if not found.data.get("token"):
        if found.since is None:
            msg = f"Secret {name} has no key token"
            raise Terminal(msg)
        return _token_content(Rotating(_new_token(), now))
    if found.since is None:
        return found
    rotating = Rotating(
        found.data["token"], found.since, found.data.get("next"), found.data.get("previous")
    )
    return _token_content(rotated(rotating, _TOKENS, now, _new_token))


def _keys(found: Content | None, now: float) -> dict[str, Content]:
    """Return a new key of notes if there is none: it lives as long as what it has sealed."""
    if found is not None and found.data.get("keys"):
        return {}
    if found is not None and found.since is None:
        msg = f"Secret {NOTES} has no key keys"
        raise Terminal(msg)
    return {NOTES: Content({"keys": _new_token()}, OPAQUE, now)}


def _new_token() -> bytes:
    return secrets.token_urlsafe(32).encode()


def _token_content(token: Rotating[bytes]) -> Content:
    data = {"token": token.current, "next": token.following, "previous": token.previous}
    return Content({k: v for k, v in data.items() if v is not None}, OPAQUE, token.since)


def _access(held: Secrets, wanted: Wanted, tokens: Secrets, now: float) -> dict[str, Content]:
    """Return OPA's authorization: digests of tokens by role, and the roles' permissions."""
    found = held.get(ACCESS)
    if found is not None and found.since is None:
        return {}
    digests = {
        hashlib.sha256(value.strip()).hexdigest(): role
        for role, name in OPA_TOKENS.items()
        for key in ("token", "next", "previous")
        if (value := tokens[name].data.get(key))
    }
    access = {"tokens": digests, "roots": wanted.roots, "decisions": wanted.decisions}
    document = msgspec.json.encode({"system": {"access": access}}, order="sorted")
    data = {ARCHIVE: archive(document)}
    if found is not None and found.data == data:
        return {}
    return {ACCESS: Content(data, OPAQUE, now)}


def _certificates(held: Secrets, wanted: Wanted, now: float) -> dict[str, Content]:
    kept = held.get(AUTHORITY)
    authorities = _authorities(kept, now)
    content = _authority_content(authorities)
    ours = kept is None or kept.since is not None
    plan = {AUTHORITY: content} if ours and content != kept else {}
    bundle = b"".join(authority.cert_pem for authority in authorities.good)
    for certificate in wanted.certificates:
        found = held.get(certificate.secret)
        if found is not None and found.since is None:
            continue
        made = _server(certificate, found, authorities.current, bundle, now)
        if made != found:
            plan[certificate.secret] = made
    return plan


def _authorities(found: Content | None, now: float) -> Rotating[Authority]:
    current = None if found is None else _authority(found.data, "tls")
    if found is None or current is None:
        if found is not None and found.since is None:
            msg = f"Secret {AUTHORITY} has no tls.crt and tls.key"
            raise Terminal(msg)
        return Rotating(_new_authority(now), now)
    held = Rotating(
        current,
        now if found.since is None else found.since,
        _authority(found.data, "next"),
        _authority(found.data, "previous"),
    )
    # A certificate of another owner is renewed by that owner.
    return (
        held
        if found.since is None
        else rotated(held, _AUTHORITIES, now, lambda: _new_authority(now))
    )


def _authority(data: Mapping[str, bytes], stem: str) -> Authority | None:
    cert, key = data.get(f"{stem}.crt"), data.get(f"{stem}.key")
    return Authority(cert, key) if cert and key else None


def _new_authority(now: float) -> Authority:
    lifetime = timedelta(seconds=_AUTHORITY_LIFETIME)
    return make_authority("kube-sync authority", lifetime, datetime.fromtimestamp(now, UTC))


def _authority_content(authorities: Rotating[Authority]) -> Content:
    data: dict[str, bytes] = {}
    pairs = (authorities.current, authorities.following, authorities.previous)
    for stem, pair in zip(("tls", "next", "previous"), pairs, strict=True):
        if pair is not None:
            data |= {f"{stem}.crt": pair.cert_pem, f"{stem}.key": pair.key_pem}
    return Content(data, TLS, authorities.since)


def _server(
    certificate: Certificate, found: Content | None, authority: Authority, bundle: bytes, now: float
) -> Content:
    data = {} if found is None else dict(found.data)
    since = found.since if found is not None and found.since is not None else now
    if not _is_good(data, certificate, authority, now):
        pair = _issued(certificate, authority, now)
        data |= {"tls.crt": pair.cert_pem, "tls.key": pair.key_pem}
        since = now
    return Content(data | {"ca.crt": bundle}, TLS, since)


def _issued(certificate: Certificate, authority: Authority, now: float) -> KeyPair:
    try:
        lifetime = timedelta(seconds=_CERTIFICATE)
        begin = datetime.fromtimestamp(now, UTC)
        return issue(authority, certificate.hosts[0], certificate.hosts, lifetime, begin)
    except (TypeError, ValueError):  # the error may quote the key
        msg = f"Secret {AUTHORITY}: tls.crt and tls.key are no authority with an elliptic curve key"
        raise Terminal(msg) from None


def _is_good(
    data: Mapping[str, bytes], certificate: Certificate, authority: Authority, now: float
) -> bool:
    """Return whether a certificate is of this authority, for these hosts, with a third to live."""
    if not data.get("tls.key"):
        return False
    try:
        found = x509.load_pem_x509_certificate(data.get("tls.crt", b""))
        signer: Any = x509.load_pem_x509_certificate(authority.cert_pem)
        found.verify_directly_issued_by(signer)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is replaced
        return False
    hosts = {str(name.value) for name in names}
    left = found.not_valid_after_utc.timestamp() - now
    return left >= _CERTIFICATE / 3 and hosts == set(certificate.hosts)
