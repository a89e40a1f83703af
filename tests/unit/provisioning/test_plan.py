from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from kube_sync.certificates import Authority, issue, make_authority
from kube_sync.config import Settings
from kube_sync.errors import Terminal
from kube_sync.provisioning.authorization import ARCHIVE
from kube_sync.provisioning.plan import names, planned, planned_generator
from kube_sync.provisioning.secrets import TLS, Content
from kube_sync.provisioning.wanted import (
    ACCESS,
    AUTHORITY,
    DECISIONS,
    NOTES,
    REMEDIATION,
    Certificate,
    wanted,
)

WANTED = wanted(Settings())
REPLICATOR, OPA_TLS = "kube-sync-opa-replicator", "kube-sync-opa-tls"
DAY = 86400.0
NOW = 2_000_000_000.0


class World:
    """The Secrets of a cluster; a run writes what is planned."""

    def __init__(self, held: Mapping[str, Content] | None = None) -> None:
        self.held = dict(held or {})
        self.now = NOW

    def run(self, after: float = 0.0) -> list[str]:
        self.now += after
        plan = planned(self.held, WANTED, self.now)
        self.held |= plan
        return list(plan)

    def access(self) -> dict[str, str]:
        document = json.loads(unpacked(self.held[ACCESS].data[ARCHIVE])["data.json"])
        tokens: dict[str, str] = document["system"]["access"]["tokens"]
        return tokens

    def role(self, token: bytes) -> str | None:
        return self.access().get(hashlib.sha256(token).hexdigest())


def unpacked(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as bundle:
        files = ((name, bundle.extractfile(name)) for name in bundle.getnames())
        return {name: file.read() for name, file in files if file is not None}


def verified(secret: Content, host: str) -> bool:
    """Tell whether a client that trusts its ca.crt is content with its certificate."""
    leaf = x509.load_pem_x509_certificate(secret.data["tls.crt"])
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    for authority in x509.load_pem_x509_certificates(secret.data["ca.crt"]):
        try:
            leaf.verify_directly_issued_by(authority)
        except Exception:  # noqa: BLE001, S112 - by another one
            continue
        return host in [str(name.value) for name in names]
    return False


def test_an_empty_namespace_gets_everything_and_opa_is_told_first() -> None:
    world = World()
    written = world.run()
    assert written[0] == ACCESS
    assert set(written) == set(names(WANTED))
    assert verified(world.held[OPA_TLS], "kube-sync-opa.kube-sync.svc")
    assert verified(world.held["kube-sync-admission-tls"], "kube-sync-admission.kube-sync.svc")
    assert world.held[OPA_TLS].type == TLS
    assert world.role(world.held[REPLICATOR].data["token"]) == "replicator"


def test_planned_again_nothing_is_left_to_do() -> None:
    world = World()
    world.run()
    assert world.run() == []
    assert world.run(after=29 * DAY) == []


def test_a_secret_that_was_deleted_is_made_again_and_no_other_changes() -> None:
    world = World()
    world.run()
    del world.held[DECISIONS]
    assert world.run() == [DECISIONS]
    del world.held[REPLICATOR]
    assert world.run() == [ACCESS, REPLICATOR]


def test_opa_is_given_digests_of_tokens_and_no_token() -> None:
    world = World()
    world.run()
    world.run(after=30 * DAY)
    files = unpacked(world.held[ACCESS].data[ARCHIVE]).values()
    tokens = [
        value
        for content in world.held.values()
        for name, value in content.data.items()
        if name in ("token", "next")
    ]
    assert len(tokens) > 2
    for token in tokens:
        assert world.role(token) is not None or token not in b"".join(files)
        assert not any(token in file for file in files)


def test_the_port_of_the_remediator_has_a_token_of_its_own_that_opa_does_not_know() -> None:
    world = World()
    world.run()
    token = world.held[REMEDIATION].data["token"]
    assert token != world.held[DECISIONS].data["token"]
    assert world.role(token) is None


def test_tokens_change_in_steps_and_whoever_is_late_is_still_known() -> None:
    world = World()
    world.run()
    old = world.held[REPLICATOR].data["token"]
    world.run(after=30 * DAY)
    new = world.held[REPLICATOR].data["next"]
    assert world.held[REPLICATOR].data["token"] == old
    assert (world.role(old), world.role(new)) == ("replicator", "replicator")
    assert world.run(after=1799) == []
    world.run(after=1)
    assert world.held[REPLICATOR].data["token"] == new
    assert world.role(old) == "replicator"
    world.run(after=1800)
    assert (world.role(old), world.role(new)) == (None, "replicator")
    assert set(world.held[REPLICATOR].data) == {"token"}
    assert world.run() == []


def test_a_certificate_is_renewed_a_month_before_it_ends() -> None:
    world = World()
    world.run()
    before = world.held[OPA_TLS].data["tls.crt"]
    world.run(after=59 * DAY)
    assert world.held[OPA_TLS].data["tls.crt"] == before
    world.run(after=2 * DAY)
    assert world.held[OPA_TLS].data["tls.crt"] != before
    assert verified(world.held[OPA_TLS], "localhost")


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"tls.crt": b"", "tls.key": b"k"},
        {"tls.crt": b"no certificate", "tls.key": b"k"},
    ],
)
def test_a_certificate_of_ours_that_is_broken_is_made_again(broken: dict[str, bytes]) -> None:
    world = World()
    world.run()
    world.held[OPA_TLS] = Content(broken, TLS, NOW)
    assert world.run() == [OPA_TLS]
    assert verified(world.held[OPA_TLS], "localhost")


