"""The docker-compose stack: up with everything it needs, looked at from outside, and down.

Keeps true: `up` may be repeated, and `down` leaves no container, volume or network of it.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from tools.servers.apiserver import accounts
from tools.servers.compose_cli import PROJECT, compose, compose_command
from tools.servers.compose_services import (
    ComposeServer,
    anything_left,
    published_port,
    wait_finished,
    wait_healthy,
)
from tools.servers.console import step
from tools.servers.dockerd_api import engine_answers
from tools.servers.engine import engine, ensure_engine
from tools.servers.images import ensure_image
from tools.servers.kubeapi import KubeApi
from tools.servers.project_image import ensure_project_image
from tools.servers.prometheus import ensure_prometheus_image
from tools.servers.running import ServerSpec, wait_until_ready
from tools.servers.secured_opa import opa_settings
from tools.servers.stack import RunningStack
from tools.servers.versions import tools

ROOT = Path(__file__).resolve().parents[2]
# Where the service init writes what a person outside needs; docker-compose.yml reads the same.
HOST = Path(os.environ.get("KUBE_SYNC_COMPOSE_HOST", ROOT / ".run/compose"))
OWN_SERVICES = ("replicator", "remediator", "admission")
_PATIENCE = 180.0


def up() -> RunningStack:
    """Start the whole stack, install our kinds and roles, wait until every service is healthy."""
    ensure_engine()
    for name, tool in tools().items():
        if tool.image is not None:
            ensure_image(name)
    with engine() as client:
        ensure_prometheus_image(client)
    ensure_project_image()
    HOST.mkdir(parents=True, exist_ok=True)  # before the engine makes it, as root
    with step("docker-compose up (about half a minute)"):
        compose(ROOT, "up", "--detach", "--remove-orphans", "--no-build")
    stack = running_stack()
    with step("waiting for the API server and OPA (seconds)"):
        wait_until_ready(stack.apiserver)
        wait_until_ready(stack.opa)
    with step("waiting for kinds and roles (seconds)"):
        wait_finished("furnish", _PATIENCE)
    with step("waiting until every service is healthy (up to a minute)"):
        for service in OWN_SERVICES:
            wait_healthy(service, _PATIENCE)
        wait_until_ready(prometheus())
    return stack


def down() -> None:
    """Remove the stack's containers, volumes and networks; nothing is installed for that."""
    if engine_answers() and anything_left():
        with step("docker-compose down (seconds)"):
            # With the profile, or a Grafana that somebody added would hold the network.
            ending = ("--volumes", "--remove-orphans", "--timeout", "5")
            compose(ROOT, "--profile", "grafana", "down", *ending)
    shutil.rmtree(HOST, ignore_errors=True)


def running_stack() -> RunningStack:
    """Return the stack as seen from outside, in the same shape as one of processes."""
    kubeconfigs = {role: HOST / f"{role}.kubeconfig" for role in accounts()}
    tokens = {role: _token(path) for role, path in kubeconfigs.items()}
    opa_token = HOST / "opa/token"
    ready = ("/readyz", "/api/v1/namespaces/default")
    apiserver = ComposeServer(_spec("kube-apiserver", 6443, tokens["admin"], ready))
    opa = ComposeServer(_spec("opa", 8181, opa_token.read_text(encoding="utf-8"), ("/health",)))
    return RunningStack(
        folder=HOST,
        form="compose",
        etcd=ComposeServer(_unpublished("etcd")),
        apiserver=apiserver,
        opa=opa,
        apiserver_url=apiserver.url,
        apiserver_ca_file=HOST / "ca.crt",
        kube_tokens=tokens,
        kubeconfigs=kubeconfigs,
        opa_url=opa.url,
        opa_ca_file=HOST / "opa/ca.crt",
        opa_token_files={"replicator": opa_token},
        api=KubeApi(apiserver.url, HOST / "ca.crt", tokens["admin"]),
    )


def client_settings() -> dict[str, object]:
    """Return the configuration of a person outside: OPA, the decision stream, what is held."""
    decisions, held = published_port("replicator", 9400), published_port("remediator", 9404)
    ca_file, token_file = str(HOST / "ca.crt"), str(HOST / "decisions.token")
    opa = f"https://127.0.0.1:{published_port('opa', 8181)}"
    stream = f"https://127.0.0.1:{decisions}/v1/decisions"
    return {
        "opa": opa_settings(opa, HOST / "opa/ca.crt", HOST / "opa/token"),
        "decisions": {"url": stream, "ca_file": ca_file, "token_file": token_file},
        "remediate": {
            "listen": f"127.0.0.1:{held}",
            "token_file": str(HOST / "remediation.token"),
        },
    }


def inside(service: str) -> tuple[str, ...]:
    """Return the command that runs another one in the container of a service."""
    project = ("--file", str(ROOT / "docker-compose.yml"), "--project-name", PROJECT)
    return (*compose_command(), *project, "exec", "-T", service)


def prometheus() -> ComposeServer:
    """Return the stack's Prometheus as seen from outside."""
    url = f"http://127.0.0.1:{published_port('prometheus', 9090)}"
    spec = ServerSpec(
        name="prometheus",
        program="prometheus",
        arguments=(),
        folder=HOST,
        url=url,
        ready_paths=("/-/ready",),
        patience=_PATIENCE,
    )
    return ComposeServer(spec)


def _spec(service: str, port: int, token: str, ready_paths: tuple[str, ...]) -> ServerSpec:
    return ServerSpec(
        name=service,
        program=service,
        arguments=(),
        folder=HOST,
        url=f"https://127.0.0.1:{published_port(service, port)}",
        ready_paths=ready_paths,
        ca_file=HOST / "ca.crt",
        token=token,
        patience=_PATIENCE,
    )


def _unpublished(service: str) -> ServerSpec:
    """Describe a service that only its neighbours reach; its readiness is not to be seen."""
    return ServerSpec(
        name=service, program=service, arguments=(), folder=HOST, url="", ready_paths=()
    )


def _token(kubeconfig: Path) -> str:
    """Return the token in a kubeconfig that the service init wrote (JSON, which is YAML too)."""
    user = json.loads(kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]
    return str(user["token"])
