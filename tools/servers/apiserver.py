"""Start kube-apiserver on an etcd of its own, with an account for each of the project's parts.

Keeps true: clients verify the server (the CA is inside each kubeconfig), and the accounts carry the
user names and groups of the ServiceAccounts in `manifests/`, so the same role bindings hold here.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube_sync.certificates import KeyPair, issue, make_authority
from tools.servers.files import LOOPBACK, write_file, write_pair, write_private
from tools.servers.kubeapi import KubeApi
from tools.servers.running import Launcher, RunningServer, free_port, launch_on_free_port
from tools.servers.specs import apiserver_spec, etcd_spec

NAMESPACE = "kube-sync"
SERVICE_ACCOUNTS = (
    "replicator",
    "remediator",
    "admission",
    "topology",
    "policy-sync",
    "provision",
)
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True, slots=True)
class Account:
    """Who a bearer token stands for."""

    name: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunningApiserver:
    """A kube-apiserver that runs with its etcd, with what its clients need."""

    etcd: RunningServer
    server: RunningServer
    url: str
    ca_file: Path
    tokens: Mapping[str, str]  # by role: admin, and SERVICE_ACCOUNTS
    kubeconfigs: Mapping[str, Path]  # by role
    audit_log: Path | None
    api: KubeApi  # as the admin

    def stop(self) -> None:
        """End the API server, then its etcd."""
        self.api.close()
        self.server.stop()
        self.etcd.stop()


def accounts() -> Mapping[str, Account]:
    """Return the account of each role."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
    prefix = f"system:serviceaccount:{NAMESPACE}:kube-sync-"
    roles = {
        role: Account(prefix + role, (*groups, "system:authenticated")) for role in SERVICE_ACCOUNTS
    }
    return {"admin": Account("admin", ("system:masters", "system:authenticated")), **roles}


def start_apiserver(
    launcher: Launcher,
    folder: Path,
    *,
    audit: bool = False,
    hosts: Sequence[str] = LOOPBACK,
    extra_arguments: Sequence[str] = (),
) -> RunningApiserver:
    """Start etcd, then kube-apiserver on it; their files lie below the folder.

    Its certificate names the hosts; it listens on the first.
    """
    tokens = {role: secrets.token_urlsafe(24) for role in accounts()}
    home = folder / "kube-apiserver"
    authority = make_authority("kube-sync test cluster")
    ca_file = write_file(folder / "client/kube-ca.crt", authority.cert_pem)
    signer = make_authority("service account tokens")
    write_apiserver_files(home, issue(authority, "kube-apiserver", hosts), signer, tokens)
    etcd = _start_etcd(launcher, folder / "etcd")
    extra = (*extra_arguments, *(_audit(home) if audit else ()))
    try:
        server = launch_on_free_port(
            launcher,
            lambda: apiserver_spec(
                home,
                free_port(),
                etcd.url,
                admin_token=tokens["admin"],
                ca_file=ca_file,
                address=hosts[0],
                extra_arguments=extra,
            ),
        )
    except BaseException:
        etcd.stop()
        raise
    kubeconfigs = {
        role: write_kubeconfig(folder / "client", role, server.url, ca_file, token)
        for role, token in tokens.items()
    }
    log = home / "audit.log" if audit else None
    api = KubeApi(server.url, ca_file, tokens["admin"])
    return RunningApiserver(etcd, server, server.url, ca_file, tokens, kubeconfigs, log, api)


def write_apiserver_files(
    home: Path, pair: KeyPair, signer: KeyPair, tokens: Mapping[str, str]
) -> None:
    """Write what kube-apiserver reads: its certificate, the key that signs tokens, who has which.

    `tokens` are by role.
    """
    write_pair(home, "tls", pair)
    write_pair(home, "service-account", signer)
    write_private(home / "tokens.csv", token_rows(tokens))


def token_rows(tokens: Mapping[str, str]) -> str:
    """Return the rows of `--token-auth-file`: token, user, uid, groups."""
    rows = (
        f'{token},{accounts()[role].name},{role},"{",".join(accounts()[role].groups)}"\n'
        for role, token in tokens.items()
    )
    return "".join(rows)


def write_kubeconfig(folder: Path, role: str, url: str, ca_file: Path, token: str) -> Path:
    """Write a kubeconfig with the CA inside (JSON, which is YAML too) and return its path."""
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "main", "cluster": {"server": url, "certificate-authority-data": authority}}
        ],
        "users": [{"name": role, "user": {"token": token}}],
        "contexts": [{"name": role, "context": {"cluster": "main", "user": role}}],
        "current-context": role,
    }
    return write_private(folder / f"{role}.kubeconfig", json.dumps(config, indent=2) + "\n")


def _start_etcd(launcher: Launcher, folder: Path) -> RunningServer:
    (folder / "data").mkdir(parents=True, mode=0o700)
    return launch_on_free_port(launcher, lambda: etcd_spec(folder, free_port()))


def _audit(home: Path) -> tuple[str, ...]:
    policy = home / "audit-policy.json"
    policy.write_text(json.dumps(_AUDIT_POLICY), encoding="utf-8")
    return (f"--audit-policy-file={policy}", f"--audit-log-path={home / 'audit.log'}")
