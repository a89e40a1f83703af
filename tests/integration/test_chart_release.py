"""A release of the chart on a real API server: installed, upgraded, rolled back and removed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
import yaml

from kube_sync import __version__
from tests.eventually import eventually
from tests.integration.earlier import export_release, previous_release
from tests.integration.helm_release import NAMESPACE, RELEASE, Helm, earlier_chart
from tests.integration.webhook_world import webhook_world
from tools.charting.chart import CHART, ROOT
from tools.demo.components import start_components
from tools.demo.fleet import PREFERENCES
from tools.servers.apiserver import RunningApiserver, start_apiserver
from tools.servers.errors import ToolError
from tools.servers.http import request
from tools.servers.kubeapi import KubeApi
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, apply, install_kinds, start_stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

POLICIES = "kube-federation-scheduling-policy"
WEBHOOK = "kube-sync-placement"
EARLIER = "0.0.1"
PROGRAM = (sys.executable, "-m", "kube_sync")
REGISTRATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
IMAGE = "--set=image.tag=dev"


@pytest.fixture
def helm(launcher: Launcher, tmp_path: Path) -> Iterator[Helm]:
    """Helm on a cluster of its own, with the kinds that all installations need."""
    cluster = start_apiserver(launcher, tmp_path / "cluster")
    for kinds in ("tests/crds", "tests/crds/operators"):
        install_kinds(cluster.api, ROOT / kinds)
    yield Helm(cluster, tmp_path / "helm")
    cluster.stop()


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as it would be of the release before: of its manifests."""
    folder = tmp_path_factory.mktemp("earlier")
    export_release(previous_release(), folder, trees=("manifests",))
    return earlier_chart(folder / "manifests", folder / "chart", EARLIER)


