"""Start OPA as it runs beside the replicator: TLS, a token for each role, `system.authz`.

Keeps true: OPA holds digests of the tokens only, and each token lies in a file of its own that its
owner alone can read. Killed and started again it is empty, on the same port, with the same tokens.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube_sync.certificates import KeyPair, issue, make_authority
from tools.servers.files import LOOPBACK, write_file, write_pair, write_private
from tools.servers.running import Launcher, RunningServer, free_port, launch_on_free_port
from tools.servers.specs import AUTHZ_BUNDLE, opa_spec

OPA_ROLES = ("replicator", "admission", "metrics")
_SYSTEM = Path(__file__).resolve().parents[2] / "rego/system"
# What the roles may touch: the replicator's roots of data, the decisions that may be asked for.
_ROOTS = ("kubernetes", "kube_sync")
_DECISIONS = ("io/k8s/federation/admission",)


@dataclass(frozen=True, slots=True)
class RunningOpa:
    """An OPA that runs, with what its clients need."""

    server: RunningServer
    url: str
    ca_file: Path
    token_files: Mapping[str, Path]  # by role


def start_opa(launcher: Launcher, folder: Path, extra_arguments: Sequence[str] = ()) -> RunningOpa:
    """Start an empty OPA with TLS, tokens and authorization; its files lie below the folder."""
    client, server = folder / "client", folder / "opa"
    tokens = {role: secrets.token_urlsafe(24) for role in OPA_ROLES}
    authority = make_authority("kube-sync test OPA")
    token_files = {
        role: write_private(client / f"opa-{role}.token", t) for role, t in tokens.items()
    }
    ca_file = write_file(client / "opa-ca.crt", authority.cert_pem)
    write_opa_files(server, issue(authority, "opa", LOOPBACK), tokens.items())
    token, extra = tokens["metrics"], tuple(extra_arguments)
    running = launch_on_free_port(
        launcher,
        lambda: opa_spec(server, free_port(), ca_file=ca_file, token=token, extra_arguments=extra),
    )
    return RunningOpa(running, running.url, ca_file, token_files)


def write_opa_files(folder: Path, pair: KeyPair, holders: Iterable[tuple[str, str]]) -> None:
    """Write what a secured OPA reads: its certificate, and who may do what.

    `holders` are pairs of role and token. The authorization is a bundle that owns the root
    `system`: loaded as plain files it could be changed by whoever may write policies or data.
    """
    write_pair(folder, "tls", pair)
    bundle = folder / AUTHZ_BUNDLE
    write_file(bundle / ".manifest", (_SYSTEM / ".manifest").read_bytes())
    write_file(bundle / "authz.rego", (_SYSTEM / "authz/authz.rego").read_bytes())
    write_file(bundle / "data.json", json.dumps(access_data(holders)).encode())


def access_data(holders: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Return what `system.authz` reads: who holds which role, and what the roles may touch."""
    digests = {hashlib.sha256(token.encode()).hexdigest(): role for role, token in holders}
    access = {"tokens": digests, "roots": _ROOTS, "decisions": _DECISIONS}
    return {"system": {"access": access}}
