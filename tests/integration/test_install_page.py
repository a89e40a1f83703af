"""The commands of docs/install.md, in their order, on a real API server that has no nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.fakes.manifests import Manifest, of_kind
from tools.servers.apiserver import RunningApiserver, start_apiserver
from tools.servers.binaries import ensure_binary
from tools.servers.running import Launcher
from tools.servers.stack import kubectl

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/install.md").read_text(encoding="utf-8")
# What the page leaves to whoever reads it.
HANDS = {name: f"a-token-of-the-{name}" for name in ("TOKEN", "REPLICATOR", "ADMISSION", "METRICS")}
BY_HAND = ("kube-sync-opa-metrics", "kube-sync-opa-access", "kube-sync-opa-tls")

_PODS = "needs pods, of which there are none without nodes"
NOT_RUN = {
    "make setup": "whoever runs the tests has done it",
    "make image": "test_image builds and tries the image",
    "kubectl --namespace kube-sync wait"
    " --for=condition=Available deployment --all --timeout=3m": _PODS,
    "kubectl --namespace kube-sync port-forward deployment/kube-sync 9401:9401": _PODS,
    "curl --silent http://127.0.0.1:9401/readyz": _PODS,
    "kubectl kube-sync version": _PODS,
    "kubectl kube-sync remediate status": _PODS,
    "kubectl --namespace kube-sync logs job/provision-now": _PODS,
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def run_here(block: str) -> str:
    """Return what is left of a block without the commands that are named above."""
    return "".join(line for line in block.splitlines(keepends=True) if line.strip() not in NOT_RUN)


@dataclass
class Reader:
    """Somebody with a checkout, a cluster and the tools, who does what the page says."""

    folder: Path
    cluster: RunningApiserver

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return kubectl(self.cluster.kubeconfigs["admin"], *arguments, stdin=stdin)

    def does(self, commands: str, role: str = "admin") -> str:
        """Run a block of commands to its end, of which each has to succeed."""
        tools = (ensure_binary("kubectl").parent, Path(sys.executable).parent)
        path = os.pathsep.join([*map(str, tools), os.environ["PATH"]])
        kubeconfig = str(self.cluster.kubeconfigs[role])
        more = {
            "PATH": path,
            "KUBECONFIG": kubeconfig,
            "KUBE_SYNC_KUBERNETES_KUBECONFIG": kubeconfig,
        }
        with subprocess.Popen(
            ["/bin/bash", "-euo", "pipefail", "-c", commands],
            cwd=self.folder,
            env=dict(os.environ) | HANDS | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as shell:
            while True:
                try:
                    said, _ = shell.communicate(timeout=2)
                    break
                except subprocess.TimeoutExpired:
                    self.end_namespaces()
        assert shell.returncode == 0, f"{commands}\n{said}"
        return said

    def end_namespaces(self) -> None:
        """Let those go that were deleted, as the controller does that this cluster has not."""
        for found in json.loads(self.kubectl("get", "namespaces", "--output=json"))["items"]:
            if "deletionTimestamp" in found["metadata"]:
                path = f"/api/v1/namespaces/{found['metadata']['name']}/finalize"
                ended = json.dumps(found | {"spec": {"finalizers": []}})
                self.kubectl("replace", f"--raw={path}", "-f", "-", stdin=ended)

    def secrets(self) -> dict[str, Manifest]:
        listed = self.kubectl("get", "secrets", "--namespace=kube-sync", "--output=json")
        return {one["metadata"]["name"]: one for one in json.loads(listed)["items"]}


@pytest.fixture
def reader(launcher: Launcher, tmp_path: Path) -> Iterator[Reader]:
    here = tmp_path / "checkout"
    for folder in ("manifests", "rego"):
        shutil.copytree(ROOT / folder, here / folder)
    (here / "my-cluster-crds").mkdir()
    shutil.copy(ROOT / "tests/crds/clusterprofiles.yaml", here / "my-cluster-crds")
    cluster = start_apiserver(launcher, tmp_path / "cluster")
    yield Reader(here, cluster)
    cluster.stop()


def test_what_is_not_run_is_on_the_page() -> None:
    lines = {line for block in blocks("sh") for line in block.splitlines()}
    assert set(NOT_RUN) <= lines


def test_whoever_does_what_the_page_says_has_it_installed_and_gone_again(reader: Reader) -> None:
    *there, gone = filter(str.strip, map(run_here, blocks("sh")))
    assert "kubectl delete" in gone
    for block in there:
        reader.does(block)
    made_by_hand = {name: reader.secrets()[name] for name in BY_HAND}
    said = reader.does("kube-sync provision", role="provision").splitlines()
    assert len(said) > 3
    assert not [line for line in said if any(name in line for name in BY_HAND)]
    assert {name: reader.secrets()[name] for name in BY_HAND} == made_by_hand
    knows_tokens(reader)
    reader.does(gone)
    left = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    assert reader.kubectl("get", left, "--output=name") == ""
    assert "kube-sync" not in reader.kubectl("get", "namespaces", "--output=name")


def knows_tokens(reader: Reader) -> None:
    """OPA reads what was made by hand, and knows whose token is which."""
    for token, allowed in ((HANDS["REPLICATOR"], "true"), (HANDS["METRICS"], "false")):
        asked = {"identity": token, "method": "GET", "path": ["v1", "config"]}
        (reader.folder / "input.json").write_text(json.dumps(asked), encoding="utf-8")
        opa = ensure_binary("opa")
        query = "--bundle authz.tar.gz --input input.json --format raw data.system.authz.allow"
        assert reader.does(f"{opa} eval {query}").strip() == allowed


def test_an_overlay_of_ones_own_is_as_the_page_says(tmp_path: Path) -> None:
    own, variables, port = blocks("yaml")
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    folder = tmp_path / "my-cluster"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(own + variables + port, encoding="utf-8")
    built = subprocess.run(
        [ensure_binary("kubectl"), "kustomize", folder], capture_output=True, check=True, timeout=60
    )
    manifests = list(yaml.safe_load_all(built.stdout))
    deployments = of_kind(manifests, "Deployment")
    used = {
        container["image"]
        for found in deployments
        for container in found["spec"]["template"]["spec"]["containers"]
    }
    assert used == {"registry.example.com/kube-sync:1.0", "registry.example.com/opa:1.22.0-static"}
    said = [
        found["data"].get("KUBE_SYNC_REMEDIATE_MODE") for found in of_kind(manifests, "ConfigMap")
    ]
    assert "dry-run" in said
    assert "enforce" not in said
    [default] = [
        found
        for found in of_kind(manifests, "NetworkPolicy")
        if found["metadata"]["name"] == "kube-sync-default"
    ]
    names, api_servers = (rule["ports"] for rule in default["spec"]["egress"])
    assert {"protocol": "TCP", "port": 7443} in api_servers
    assert 7443 not in [one["port"] for one in names]