def test_a_certificate_of_another_authority_or_for_other_hosts_or_nearly_over_is_made_again() -> (
    None
):
    world = World()
    world.run()
    good, authority = world.held[OPA_TLS], world.held[AUTHORITY].data
    ours = Authority(authority["tls.crt"], authority["tls.key"])
    hosts = WANTED.certificates[0].hosts
    for pair in (
        issue(make_authority("another"), "x", hosts, timedelta(days=36500)),
        issue(ours, "x", ("elsewhere",), timedelta(days=36500)),
        issue(ours, "x", hosts, timedelta(seconds=1)),
    ):
        changed = {"tls.crt": pair.cert_pem, "tls.key": pair.key_pem}
        world.held[OPA_TLS] = Content(dict(good.data) | changed, TLS, NOW)
        assert world.run() == [OPA_TLS]


def test_an_authority_is_announced_before_it_signs_and_trusted_after_it_no_longer_does() -> None:
    world = World()
    world.run()
    first = world.held[AUTHORITY].data["tls.crt"]
    world.run(after=548 * DAY)
    following = world.held[AUTHORITY].data["next.crt"]
    secret = world.held[OPA_TLS]
    assert secret.data["ca.crt"] == first + following
    assert verified(secret, "localhost")
    world.run(after=1800)
    after = world.held[OPA_TLS]
    assert after.data["tls.crt"] != secret.data["tls.crt"]
    assert after.data["ca.crt"] == following + first
    assert verified(after, "localhost")
    world.run(after=1800)
    assert world.held[OPA_TLS].data["ca.crt"] == following
    assert world.run() == []


def test_secrets_of_somebody_else_are_used_and_never_changed() -> None:
    pair = make_authority("theirs")
    theirs = {
        REPLICATOR: Content({"token": b"by-hand\n"}),
        OPA_TLS: Content({"tls.crt": b"theirs", "tls.key": b"theirs"}, TLS),
        AUTHORITY: Content({"tls.crt": pair.cert_pem, "tls.key": pair.key_pem}, TLS),
    }
    world = World(theirs)
    world.run()
    world.run(after=4000 * DAY)
    assert {name: world.held[name] for name in theirs} == theirs
    assert world.role(b"by-hand") == "replicator"
    assert world.held["kube-sync-admission-tls"].data["ca.crt"] == pair.cert_pem


def test_what_opa_knows_may_be_somebody_elses_too() -> None:
    world = World({ACCESS: Content({ARCHIVE: b"theirs"})})
    world.run()
    assert world.held[ACCESS] == Content({ARCHIVE: b"theirs"})


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (REPLICATOR, Content({}), f"Secret {REPLICATOR} has no key token"),
        (AUTHORITY, Content({}, TLS), f"Secret {AUTHORITY} has no tls.crt and tls.key"),
        (
            AUTHORITY,
            Content({"tls.crt": b"secret", "tls.key": b"secret"}, TLS),
            f"Secret {AUTHORITY}: tls.crt and tls.key are no authority with an elliptic curve key",
        ),
    ],
)
def test_a_secret_of_somebody_else_that_is_of_no_use_is_named_and_not_quoted(
    name: str, content: Content, complaint: str
) -> None:
    with pytest.raises(Terminal) as raised:
        planned({name: content}, WANTED, NOW)
    assert str(raised.value) == complaint


def test_an_empty_secret_of_ours_is_filled_again() -> None:
    held = {REPLICATOR: Content({}, since=NOW), AUTHORITY: Content({}, TLS, NOW)}
    world = World(held)
    world.run()
    assert world.held[REPLICATOR].data["token"]
    assert verified(world.held[OPA_TLS], "localhost")


def test_without_certificates_only_tokens_are_made() -> None:
    tokens = wanted(Settings(), certificates=False)
    assert not tokens.certificates
    plan = planned({}, tokens, NOW)
    assert set(plan) == {name for name in names(WANTED) if "tls" not in name} - {AUTHORITY}


