"""The project's three services as processes, each with its own account and no more rights.

The same split as in docker-compose.yml: replicator, remediator and webhook know nothing of each
other but the decision stream, over TLS and with a token.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from kube_sync.certificates import issue, make_authority
from tools.servers.files import LOOPBACK, write_file, write_pair, write_private
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, ServerSpec, free_port
from tools.servers.stack import RunningStack

# Of the remediator: nothing is limited but what always is.
GUARD_OFF: Mapping[str, float] = {
    "moves_per_minute": 0,
    "namespace_moves_per_minute": 0,
    "cluster_moves_per_minute": 0,
    "dwell_seconds": 0,
    "cooldown_seconds": 0,
    "oscillation_seconds": 0,
    "shrink_share": 1,
    "mass_share": 1,
}
UNBRAKED: Mapping[str, object] = {"guard": dict(GUARD_OFF)}
# And for the demo: what it tells is over in seconds, so only the brakes that it tells of are on.
TOLD: Mapping[str, object] = {"guard": {**GUARD_OFF, "shrink_share": 0.3}}
# For whoever tries things by hand, the same, with placements that can be read with their reasons.
TRIED: Mapping[str, object] = {**TOLD, "sinks": {"placement_decisions": {"enabled": True}}}
# Beside policies lie their parameters, in ConfigMaps with the data label.
LABELLED: Mapping[str, Mapping[str, object]] = {
    "policies": {"labelled": {"namespaces": ["kube-federation-scheduling-policy"]}}
}
# With Argo CD beside it: no cluster is taken away without an approval.
WATCHED: Mapping[str, object] = {
    **TRIED,
    "guard": {**GUARD_OFF, "shrink_share": 0.3, "mass_share": 0, "mass_floor": 0},
}
_PROGRAM = str(Path(sys.executable).with_name("kube-sync"))


@dataclass(frozen=True, slots=True)
class Components:
    """The three services, and where the API server finds the webhook."""

    services: Mapping[str, RunningServer]  # by command
    webhook_url: str
    webhook_ca: bytes
    client: Mapping[str, object]  # sections of a person's configuration: remediator and ledger

    def stop(self) -> None:
        """End all three."""
        for service in self.services.values():
            service.stop()


def start_components(
    stack: RunningStack,
    folder: Path,
    remediate: Mapping[str, object] = UNBRAKED,
    *,
    classes: str = "off",
    shared: Mapping[str, Mapping[str, object]] | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Components:
    """Start replicator, remediator and webhook on a stack that has our kinds and roles.

    `remediate` is that section of the remediator's configuration, `classes` the webhook's
    `admission.classes`, `shared` are more sections of all three, `environment` more variables. The
    replicator knows the remediator's port, whose holds its page shows, and keeps a ledger. How
    moves are made is configured for all three.
    """
    moves = {name: remediate[name] for name in ("moves", "add_first") if name in remediate}
    authority = make_authority("kube-sync demo webhook")
    common = folder / "shared"
    write_pair(common, "tls", issue(authority, "kube-sync", LOOPBACK))
    token_file = write_private(folder / "remediation.token", secrets.token_urlsafe(24))
    webhook = free_port()
    client: dict[str, dict[str, object]] = {
        "remediate": {"listen": f"127.0.0.1:{free_port()}", "token_file": str(token_file)},
        "ledger": {"path": str(folder / "replicate/ledger.db")},
    }
    tls = {"cert_file": str(common / "tls.crt"), "key_file": str(common / "tls.key")}
    opa, tokens = stack.opa_settings(), stack.opa_token_files
    configurations: dict[str, tuple[str, dict[str, object]]] = {
        "replicate": (
            "replicator",
            {
                "opa": opa,
                "decisions": stack.endpoint.server(),
                **client,
                "remediate": {**client["remediate"], **moves},
            },
        ),
        "remediate": (
            "remediator",
            {
                "decisions": stack.endpoint.client(),
                "remediate": {**remediate, **client["remediate"]},
            },
        ),
        "admit": (
            "admission",
            {
                "opa": opa | {"token_file": str(tokens.get("admission", tokens["replicator"]))},
                "decisions": stack.endpoint.client(),
                "remediate": moves,
                "admission": tls
                | {
                    "listen": f"127.0.0.1:{webhook}",
                    "classes": classes,
                    "registration": {"name": "kube-sync-placement"},
                },
            },
        ),
    }
    services: dict[str, RunningServer] = {}
    key_file = write_private(common / "notes.key", secrets.token_urlsafe(32))
    for command, (role, configuration) in configurations.items():
        sections = {name: dict(section) for name, section in (shared or {}).items()}
        configuration.update(sections)
        configuration["placement"] = {**sections.get("placement", {}), "key_file": str(key_file)}
        configuration["kubernetes"] = {"kubeconfig": str(stack.kubeconfigs[role])}
        services[command] = start_service(
            command, folder / command, configuration, environment=environment
        )
    url = f"https://127.0.0.1:{webhook}/admit/placement"
    return Components(services, url, authority.cert_pem, client)


def start_replicator(
    stack: RunningStack,
    folder: Path,
    replicate: dict[str, object] | None = None,
    *,
    patience: float = 60.0,
) -> RunningServer:
    """Start the replicator alone; `replicate` is that section of its configuration.

    Raises StartFailed when it is not ready within `patience` seconds.
    """
    configuration: dict[str, object] = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["replicator"])},
        "opa": stack.opa_settings(),
        "decisions": stack.endpoint.server(),
        "replicate": replicate or {},
    }
    return start_service("replicate", folder, configuration, patience=patience)


def start_service(
    command: str,
    folder: Path,
    configuration: dict[str, object],
    *options: str,
    ready: str = "/readyz",
    patience: float = 60.0,
    code: Path | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> RunningServer:
    """Start one of our commands, as `topology --live`, and wait until the path `ready` says so.

    `code` is a folder with another `kube_sync` than the one that is installed; `environment` has
    further variables. Raises StartFailed when it is not ready within `patience` seconds.
    """
    port, name = free_port(), command.partition(" ")[0]
    configuration["observe"] = {"listen": f"127.0.0.1:{port}"}
    if name == "remediate":
        # Several may run on one machine, where the default port belongs to one of them.
        section: Any = configuration.get("remediate", {})
        configuration["remediate"] = {"listen": f"127.0.0.1:{free_port()}", **section}
    if name == "admit" and code is None:
        # No Service routes to it, whose clients would have to notice for three seconds.
        section = configuration.get("admission", {})
        configuration["admission"] = {"drain_seconds": 0.1, **section}
    program, *module = [_PROGRAM] if code is None else [sys.executable, "-m", "kube_sync"]
    text = yaml.safe_dump(configuration, sort_keys=False)
    file = write_file(folder / "config.yaml", text.encode())
    return ProcessLauncher().launch(
        ServerSpec(
            name=f"kube-sync-{name}",
            program=program,
            arguments=(*module, *command.split(), *options, "--config", str(file)),
            folder=folder,
            environment={**environment, **({} if code is None else {"PYTHONPATH": str(code)})},
            url=f"http://127.0.0.1:{port}",
            ready_paths=(ready,),
            patience=patience,
        )
    )
