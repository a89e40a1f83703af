"""Prepare the volumes of docker-compose.yml: certificates, tokens, kubeconfigs, owners.

Keeps true: every service sees only its own secrets, readable by it alone, and what was made once
stays (the volume `state`), so a second `up` changes nothing. Runs as root in a container, because
new volumes belong to root and the servers' own images hold no shell; then it ends.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kube_sync.certificates import Authority, KeyPair, issue, make_authority
from tools.servers.apiserver import accounts, write_apiserver_files, write_kubeconfig
from tools.servers.files import write_file, write_pair, write_private
from tools.servers.secured_opa import OPA_ROLES, write_opa_files, write_policy_source

VOLUMES, HOST = Path("/volumes"), Path("/host")
_NOBODY = 65532
_LOCAL = ("localhost", "127.0.0.1")
# The servers that others call, by service name: the name in the certificate is the one they use.
_SERVERS = ("kube-apiserver", "opa", "replicator", "admission")


@dataclass(frozen=True, slots=True)
class State:
    """What is made once: the authority, its certificates, every token."""

    authority: Authority
    signer: KeyPair  # of service account tokens
    pairs: Mapping[str, KeyPair]  # by service
    kube_tokens: Mapping[str, str]  # by role
    opa_tokens: Mapping[str, str]  # by role, and "host" for whoever looks in from outside
    decisions_token: str
    remediation_token: str
    notes_key: str  # seals the notes of what was asked for


def main() -> None:
    """Make what is missing, hand out to each service what is its own."""
    state = load_or_make(VOLUMES / "state/state.json")
    hand_out_servers(state)
    hand_out_services(state)
    hand_out_prometheus(state)
    hand_out_furnish(state)
    hand_out_host(state, os.environ.get("APISERVER_PORT", "16443"))
    for volume in VOLUMES.iterdir():
        _give(volume, _NOBODY, _NOBODY, 0o700)
    owner = HOST.stat()
    _give(HOST, owner.st_uid, owner.st_gid, 0o755)
    print("volumes are prepared")


def load_or_make(path: Path) -> State:
    """Return the state on record; what it lacks, as a record of an earlier version, is added."""
    record = json.loads(json.dumps(asdict(_make()), default=bytes.decode))
    if path.exists():
        record |= json.loads(path.read_text(encoding="utf-8"))
    write_private(path.with_suffix(".new"), json.dumps(record)).replace(path)
    return State(
        authority=Authority(*_pem(record["authority"])),
        signer=KeyPair(*_pem(record["signer"])),
        pairs={name: KeyPair(*_pem(pair)) for name, pair in record["pairs"].items()},
        kube_tokens=record["kube_tokens"],
        opa_tokens=record["opa_tokens"],
        decisions_token=record["decisions_token"],
        remediation_token=record["remediation_token"],
        notes_key=record["notes_key"],
    )


def _make() -> State:
    authority = make_authority("kube-sync compose")
    return State(
        authority=authority,
        signer=make_authority("service account tokens"),
        pairs={name: issue(authority, name, (name, *_LOCAL)) for name in _SERVERS},
        kube_tokens=_tokens(list(accounts())),
        opa_tokens=_tokens([*OPA_ROLES, "host"]),
        decisions_token=secrets.token_urlsafe(24),
        remediation_token=secrets.token_urlsafe(24),
        notes_key=secrets.token_urlsafe(32),
    )


def hand_out_servers(state: State) -> None:
    """Give etcd its folder, kube-apiserver and OPA their certificates and who may do what."""
    (VOLUMES / "etcd/data").mkdir(parents=True, exist_ok=True)
    home = VOLUMES / "kube-apiserver"
    write_apiserver_files(home, state.pairs["kube-apiserver"], state.signer, state.kube_tokens)
    holders = [("replicator" if who == "host" else who, t) for who, t in state.opa_tokens.items()]
    write_opa_files(VOLUMES / "opa", state.pairs["opa"], holders)
    url, ca = "https://replicator:9400", state.authority.cert_pem
    write_policy_source(VOLUMES / "opa", Path("/run/opa"), url, ca, state.decisions_token)


def hand_out_services(state: State) -> None:
    """Give the project's own services their kubeconfigs, tokens and certificates."""
    for name in ("replicator", "remediator", "admission"):
        home, url = VOLUMES / name, "https://kube-apiserver:6443"
        ca_file = write_file(home / "ca.crt", state.authority.cert_pem)
        write_kubeconfig(home, name, url, ca_file, state.kube_tokens[name])
        if name in state.opa_tokens:
            write_private(home / "opa.token", state.opa_tokens[name])
        write_private(home / "notes.key", state.notes_key)
        if name in state.pairs:
            write_pair(home, "tls", state.pairs[name])
    for name in ("replicator", "remediator", "admission"):
        write_private(VOLUMES / name / "decisions.token", state.decisions_token)
    for name in ("replicator", "remediator"):
        # The replicator's page shows what the remediator holds.
        write_private(VOLUMES / name / "remediation.token", state.remediation_token)


def hand_out_prometheus(state: State) -> None:
    """Give Prometheus what it asks OPA with, and a folder for its data."""
    home = VOLUMES / "prometheus"
    (home / "data").mkdir(parents=True, exist_ok=True)
    write_file(home / "ca.crt", state.authority.cert_pem)
    write_private(home / "opa.token", state.opa_tokens["metrics"])


def hand_out_furnish(state: State) -> None:
    """Give the service that installs kinds and roles the token of the admin."""
    home = VOLUMES / "furnish"
    write_file(home / "ca.crt", state.authority.cert_pem)
    write_private(home / "token", state.kube_tokens["admin"])


def hand_out_host(state: State, port: str) -> None:
    """Give the person outside the kubeconfigs and a token for OPA, with the published ports."""
    ca_file = write_file(HOST / "ca.crt", state.authority.cert_pem)
    for role, token in state.kube_tokens.items():
        write_kubeconfig(HOST, role, f"https://127.0.0.1:{port}", ca_file, token)
    write_file(HOST / "opa/ca.crt", state.authority.cert_pem)
    write_private(HOST / "opa/token", state.opa_tokens["host"])
    write_private(HOST / "decisions.token", state.decisions_token)
    write_private(HOST / "remediation.token", state.remediation_token)


def _tokens(names: Sequence[str]) -> dict[str, str]:
    return {name: secrets.token_urlsafe(24) for name in names}


def _pem(pair: Mapping[str, str]) -> tuple[bytes, bytes]:
    return pair["cert_pem"].encode(), pair["key_pem"].encode()


def _give(folder: Path, user: int, group: int, mode: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, group)
    folder.chmod(mode)


if __name__ == "__main__":
    main()
