"""Every overlay on a real API server with its admission on; what breaks the standard is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.fakes.manifests import OVERLAYS, Manifest, build, built, of_kind, pod_templates
from tools.servers.errors import ToolError
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, start_stack

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# Pods are refused without an account, and by the Pod Security of their namespace.
ADMISSION = (
    "--disable-admission-plugins=",
    "--enable-admission-plugins=ServiceAccount,PodSecurity,NodeRestriction",
)


@pytest.fixture(scope="module")
def cluster(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A cluster that has what an overlay expects to be there: namespaces, kinds, accounts."""
    folder = tmp_path_factory.mktemp("overlays")
    running = start_stack(launcher, folder, apiserver_arguments=ADMISSION)
    try:
        for kinds in ("tests/crds", "tests/crds/operators", "manifests/crds"):
            running.install_kinds(ROOT / kinds)
        running.install_gateway_api()
        running.install_open_cluster_management()
        there = [
            found
            for overlay in OVERLAYS
            for found in of_kind(build(f"overlays/{overlay}"), "Namespace", "ServiceAccount")
        ]
        text = yaml.safe_dump_all(there)
        running.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
        yield running
    finally:
        running.stop()


def dry(cluster: RunningStack, *manifests: Manifest, text: str = "") -> str:
    return cluster.kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "--force-conflicts",
        "--field-manager=dry-run",
        "-f",
        "-",
        stdin=text or yaml.safe_dump_all(manifests),
    )


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_takes_every_object_of_the_overlay(
    cluster: RunningStack, overlay: str
) -> None:
    said = dry(cluster, text=built(f"overlays/{overlay}")).splitlines()
    assert len(said) == len(build(f"overlays/{overlay}"))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_pod_of_the_overlay_is_admitted(cluster: RunningStack, overlay: str) -> None:
    """A Deployment is stored whatever its pods are like: what counts are pods of its template."""
    templates = list(pod_templates(build(f"overlays/{overlay}")))
    assert templates
    for _, template in templates:
        dry(cluster, pod(template))


def pod(template: Manifest) -> Manifest:
    metadata = {**template["metadata"], "name": "of-template", "namespace": "kube-sync"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("allowPrivilegeEscalation", {"allowPrivilegeEscalation": True}),
        ("unrestricted capabilities", {"capabilities": {}}),
        ("runAsNonRoot", {"runAsNonRoot": False}),
        ("seccompProfile", {"seccompProfile": {"type": "Unconfined"}}),
    ],
)
def test_a_container_that_breaks_the_standard_is_refused(
    cluster: RunningStack, what: str, change: Manifest
) -> None:
    template = dict(pod_templates(build("overlays/minimal")))["Deployment kube-sync-admission"]
    template["spec"]["containers"][0]["securityContext"] |= change
    with pytest.raises(ToolError, match=f'violates PodSecurity "restricted.*{what}'):
        dry(cluster, pod(template))


def test_an_object_with_a_field_that_is_not_known_is_refused(cluster: RunningStack) -> None:
    [deployment] = [
        found
        for found in of_kind(build("overlays/minimal"), "Deployment")
        if found["metadata"]["name"] == "kube-sync"
    ]
    deployment["spec"]["replica"] = 1
    with pytest.raises(ToolError, match="replica"):
        dry(cluster, deployment)


def test_a_pod_without_its_account_is_refused(cluster: RunningStack) -> None:
    template = dict(pod_templates(build("overlays/spoke")))["Deployment kube-sync-topology"]
    template["spec"]["serviceAccountName"] = "nobody"
    with pytest.raises(ToolError, match="nobody"):
        dry(cluster, pod(template))
