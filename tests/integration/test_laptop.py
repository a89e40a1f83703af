"""`kube-sync run` with a kubeconfig and an `opa` in PATH, and nothing else.

What it says is missing is mended by the commands that it names, each run as it stands there.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.integration.test_pair import PLACED
from tools.demo.components import GUARD_OFF
from tools.demo.fleet import FLEET, PREFERENCES, cluster, policy_map, replica_set
from tools.demo.fleet import namespace as namespace_manifest
from tools.servers.apiserver import write_kubeconfig
from tools.servers.binaries import ensure_binary
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, ServerSpec, free_port
from tools.servers.stack import RunningStack


@dataclass
class Laptop:
    """A process that somebody without rights started, and what it logs."""

    stack: RunningStack
    server: RunningServer
    home: str  # coordination.namespace
    policies: str

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Return the log lines of an event."""
        log = (self.server.spec.folder / "run.log").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def mend(self, command: str) -> None:
        """Run a command of the log in a shell, as an administrator."""
        environment = {
            "PATH": f"{ensure_binary('kubectl').parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.stack.kubeconfigs["admin"]),
            "HOME": str(self.server.spec.folder),
        }
        shell = ["/bin/bash", "-ec", command]
        subprocess.run(shell, check=True, capture_output=True, env=environment)


@pytest.fixture
def laptop(stack: RunningStack, namespace: str, tmp_path: Path) -> Iterator[Laptop]:
    """Start it as an account that may do nothing but what everybody may."""
    suffix = secrets.token_hex(3)
    home, policies = f"home-{suffix}", f"policies-{suffix}"
    server = ProcessLauncher().launch(
        _spec(tmp_path, _person(stack, namespace, tmp_path), home, policies)
    )
    yield Laptop(stack, server, home, policies)
    server.stop()
    for resource in ("clusterroles", "clusterrolebindings"):
        for name in (
            "clusterprofiles-list-watch",
            "replicasets-list-watch-patch",
            "events-create-patch",
        ):
            stack.api.delete(resource, f"kube-sync-run-{name}")


def _person(stack: RunningStack, namespace: str, folder: Path) -> Path:
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    stack.api.apply({**account, "metadata": {"name": "person", "namespace": namespace}})
    token = stack.kubectl("create", "token", "person", "-n", namespace).strip()
    return write_kubeconfig(folder, "person", stack.apiserver_url, stack.apiserver_ca_file, token)


def _spec(folder: Path, kubeconfig: Path, home: str, policies: str) -> ServerSpec:
    port, stream = free_port(), free_port()
    guard = {f"KUBE_SYNC_REMEDIATE_GUARD_{key.upper()}": str(v) for key, v in GUARD_OFF.items()}
    return ServerSpec(
        name="run",
        program=str(Path(sys.executable).with_name("kube-sync")),
        arguments=("run",),
        folder=folder,
        environment={
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{ensure_binary('opa').parent}:{os.environ['PATH']}",
            # Names and ports of the test's own.
            "KUBE_SYNC_COORDINATION_NAMESPACE": home,
            "KUBE_SYNC_POLICIES_NAMESPACES": json.dumps([policies]),
            "KUBE_SYNC_OBSERVE_LISTEN": f"127.0.0.1:{port}",
            "KUBE_SYNC_REMEDIATE_LISTEN": f"127.0.0.1:{free_port()}",
            "KUBE_SYNC_DECISIONS_LISTEN": f"127.0.0.1:{stream}",
            "KUBE_SYNC_DECISIONS_URL": f"http://127.0.0.1:{stream}/v1/decisions",
            **guard,
        },
        url=f"http://127.0.0.1:{port}",
        ready_paths=("/livez",),
    )


async def test_what_is_used_and_what_is_missing_is_said_with_the_command_that_mends_it(
    laptop: Laptop,
) -> None:
    found = await eventually(lambda: laptop.logged("missing"), lambda found: len(found) == 8)
    assert [one["what"] for one in found] == [
        f"namespace {laptop.home}, perhaps: it may not be read",
        f"namespace {laptop.policies}, perhaps: it may not be read",
        "right to list, watch clusterprofiles.multicluster.x-k8s.io",
        "right to list, watch, patch replicasets.apps",
        f"right to get, create, update leases.coordination.k8s.io in {laptop.home}",
        f"right to get, create, patch configmaps in {laptop.home}",
        f"right to list, watch, patch configmaps in {laptop.policies}",
        "right to create, patch events.events.k8s.io",
    ]
    defaults = {one["setting"]: one["value"] for one in laptop.logged("default")}
    assert defaults["remediate.mode"] == "enforce"
    (opa,) = await eventually(lambda: laptop.logged("opa_started"))
    assert opa["url"] == defaults["opa.url"]


@pytest.mark.slow
async def test_it_places_once_everything_that_it_named_is_mended(
    laptop: Laptop, namespace: str
) -> None:
    found = await eventually(lambda: laptop.logged("missing"), lambda one: len(one) == 8)
    for one in found:
        laptop.mend(one["mend"])
    stack = laptop.stack
    stack.api.apply(namespace_manifest(FLEET))
    policy, web = policy_map(PLACED), replica_set("web")
    policy["metadata"]["namespace"] = laptop.policies
    web["metadata"]["namespace"] = namespace
    for manifest in (cluster("west", "europe-west1", "2"), policy, web):
        stack.api.apply(manifest, force=True)

    def placed() -> Any:
        metadata = stack.api.get("replicasets", "web", namespace)["metadata"]
        text = (metadata.get("annotations") or {}).get(PREFERENCES)
        return sorted(json.loads(text)["clusters"]) if text else None

    await eventually(placed, ["west"], 100)
    stack.api.delete("clusterprofiles", "west", FLEET)