def test_opa_gets_the_rules_that_are_tested_in_a_bundle_of_the_same_bytes_every_time() -> None:
    system = Path(__file__).resolve().parents[3] / "rego/system"
    world = World()
    world.run()
    made = world.held[ACCESS]
    found = unpacked(made.data[ARCHIVE])
    assert found.pop("data.json")
    assert found == {
        ".manifest": (system / ".manifest").read_bytes(),
        "authz.rego": (system / "authz/authz.rego").read_bytes(),
        "log.rego": (system / "log/log.rego").read_bytes(),
    }
    world.held[ACCESS] = Content({"data.json": b"of an older version"}, since=NOW)
    assert world.run() == [ACCESS]
    assert world.held[ACCESS].data == made.data


def test_decisions_are_those_of_the_configuration() -> None:
    settings = Settings(builtin=("scheduling", "metadata"))
    found = wanted(settings)
    assert found.decisions == (
        "io/k8s/federation/admission",
        "kube_sync/scheduling/decision",
        "kube_sync/metadata/pipeline",
        "kube_sync/metadata/checked",
    )
    assert found.roots == ("kubernetes", "kube_sync")
    assert Certificate("kube-sync-opa-tls", found.certificates[0].hosts) in found.certificates


def test_the_key_of_notes_is_made_once_and_never_renewed() -> None:
    world = World()
    world.run()
    key = world.held[NOTES].data["keys"]
    assert len(key) >= 43
    for _ in range(20):
        assert NOTES not in world.run(40 * DAY)
    assert world.held[NOTES].data == {"keys": key}
    world.held[NOTES] = Content({"keys": b""}, since=NOW)
    assert NOTES in world.run(1)


def test_keys_of_notes_that_somebody_else_made_are_left_alone() -> None:
    theirs = Content({"keys": b"new\nold"})
    assert NOTES not in World({NOTES: theirs}).run()
    with pytest.raises(Terminal, match="kube-sync-notes has no key keys"):
        World({NOTES: Content({})}).run()


# The token of Argo CD's generator


class Generator:
    """The Secrets of its token, ours and Argo CD's; a run writes what is planned."""

    def __init__(self, own: Content | None = None, sent: Content | None = None) -> None:
        self.own, self.sent, self.now = own, sent, NOW

    def run(self, after: float = 0.0) -> tuple[bool, bool]:
        """Return which of them was written."""
        self.now += after
        own, sent = planned_generator(self.own, self.sent, self.now)
        self.own, self.sent = own or self.own, sent or self.sent
        return own is not None, sent is not None

    def accepted(self) -> list[bytes]:
        assert self.own is not None
        return self.own.data["token"].split()

    def token(self) -> bytes:
        assert self.sent is not None
        assert self.sent.data.keys() == {"token"}
        return self.sent.data["token"]


def test_the_token_of_the_generator_is_made_for_both_and_then_stays() -> None:
    world = Generator()
    assert world.run() == (True, True)
    assert world.accepted() == [world.token()]
    assert world.run(60) == (False, False)


def test_a_new_token_of_the_generator_is_accepted_before_it_is_sent_and_the_old_one_after() -> None:
    world = Generator()
    world.run()
    old = world.token()
    assert world.run(30 * DAY) == (True, False)
    assert (world.token(), world.accepted()[0], len(world.accepted())) == (old, old, 2)
    assert world.run(1800) == (True, True)
    new = world.token()
    assert (world.accepted(), new != old) == ([new, old], True)
    assert world.run(1800) == (True, False)
    assert world.accepted() == [new]
    assert world.run() == (False, False)


@pytest.mark.parametrize("text", [b"mine", b"mine\nolder\n"])
def test_a_token_that_somebody_gave_to_the_remediator_is_sent(text: bytes) -> None:
    given = Content({"token": text})
    world = Generator(given)
    assert world.run() == (False, True)
    assert (world.own, world.token()) == (given, b"mine")
    assert world.run(90 * DAY) == (False, False)


def test_a_token_that_somebody_gave_to_argo_cd_is_accepted() -> None:
    world = Generator(None, Content({"token": b"theirs", "next": b"x"}))
    assert world.run() == (True, False)
    assert world.accepted() == [b"theirs"]
    assert world.run(90 * DAY) == (False, False)
    world.sent = Content({"token": b"another"})
    assert world.run() == (True, False)
    assert world.accepted() == [b"another"]


def test_two_tokens_of_somebody_else_stay_as_they_are() -> None:
    both = Content({"token": b"a"}), Content({"token": b"b"})
    assert Generator(*both).run() == (False, False)


def test_a_copy_that_was_changed_or_is_gone_is_made_again() -> None:
    world = Generator()
    world.run()
    token, since = world.token(), NOW
    for sent in (None, Content({"token": b"x"}, since=since)):
        world.sent = sent
        assert world.run() == (False, True)
        assert world.token() == token


def test_a_secret_of_somebody_else_without_a_token_is_an_error() -> None:
    for world in (Generator(Content({"a": b"b"})), Generator(None, Content({"a": b"b"}))):
        with pytest.raises(Terminal, match="kube-sync-generator has no key token"):
            world.run()