def provision(helm: Helm, folder: Path) -> list[str]:
    """Do what the Job does, with its account; return what it says."""
    config = helm.cluster.api.get("configmaps", "kube-sync", NAMESPACE)["data"]["config.yaml"]
    file = folder / "config.yaml"
    file.write_text(config, encoding="utf-8")
    kubeconfig = str(helm.cluster.kubeconfigs["provision"])
    ran = subprocess.run(
        [*PROGRAM, "provision", "--config", str(file)],
        env={"KUBE_SYNC_KUBERNETES_KUBECONFIG": kubeconfig},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def specs(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return what objects say, but for their metadata, and for Jobs, which are made anew."""
    return {
        name: {part: value for part, value in one.items() if part not in ("metadata", "status")}
        for name, one in objects.items()
        if one["kind"] != "Job"
    }


def ours(api: KubeApi) -> set[str]:
    """Return what there is of the release, of kinds that would still have an effect."""
    kinds = (
        "deployments.apps",
        "services",
        "clusterroles",
        "clusterrolebindings",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "cronjobs.batch",
        "jobs.batch",
        "networkpolicies",
        "serviceaccounts",
        "customresourcedefinitions",
        "namespaces",
    )
    return {
        f"{kind} {one['metadata']['name']}"
        for kind in kinds
        for one in api.get(kind)["items"]
        if (one["metadata"].get("labels") or {}).get("app.kubernetes.io/instance") == RELEASE
    }


KEPT = {
    f"namespaces {POLICIES}",
    "customresourcedefinitions placementpolicies.policy.kube-sync.io",
    "customresourcedefinitions schedulingpolicies.policy.kube-sync.io",
    "customresourcedefinitions metadatapolicies.policy.kube-sync.io",
}


def test_release_is_installed_upgraded_rolled_back_and_removed(
    helm: Helm, earlier: Path, tmp_path: Path
) -> None:
    api = helm.cluster.api
    kinds = "--set=crds.enabled=true"
    helm("install", RELEASE, str(earlier), "--create-namespace", IMAGE, kinds)
    assert len(provision(helm, tmp_path)) > 3
    secrets = secrets_of_pods(api)
    assert len(secrets) > 6
    register_itself(api)
    registered = registrations(api)
    installed = helm.objects()
    assert len(installed) > 30
    policy = {"metadata": {"name": "p", "namespace": POLICIES}, "data": {"p.rego": "package p"}}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", **policy})

    helm("upgrade", RELEASE, str(CHART), f"--values={CHART}/ci/production-values.yaml", IMAGE)
    upgraded = helm.objects()
    assert defined(upgraded) != defined(installed), "the previous release has other fields"
    assert any(name.startswith(f"Job {NAMESPACE}/kube-sync-provision-2-") for name in upgraded)
    assert f"Certificate {NAMESPACE}/kube-sync-opa" in upgraded
    assert upgraded[f"Deployment {NAMESPACE}/kube-sync"]["spec"]["replicas"] == 2
    assert registrations(api) == registered
    assert secrets_of_pods(api) == secrets
    register_itself(api)

    helm("rollback", RELEASE, "1")
    assert specs(helm.objects()) == specs(installed)
    assert helm.history()[-1] == (3, f"kube-sync-{EARLIER}", "deployed")
    assert ours(api) >= KEPT, "policies would be lost"

    helm("uninstall", RELEASE)
    assert ours(api) == KEPT
    assert api.get("configmaps", "p", POLICIES)["data"] == policy["data"]

    helm("install", RELEASE, str(CHART), IMAGE, "--set=crds.enabled=true")
    assert ours(api) > KEPT
    assert helm.history() == [(1, f"kube-sync-{__version__}", "deployed")]


def defined(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemas of our kinds, as the cluster has them."""
    definitions = "CustomResourceDefinition /"
    return {
        name: one["spec"]["versions"][0]["schema"]
        for name, one in objects.items()
        if name.startswith(definitions)
    }


def secrets_of_pods(api: KubeApi) -> dict[str, Any]:
    """Return what is in each Secret that is not Helm's own."""
    return {
        one["metadata"]["name"]: one.get("data")
        for one in api.get("secrets", namespace=NAMESPACE)["items"]
        if not one["type"].startswith("helm.sh/")
    }


def register_itself(api: KubeApi) -> None:
    """Write into each registration what the webhook does, as long as there is no policy."""
    for kind in REGISTRATIONS:
        for one in api.get(kind)["items"]:
            own = [
                {
                    **webhook,
                    "failurePolicy": "Ignore",
                    "clientConfig": {**client, "caBundle": "Q0E="},
                }
                for webhook in one["webhooks"]
                for client in (webhook["clientConfig"],)
            ]
            api.merge(kind, one["metadata"]["name"], {"webhooks": own})


def registrations(api: KubeApi) -> list[tuple[str, str]]:
    """Return what the webhook for placements has written."""
    found = [api.get(kind, WEBHOOK)["webhooks"] for kind in REGISTRATIONS]
    return [(one["failurePolicy"], one["clientConfig"]["caBundle"]) for [one] in found]


@pytest.mark.parametrize(
    ("installation", "kept"),
    [("hub", [POLICIES]), ("spoke", []), ("fleet", [POLICIES, "kube-sync-spokes"])],
)
def test_release_is_installed_and_removed(helm: Helm, installation: str, kept: list[str]) -> None:
    values = f"--values={CHART}/ci/{installation}-values.yaml"
    if installation == "fleet":
        helm.cluster.api.create_namespace("argocd")
    helm("install", RELEASE, str(CHART), "--create-namespace", values, IMAGE)
    assert helm.objects()
    helm("upgrade", RELEASE, str(CHART), values, IMAGE)
    helm("uninstall", RELEASE)
    assert ours(helm.cluster.api) == {f"namespaces {name}" for name in kept}


async def test_rights_in_argo_cds_namespace_come_and_go_with_their_feature(helm: Helm) -> None:
    """Tried with the accounts themselves, which the API server asks RBAC about."""
    helm.cluster.api.create_namespace("argocd")
    helm("install", RELEASE, str(CHART), "--create-namespace", IMAGE)
    health, servers, generator, placed = (
        f"--set=argocd.{feature}.enabled=true"
        for feature in ("health", "health.servers", "generator", "applicationSets")
    )
    for values, expected in (
        ((health, servers), (403, 200)),
        ((generator,), (201, 200)),
        ((placed,), (403, 403)),
        ((health,), (403, 403)),
    ):
        helm("upgrade", RELEASE, str(CHART), IMAGE, "--reset-values", *values)
        await eventually(lambda: in_argocd(helm.cluster), expected)


def in_argocd(cluster: RunningApiserver | RunningStack) -> tuple[int, int]:
    """Return with what the Job may make a Secret there, and the remediator may list them."""
    assert isinstance(cluster, RunningApiserver)
    url = f"{cluster.url}/api/v1/namespaces/argocd/secrets"
    mark = {"kube-sync.io/provisioned-at": "1"}
    token = {"metadata": {"name": "kube-sync-generator", "annotations": mark}, "type": "Opaque"}

    def status(account: str, method: str, url: str, body: str | None = None) -> int:
        token = cluster.tokens[account]
        return request(method, url, ca_file=cluster.ca_file, token=token, body=body).status

    made = status("provision", "POST", f"{url}?dryRun=All", json.dumps(token))
    return made, status("remediator", "GET", url)


def test_release_takes_over_what_kustomize_installed(helm: Helm) -> None:
    apply(helm.cluster.api, ROOT / "manifests/overlays/minimal")
    before = helm.cluster.api.get("deployments.apps", "kube-sync", NAMESPACE)["metadata"]["uid"]
    with pytest.raises(ToolError, match="invalid ownership metadata"):
        helm("install", RELEASE, str(CHART), IMAGE)
    page = (ROOT / "docs/helm.md").read_text(encoding="utf-8")
    assert "--take-ownership --force-conflicts" in page
    helm("install", RELEASE, str(CHART), IMAGE, "--take-ownership", "--force-conflicts")
    after = helm.objects()[f"Deployment {NAMESPACE}/kube-sync"]
    assert after["metadata"]["uid"] == before
    assert "checksum/config" in after["spec"]["template"]["metadata"]["annotations"]


def test_second_release_is_refused(helm: Helm) -> None:
    helm("install", RELEASE, str(CHART), "--create-namespace", IMAGE)
    with pytest.raises(ToolError, match="invalid ownership metadata"):
        helm("install", "another", str(CHART), IMAGE)


class Kubelet:
    """Runs the Pods of a namespace, outside of a cluster: Service and volumes are given."""

    def __init__(self, helm: Helm, url: str, ca_file: Path) -> None:
        self._api, self._url, self._ca_file = helm.cluster.api, url, ca_file
        self._ended = threading.Event()
        self.said: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run Pods as long as the block lasts."""
        thread = threading.Thread(target=self._run_all)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self._ended.clear()

    def _run_all(self) -> None:
        while not self._ended.wait(0.05):
            for pod in self._api.get("pods", namespace=NAMESPACE)["items"]:
                if pod["status"].get("phase") == "Pending":
                    status = {"status": {"phase": self._run(pod)}}
                    self._api.merge("pods", pod["metadata"]["name"], status, NAMESPACE, "status")

    def _run(self, pod: Any) -> str:
        """Run the one container with its arguments, and return the phase of the Pod then."""
        [container] = pod["spec"]["containers"]
        command, webhook, authority = container["args"]
        [mount] = container["volumeMounts"]
        assert authority == f"--ca-file={mount['mountPath']}/ca.crt"
        assert webhook.startswith(f"--webhook=https://kube-sync-admission.{NAMESPACE}.svc/")
        url = urljoin(self._url, urlsplit(webhook.partition("=")[2]).path)
        ran = subprocess.run(
            [*PROGRAM, command, f"--webhook={url}", f"--ca-file={self._ca_file}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        self.said.append(ran.stdout + ran.stderr)
        return "Failed" if ran.returncode else "Succeeded"


def test_helm_test_asks_the_webhook_for_a_decision(launcher: Launcher, tmp_path: Path) -> None:
    stack = start_stack(launcher, tmp_path / "stack")
    try:
        install_kinds(stack.api, ROOT / "tests/crds")
        helm = Helm(stack, tmp_path / "helm")
        helm("install", RELEASE, str(CHART), "--create-namespace", IMAGE)
        with webhook_world(launcher, stack, tmp_path / "webhook") as world:
            world.policy()
            kubelet = Kubelet(helm, world.url, world.ca_file)
            with kubelet.running():
                said = helm("test", RELEASE, "--timeout=60s")
                assert "Phase:" in said
                assert "Succeeded" in said
                world.engine.server.stop()
                with pytest.raises(ToolError, match="kube-sync-test"):
                    helm("test", RELEASE, "--timeout=60s")
        assert [text.rpartition(": ")[2].strip() for text in kubelet.said][:1] == ["admitted"]
        assert "denied: " in kubelet.said[-1]
    finally:
        stack.stop()


POLICY = """package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {"clusters": {"eu": {}}} if {
    input.kind == "Deployment"
}
"""


async def test_deployments_are_placed_with_the_values_of_the_page(
    launcher: Launcher, tmp_path: Path
) -> None:
    """With the accounts' own roles; the webhook is not registered, since no Service leads to it."""
    page = (ROOT / "docs/helm.md").read_text(encoding="utf-8")
    [block] = re.findall(
        r"^```yaml\n(config:\n  replicate:.*?)^```$", page, re.DOTALL | re.MULTILINE
    )
    (tmp_path / "values.yaml").write_text(block, encoding="utf-8")
    config = yaml.safe_load(block)["config"]
    stack = start_stack(launcher, tmp_path / "stack")
    with ExitStack() as exits:
        exits.callback(stack.stop)
        install_kinds(stack.api, ROOT / "tests/crds")
        values = f"--values={tmp_path}/values.yaml"
        Helm(stack, tmp_path / "helm")("install", RELEASE, str(CHART), "--create-namespace", values)
        for kind in REGISTRATIONS:
            stack.api.delete(kind, WEBHOOK)
        parts = start_components(stack, tmp_path / "parts", shared=config)
        exits.callback(parts.stop)
        policy = {"metadata": {"name": "p", "namespace": POLICIES}, "data": {"p.rego": POLICY}}
        stack.api.create({"apiVersion": "v1", "kind": "ConfigMap", **policy})
        stack.kubectl("create", "deployment", "web", "--image=x", "--namespace=default")

        def is_placed() -> bool:
            metadata = stack.api.get("deployments.apps", "web", "default")["metadata"]
            return PREFERENCES in metadata.get("annotations", {})

        await eventually(is_placed, expected=True)
