"""The chart and the plugin of kubectl on a real node: kubelet, containers, Services, names.

What other tests stand in for is real here: the image runs as the manifests say, secrets are
mounted, probes are asked, the webhook answers at its Service, and a kubelet forwards the ports. One
release for the module; the tests follow its life, in their order.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync import __version__
from tests.eventually import eventually
from tests.integration.helm_release import NAMESPACE, RELEASE, Helm
from tests.integration.test_pair import PLACED, STATUS
from tools.charting.chart import CHART, ROOT
from tools.demo.fleet import (
    FLEET,
    POLICIES,
    PREFERENCES,
    SHOP,
    cluster,
    namespace,
    policy_map,
    replica_set,
)
from tools.servers.apiserver import RunningApiserver
from tools.servers.binaries import ensure_binary
from tools.servers.http import get
from tools.servers.images import ensure_image
from tools.servers.kubeapi import KubeApi
from tools.servers.node import node_cluster
from tools.servers.processes import end_recorded
from tools.servers.project_image import ensure_project_image
from tools.servers.running import Launcher
from tools.servers.stack import install_kinds

pytestmark = [pytest.mark.built("node"), pytest.mark.timeout(600)]

IMAGE = "--set=image.tag=dev"
# The overlay `production` without the operators that it needs.
PRODUCTION = (
    f"--values={CHART}/ci/production-values.yaml",
    "--set=certificates=provision",
    "--set=prometheus.monitors.enabled=false",
    "--set=prometheus.rules.enabled=false",
)
ROOTED = "import os, pathlib; print(os.getuid()); pathlib.Path('/here').touch()"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster of one node, and a person with helm, kubectl and a kubeconfig."""

    running: RunningApiserver
    helm: Helm

    @property
    def api(self) -> Any:
        """The API server, as its administrator."""
        return self.running.api

    def person(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as somebody who has the programs in PATH, and no configuration."""
        programs = [Path(sys.executable), *map(ensure_binary, ("kubectl", "opa"))]
        environment = {
            "HOME": str(self.helm.home),
            "PATH": ":".join([*(str(one.parent) for one in programs), os.environ["PATH"]]),
            "KUBECONFIG": str(self.running.kubeconfigs["admin"]),
        }
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def says(self, *command: str) -> str:
        """Return what a command prints that has to succeed."""
        done = self.person(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pods(self) -> dict[str, Any]:
        """Return the pods of the installation that are not to end, by name."""
        found = self.api.get("pods", namespace=NAMESPACE)["items"]
        return {
            one["metadata"]["name"]: one
            for one in found
            if "deletionTimestamp" not in one["metadata"]
        }


@pytest.fixture(scope="module")
def node(
    launcher: Launcher, project_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    if launcher.form != "containers":
        pytest.fail("a node takes its images from a container engine, and there is none here")
    end_recorded(tmp_path_factory.getbasetemp().parent, orphans_only=True)
    ensure_project_image()  # another checkout builds under the same name
    folder = tmp_path_factory.mktemp("node")
    with node_cluster(folder, (project_image, ensure_image("opa"))) as running:
        install_kinds(running.api, ROOT / "tests/crds/clusterprofiles.yaml")
        yield Cluster(running, Helm(running, folder / "helm", seconds=300))


@pytest.fixture(scope="module")
def installed(node: Cluster) -> Cluster:
    """The release, ready, in a namespace that Pod Security restricts."""
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": NAMESPACE, "labels": restricted}
    node.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    node.helm("install", RELEASE, str(CHART), IMAGE, "--wait")
    for name in (FLEET, SHOP):
        node.api.apply(namespace(name))
    node.api.apply(cluster("west", "europe-west1", "2"))
    return node


def test_all_pods_run_and_none_was_started_twice(installed: Cluster) -> None:
    statuses = [pod["status"] for pod in installed.pods().values()]
    assert sorted(status["phase"] for status in statuses)[:4] == [*["Running"] * 3, "Succeeded"]
    containers = [one for status in statuses for one in status["containerStatuses"]]
    assert {one["restartCount"] for one in containers} == {0}


def test_containers_have_no_root_and_write_nowhere(installed: Cluster) -> None:
    for target in ("kube-sync", "kube-sync-admission"):
        run = ("exec", f"deployment/{target}", f"--namespace={NAMESPACE}", "--", "python3", "-c")
        done = installed.person("kubectl", *run, ROOTED)
        assert done.stdout == "65532\n", done.stderr
        assert "Read-only file system" in done.stderr


def test_test_of_the_chart_passes(installed: Cluster) -> None:
    assert "Phase:          Succeeded" in installed.helm("test", RELEASE, "--logs")


async def test_a_policy_places_what_is_created_and_what_there_is(installed: Cluster) -> None:
    api = installed.api
    before = replica_set("before")
    before["spec"]["replicas"] = 0
    api.create(before)
    api.apply(policy_map(PLACED))
    await eventually(lambda: status_of_policy(api)["status"], "ok")
    await eventually(lambda: placement(api, "before"), ["west"])
    web = replica_set("web")
    web["spec"]["replicas"] = 0
    # By the webhook: what is created has it already.
    assert PREFERENCES in api.create(web)["metadata"]["annotations"]


def status_of_policy(api: Any) -> Any:
    annotations = api.get("configmaps", "placement", POLICIES)["metadata"].get("annotations", {})
    return json.loads(annotations.get(STATUS, '{"status": ""}'))


def placement(api: Any, name: str) -> list[str]:
    annotations = api.get("replicasets", name, SHOP)["metadata"].get("annotations", {})
    return sorted(json.loads(annotations.get(PREFERENCES, '{"clusters": {}}'))["clusters"])


async def test_plugin_of_kubectl_needs_a_kubeconfig_and_nothing_else(installed: Cluster) -> None:
    """The commands that docs/kubectl.md begins with, through the ports of the pod."""
    said = installed.says("kubectl", "kube-sync", "version")
    versions = dict(line.split(": ", 1) for line in said.splitlines())
    assert versions["Client Version"] == versions["Server Version"] == __version__
    assert versions["Policies Revision"]
    assert "west" in installed.says("kubectl", "kube-sync", "why", "rs/web", "-n", SHOP)
    decided = installed.says("kubectl", "kube-sync", "decisions", "-n", SHOP, "-o", "name")
    assert "replicasets.apps/web" in decided.split()
    assert installed.says("kubectl", "kube-sync", "remediate", "status") == "nothing waits\n"
    assert "clusters" in installed.says("kubectl", "kube-sync", "analyze", "--live")
    config = yaml.safe_load(installed.says("kubectl", "kube-sync", "config"))
    assert config["remediate"]["mode"] == "enforce"


def test_every_process_tells_that_it_is_ready(installed: Cluster) -> None:
    """As docs/install.md looks at it."""
    for target, port in {"kube-sync": 9401, "kube-sync-admission": 9403}.items():
        assert said_on(installed, target, port).splitlines()[-1] == "ready"
    assert said_on(installed, "kube-sync", 9402).splitlines()[-1] == "ready"


def said_on(node: Cluster, target: str, port: int) -> str:
    """Return the page `readyz` of a port of a Deployment, which kubectl forwards."""
    kubeconfig = f"--kubeconfig={node.running.kubeconfigs['admin']}"
    forward = (f"--namespace={NAMESPACE}", "port-forward", f"deployment/{target}", f":{port}")
    with subprocess.Popen(
        [ensure_binary("kubectl"), kubeconfig, *forward],
        stdout=subprocess.PIPE,
        text=True,
    ) as forwarding:
        try:
            assert forwarding.stdout is not None
            (local,) = re.findall(r"127.0.0.1:(\d+)", forwarding.stdout.readline())
            return get(f"http://127.0.0.1:{local}/readyz").body.decode()
        finally:
            forwarding.terminate()


def test_job_of_the_hour_has_nothing_to_do(installed: Cluster) -> None:
    name, within = "provision-now", f"--namespace={NAMESPACE}"
    installed.says("kubectl", within, "create", "job", name, "--from=cronjob/kube-sync-provision")
    installed.says("kubectl", within, "wait", "--for=condition=Complete", f"job/{name}")
    assert installed.says("kubectl", within, "logs", f"job/{name}") == "nothing to do\n"
    installed.says("kubectl", within, "delete", "job", name)


def unregistered(api: KubeApi) -> set[str]:
    """Return the webhooks whose registration has no certificate authority yet."""
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    return {
        webhook["name"]
        for kind in kinds
        for one in api.get(kind)["items"]
        for webhook in one["webhooks"]
        if "caBundle" not in webhook["clientConfig"]
    }


async def test_release_is_upgraded_rolled_back_and_removed(installed: Cluster) -> None:
    helm = installed.helm
    helm("upgrade", RELEASE, str(CHART), IMAGE, *PRODUCTION, "--wait")
    # Of new registrations, which refuse until then; no pod's readiness tells of it (docs/helm.md).
    await eventually(partial(unregistered, installed.api), set(), seconds=180)
    helm("test", RELEASE)
    assert placement(installed.api, "web") == ["west"]
    helm("rollback", RELEASE, "1", "--wait")
    helm("test", RELEASE)
    helm("uninstall", RELEASE, "--wait")
    await eventually(installed.pods, {})
    assert placement(installed.api, "web") == ["west"]


def test_overlay_is_installed_and_gone_again_as_its_page_says(installed: Cluster) -> None:
    apply = "kubectl apply --server-side -k manifests/overlays/minimal"
    available = "--for=condition=Available deployment --all --timeout=3m"
    wait = f"kubectl --namespace {NAMESPACE} wait {available}"
    delete = "kubectl delete --ignore-not-found -k manifests/overlays/minimal"
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8").splitlines()
    assert {apply, wait, delete} <= {*page}
    installed.says(*apply.split())
    installed.says(*wait.split())
    assert said_on(installed, "kube-sync", 9401).splitlines()[-1] == "ready"
    installed.says(*delete.split())
    assert installed.pods() == {}
