"""`kubectl kube-sync` finds an installation through the real API server, and reaches its servers.

It is what `make up STACK=processes` has: the pod, its configuration and its Secrets are those of
the manifests. What is stood in for is the kubelet: ports of the pod are those of processes here.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync import CONFIG_ENV, __version__
from tests.commandline import Finished, kube_sync
from tests.eventually import eventually
from tests.integration.test_pair import PLACED
from tools.demo.components import UNBRAKED, start_components
from tools.demo.fleet import FLEET, POLICIES, cluster, policy_map, replica_set
from tools.demo.fleet import namespace as namespace_manifest
from tools.demo.installation import show_installation
from tools.servers.apiserver import write_kubeconfig
from tools.servers.binaries import ensure_binary
from tools.servers.installation import NAMESPACE, POD, start_pod, withdraw
from tools.servers.kubelet import Kubelet
from tools.servers.running import Launcher
from tools.servers.secured_opa import start_opa
from tools.servers.stack import RunningStack

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/kubectl.md").read_text(encoding="utf-8")
VIEWER = "kube-sync-viewer"
SHOP = "plugin-shop"
MANUAL = {**UNBRAKED, "mode": "manual"}


@dataclass
class Installed:
    """An installation, and a person with a kubeconfig and nothing else."""

    stack: RunningStack
    folder: Path
    kubelet: Kubelet

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run kubectl as a person does, who has the programs in PATH and a kubeconfig."""
        programs = [Path(sys.executable), *map(ensure_binary, ("kubectl", "opa"))]
        environment = {
            "HOME": str(self.folder),
            "PATH": ":".join([*(str(one.parent) for one in programs), os.environ["PATH"]]),
            "KUBECONFIG": str(self.stack.kubeconfigs["admin"]),
        }
        return subprocess.run(
            [ensure_binary("kubectl"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=60,
        )

    def run(self, *arguments: str, kubeconfig: Path | None = None) -> Finished:
        """Run `kubectl kube-sync` in this process, which costs no starts of programs."""
        found = kubeconfig or self.stack.kubeconfigs["admin"]
        return kube_sync(*arguments, "--kubeconfig", str(found), plugin=True)

    def answer(self, *arguments: str) -> str:
        """Return what a command prints that has to succeed."""
        finished = self.run(*arguments)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout


@pytest.fixture(scope="module")
def installed(
    stack: RunningStack, launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("plugin")
    opa = start_opa(launcher, folder / "opa")
    own = replace(
        stack,
        opa=opa.server,
        opa_url=opa.url,
        opa_ca_file=opa.ca_file,
        opa_token_files=opa.token_files,
        replicator=opa.replicator,
    )
    for name in (FLEET, SHOP):
        stack.api.apply(namespace_manifest(name))
    web = replica_set("web")
    web["metadata"]["namespace"] = SHOP
    for manifest in (cluster("west", "europe-west1", "2"), policy_map(PLACED), web):
        stack.api.apply(manifest, force=True)
    components = start_components(own, folder / "components", MANUAL)
    kubelet = show_installation(own, folder / "kubelet", components, MANUAL)
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CONFIG_ENV, raising=False)
        patched.setenv("KUBE_SYNC_OPA_BINARY", str(ensure_binary("opa")))
        yield Installed(own, folder, kubelet)
    components.stop()
    withdraw(stack)
    kubelet.stop()
    for role in _roles():
        stack.api.remove(role)
        stack.api.remove({**role, "kind": f"{role['kind']}Binding"})
    opa.server.stop()
    stack.api.delete("replicasets", "web", SHOP)
    stack.api.delete("configmaps", "placement", POLICIES)
    stack.api.delete("clusterprofiles", "west", FLEET)


def test_kubectl_finds_the_plugin_and_its_completion(installed: Installed) -> None:
    plugins = installed.kubectl("plugin", "list", "--name-only").stdout
    assert "kubectl-kube_sync" in plugins.split()
    completed = installed.kubectl("__complete", "kube-sync", "why", "--names").stdout
    assert completed.startswith("--namespace\t")
    assert completed.rstrip().endswith(":4")


def test_a_question_needs_no_configuration(installed: Installed) -> None:
    asked = installed.kubectl("kube-sync", "why", "rs/web", "-n", SHOP)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert "west" in asked.stdout


async def test_decisions_come_through_the_port_of_the_pod(installed: Installed) -> None:
    def decided() -> str:
        return installed.answer("decisions", "-n", SHOP, "-o", "name")

    assert await eventually(decided, "replicasets.apps/web\n")


async def test_what_waits_is_shown_and_let_through(installed: Installed) -> None:
    def waiting() -> list[str]:
        return installed.answer("remediate", "status", "-o", "name").split()

    name = f"replicasets.apps/{SHOP}/web"
    await eventually(waiting, lambda found: name in found)
    apply = ("remediate", "apply", "rs/web", "-n", SHOP)
    assert "web: let through" in await asyncio.to_thread(installed.answer, *apply)

    def told() -> str:
        return installed.answer("why", "rs/web", "-n", SHOP)

    # The note of what was asked for is sealed with a key that the caller has not.
    assert await eventually(told, lambda text: "so       it is as decided" in text)


async def test_versions_of_all_parts_are_told(installed: Installed) -> None:
    def versions() -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = json.loads(installed.answer("version", "-o", "json"))
        return found

    found = await eventually(versions, lambda found: "version" in found["policies"])
    assert found["client"]["version"] == found["server"]["version"] == __version__
    assert found["client"]["opa"] == found["opa"]
    assert re.fullmatch(r"v1\.\d+\.\d+.*", found["kubernetes"]["version"])
    decisions = await asyncio.to_thread(installed.answer, "decisions", "-n", SHOP, "-o", "json")
    policy = next(json.loads(one)["policy"] for one in decisions.splitlines() if '"policy"' in one)
    assert found["policies"]["version"] == policy


@pytest.mark.slow
async def test_a_watch_that_is_ended_leaves_no_copy_of_a_token(
    installed: Installed, tmp_path: Path
) -> None:
    program = Path(sys.executable).with_name("kubectl-kube_sync")
    kubeconfig = str(installed.stack.kubeconfigs["admin"])
    watch = await asyncio.create_subprocess_exec(
        program,
        *("decisions", "--watch", "--kubeconfig", kubeconfig),
        stdout=subprocess.DEVNULL,
        env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
    )

    def copies() -> list[Path]:
        return [*tmp_path.rglob("token_file")]

    try:
        await eventually(copies, bool)
    finally:
        watch.terminate()
    assert await watch.wait() == 143
    assert copies() == []


@pytest.mark.slow
def test_policies_are_read_from_the_opa_of_the_pod(installed: Installed) -> None:
    assert "clusters" in installed.answer("analyze", "--live")


def test_the_configuration_of_the_installation_is_printed(installed: Installed) -> None:
    found = yaml.safe_load(installed.answer("config"))
    # The variable of the ConfigMap wins over the file, as in the pod.
    assert found["remediate"]["mode"] == "enforce"
    assert found["decisions"]["token_file"] == "/run/decisions/token"


def _roles() -> list[dict[str, Any]]:
    """Return the roles of the page."""
    (text,) = re.findall(r"^```yaml\n(.*?kind: Role.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return list(yaml.safe_load_all(text))


def _viewer(installed: Installed) -> Path:
    """Return the kubeconfig of an account that has the rights of the page, and no others."""
    stack, account = installed.stack, {"name": VIEWER, "namespace": NAMESPACE}
    stack.api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    for role in _roles():
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": VIEWER}
        binding = {**role, "kind": f"{role['kind']}Binding", "roleRef": reference}
        binding["subjects"] = [{"kind": "ServiceAccount", **account}]
        del binding["rules"]
        for manifest in (role, binding):
            stack.api.apply(manifest, force=True)
    token = stack.kubectl("create", "token", VIEWER, "-n", NAMESPACE).strip()
    return write_kubeconfig(
        installed.folder, VIEWER, stack.apiserver_url, stack.apiserver_ca_file, token
    )


async def test_rights_of_the_page_are_enough_and_each_that_is_missing_is_named(
    installed: Installed,
) -> None:
    own = _viewer(installed)

    def said(*arguments: str) -> str:
        finished = installed.run(*arguments, kubeconfig=own)
        return finished.stdout or finished.stderr

    def decided() -> str:
        return said("decisions", "-n", SHOP, "-o", "name")

    await eventually(decided, "replicasets.apps/web\n")
    assert "west" in await asyncio.to_thread(said, "why", "rs/web", "-n", SHOP)
    for right, named in {
        "secrets": 'Secret kube-sync/kube-sync-decisions: 403 secrets "kube-sync-decisions"',
        "pods/portforward": f"port 9400 of pod kube-sync/{POD}: 403",
        "pods": '403 pods is forbidden: User "system:serviceaccount:kube-sync:kube-sync-viewer"',
        "configmaps": '403 configmaps "kube-sync-variables-',
    }.items():
        role = _roles()[0]
        role["rules"] = [rule for rule in role["rules"] if right not in rule["resources"]]
        installed.stack.api.apply(role, force=True)
        # RBAC's own caches follow within a moment.
        await eventually(decided, lambda text, named=named: named in text)


@pytest.mark.slow
def test_a_context_names_the_namespace_of_what_names_none(
    installed: Installed, tmp_path: Path
) -> None:
    whole = json.loads(installed.stack.kubeconfigs["admin"].read_text(encoding="utf-8"))
    whole["contexts"][0]["context"]["namespace"] = SHOP
    own = tmp_path / "kubeconfig"
    own.write_text(json.dumps(whole), encoding="utf-8")
    finished = installed.run("why", "rs/web", kubeconfig=own)
    assert (finished.returncode, "west" in finished.stdout) == (0, True)


@pytest.mark.slow
def test_a_pod_that_replaces_another_is_asked(installed: Installed) -> None:
    stack, kubelet = installed.stack, installed.kubelet
    ports = kubelet.ports[f"{NAMESPACE}/{POD}"]
    kubelet.forward({f"{NAMESPACE}/kube-sync-1": ports})
    start_pod(stack, "kube-sync-1")
    stack.api.delete("pods", POD, NAMESPACE)
    assert "web" in installed.answer("decisions", "-n", SHOP)
