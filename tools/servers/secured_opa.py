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

from kube_sync.certificates import Authority, KeyPair, issue, make_authority
from tools.servers.binaries import ensure_binary
from tools.servers.files import LOOPBACK, write_file, write_pair, write_private
from tools.servers.running import Launcher, RunningServer, free_port, launch_on_free_port
from tools.servers.specs import AUTHZ_BUNDLE, OPA_CONFIG, opa_spec

OPA_ROLES = ("replicator", "admission", "metrics")
_SYSTEM = Path(__file__).resolve().parents[2] / "rego/system"
# What the roles may touch: the replicator's roots of data, the decisions that may be asked for.
_ROOTS = ("kubernetes", "kube_sync")
_DECISIONS = (
    "io/k8s/federation/admission",
    "kube_sync/scheduling/decision",
    "kube_sync/metadata/pipeline",
    "kube_sync/metadata/checked",
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the replicator of an OPA is to serve: the decision stream, and OPA's policies."""

    port: int
    url: str
    ca_file: Path
    cert_file: Path
    key_file: Path
    token_file: Path

    def server(self) -> dict[str, object]:
        """Return the section `decisions` of the replicator's configuration."""
        return {
            "listen": f"127.0.0.1:{self.port}",
            "token_file": str(self.token_file),
            "cert_file": str(self.cert_file),
            "key_file": str(self.key_file),
        }

    def client(self) -> dict[str, object]:
        """Return the same section for whoever reads the stream."""
        return {
            "url": f"{self.url}/v1/decisions",
            "token_file": str(self.token_file),
            "ca_file": str(self.ca_file),
        }


@dataclass(frozen=True, slots=True)
class RunningOpa:
    """An OPA that runs, with what its clients need."""

    server: RunningServer
    url: str
    ca_file: Path
    token_files: Mapping[str, Path]  # by role
    replicator: Endpoint
    authority: Authority  # of its certificate and its replicator's

    def settings(self) -> dict[str, object]:
        """Return the section `opa` of the replicator's configuration."""
        return opa_settings(self.url, self.ca_file, self.token_files["replicator"])


def opa_settings(url: str, ca_file: Path, token_file: Path) -> dict[str, object]:
    """Return the section `opa` of a configuration; candidates are compiled by the same version."""
    binary = ensure_binary("opa")
    files = {"ca_file": ca_file, "token_file": token_file, "binary": binary}
    return {"url": url, **{name: str(file) for name, file in files.items()}}


def start_opa(
    launcher: Launcher, folder: Path, extra_arguments: Sequence[str] = (), *, by_bundle: bool = True
) -> RunningOpa:
    """Start an empty OPA with TLS, tokens and authorization; its files lie below `folder`/opa.

    It fetches its policies from its replicator, unless `by_bundle` is false.
    """
    client, server = folder / "client", folder / "opa"
    tokens = {role: secrets.token_urlsafe(24) for role in OPA_ROLES}
    authority = make_authority("kube-sync test OPA")
    token_files = {
        role: write_private(client / f"opa-{role}.token", t) for role, t in tokens.items()
    }
    ca_file = write_file(client / "opa-ca.crt", authority.cert_pem)
    write_opa_files(server, issue(authority, "opa", LOOPBACK), tokens.items())
    replicator = _endpoint(client, authority)
    if by_bundle:
        secret = replicator.token_file.read_text(encoding="utf-8")
        write_policy_source(server, server, replicator.url, authority.cert_pem, secret)
    token, extra = tokens["metrics"], tuple(extra_arguments)
    running = launch_on_free_port(
        launcher,
        lambda: opa_spec(server, free_port(), ca_file=ca_file, token=token, extra_arguments=extra),
    )
    return RunningOpa(running, running.url, ca_file, token_files, replicator, authority)


def _endpoint(folder: Path, authority: Authority) -> Endpoint:
    port = free_port()
    write_pair(folder, "decisions", issue(authority, "replicator", LOOPBACK))
    return Endpoint(
        port,
        f"https://127.0.0.1:{port}",
        folder / "opa-ca.crt",
        folder / "decisions.crt",
        folder / "decisions.key",
        write_private(folder / "decisions.token", secrets.token_urlsafe(24)),
    )


def write_opa_files(folder: Path, pair: KeyPair, holders: Iterable[tuple[str, str]]) -> None:
    """Write what a secured OPA reads: its certificate, and who may do what.

    `holders` are pairs of role and token. The authorization is a bundle that owns the root
    `system`: loaded as plain files it could be changed by whoever may write policies or data.
    """
    write_pair(folder, "tls", pair)
    bundle = folder / AUTHZ_BUNDLE
    write_file(bundle / ".manifest", (_SYSTEM / ".manifest").read_bytes())
    for name in ("authz", "log"):
        write_file(bundle / f"{name}.rego", (_SYSTEM / name / f"{name}.rego").read_bytes())
    write_file(bundle / "data.json", json.dumps(access_data(holders)).encode())


def write_policy_source(folder: Path, seen_at: Path, url: str, ca: bytes, token: str) -> None:
    """Write OPA's configuration: it fetches its policies from the replicator at `url`.

    `seen_at` is where OPA itself finds the folder.
    """
    write_file(folder / "replicator-ca.crt", ca)
    write_private(folder / "replicator.token", token)
    service = {
        "url": url,
        "credentials": {"bearer": {"token_path": str(seen_at / "replicator.token")}},
        "tls": {"ca_cert": str(seen_at / "replicator-ca.crt")},
    }
    # The delays are for a replicator that is away; one that is there answers when it has news.
    polling = {
        "min_delay_seconds": 1,
        "max_delay_seconds": 2,
        "long_polling_timeout_seconds": 30,
    }
    bundle = {"service": "replicator", "resource": "v1/bundles/policies", "polling": polling}
    config = {
        "services": {"replicator": service},
        "bundles": {"kube-sync": bundle},
        "status": {"prometheus": True},  # so that /metrics tells of the bundles, too
    }
    write_file(folder / OPA_CONFIG, json.dumps(config, indent=2).encode())


def access_data(holders: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Return what `system.authz` reads: who holds which role, and what the roles may touch."""
    digests = {hashlib.sha256(token.encode()).hexdigest(): role for role, token in holders}
    access = {"tokens": digests, "roots": _ROOTS, "decisions": _DECISIONS}
    return {"system": {"access": access}}
