"""The API server shows the webhook who it is, by a certificate that the webhook asks for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from kube_sync.certificates import issue, make_authority
from tools.demo.components import start_service
from tools.demo.fleet import replica_set
from tools.demo.webhook import register_webhook
from tools.servers.errors import ToolError
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, free_port
from tools.servers.stack import RunningStack, start_stack

pytestmark = pytest.mark.slow

_GROUP = "apiserver.config.k8s.io/v1"


@dataclass
class World:
    """A stack whose API server has a certificate for webhooks, and one webhook after the other."""

    stack: RunningStack
    start: Callable[[str], RunningServer]

    def create(self, name: str) -> None:
        """Create a ReplicaSet."""
        manifest = replica_set(name)
        manifest["metadata"]["namespace"] = "default"
        self.stack.kubectl("create", "-f", "-", stdin=json.dumps(manifest))


def _for_webhooks(folder: Path) -> Path:
    """Write what `--admission-control-config-file` takes; return the file."""
    user = {
        "client-certificate": str(folder / "api-server.crt"),
        "client-key": str(folder / "api-server.key"),
    }
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}
    named = write_file(folder / "webhooks.kubeconfig", yaml.safe_dump(kubeconfig).encode())
    plugins = [
        {
            "name": f"{kind}AdmissionWebhook",
            "configuration": {
                "apiVersion": _GROUP,
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": str(named),
            },
        }
        for kind in ("Mutating", "Validating")
    ]
    configuration = {"apiVersion": _GROUP, "kind": "AdmissionConfiguration", "plugins": plugins}
    return write_file(folder / "admission.yaml", yaml.safe_dump(configuration).encode())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """As processes: in a container the API server would not find the files."""
    folder, authority = tmp_path / "tls", make_authority("both")
    write_pair(folder, "tls", issue(authority, "webhook", LOOPBACK))
    write_pair(folder, "api-server", issue(authority, "api-server", ["api-server"]))
    ca_file = write_file(folder / "ca.crt", authority.cert_pem)
    flag = f"--admission-control-config-file={_for_webhooks(folder)}"
    stack = start_stack(ProcessLauncher(), tmp_path / "stack", apiserver_arguments=(flag,))
    started: list[RunningServer] = []

    def start(client: str) -> RunningServer:
        port = free_port()
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admission"])},
            "opa": stack.opa_settings(),
            "admission": {
                "listen": f"127.0.0.1:{port}",
                "cert_file": str(folder / "tls.crt"),
                "key_file": str(folder / "tls.key"),
                "client_ca_file": str(ca_file),
                "client_names": [client],
            },
        }
        started.append(start_service("admit", tmp_path / client, configuration))
        register_webhook(stack, f"https://127.0.0.1:{port}/admit/placement", authority.cert_pem)
        return started[-1]

    try:
        stack.furnish()
        yield World(stack, start)
    finally:
        for server in started:
            server.kill()
        stack.stop()


def test_the_api_server_is_answered_by_its_name_and_by_no_other(world: World) -> None:
    webhook = world.start("api-server")
    world.create("known")
    assert '"object": "default/known"' in webhook.logs()
    world.start("somebody-else")
    with pytest.raises(ToolError, match=r"admission\.client_names"):
        world.create("unknown")
