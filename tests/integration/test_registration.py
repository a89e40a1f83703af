"""The webhook's registration on a real API server, kept by a process with exactly its role."""

from __future__ import annotations

import base64
import secrets
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kube_sync.admission.exemptions import left_out_conditions, left_out_namespaces
from kube_sync.admission.registration import LEASE
from kube_sync.certificates import make_authority
from kube_sync.config import Labelled, Policies, Settings
from kube_sync.kube.webhooks import Wish, made_right
from tests.eventually import eventually
from tests.integration.test_pair import ROOT
from tests.integration.webhook_world import KIND, NAME, World, webhook_world
from tools.demo.fleet import POLICIES
from tools.servers.errors import ToolError
from tools.servers.running import Launcher, free_port
from tools.servers.stack import RunningStack


@pytest.fixture(scope="module")
def module_world(
    launcher: Launcher, stack: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with webhook_world(launcher, stack, tmp_path_factory.mktemp("registration")) as world:
        yield world


@pytest.fixture
def world(module_world: World) -> Iterator[World]:
    """The webhook, registered as by the manifest; no policy exists."""
    module_world.no_policy()
    module_world.unregister()  # the webhook may be about to write what the test before made it
    module_world.register()
    yield module_world
    module_world.no_policy()


async def test_it_closes_with_the_first_policy_and_opens_after_the_last(world: World) -> None:
    await eventually(world.failure_policy, "Ignore")
    world.policy()
    await eventually(world.failure_policy, "Fail")
    await eventually(
        lambda: "kube_sync_admission_registration_closed 1.0" in world.metrics(), expected=True
    )
    world.no_policy()
    await eventually(world.failure_policy, "Ignore")
    await eventually(
        lambda: "kube_sync_admission_registration_closed 0.0" in world.metrics(), expected=True
    )


@pytest.mark.slow
async def test_policies_that_come_and_go_quickly_end_right(world: World) -> None:
    for _ in range(3):
        world.policy()
        world.no_policy()
    world.policy()
    await eventually(world.failure_policy, "Fail")


@pytest.mark.slow
async def test_certificates_that_are_replaced_are_told(world: World) -> None:
    both = world.authority.cert_pem + make_authority("the next one").cert_pem
    world.ca_file.write_bytes(both)
    expected = base64.b64encode(both).decode()
    await eventually(lambda: world.registered()["clientConfig"]["caBundle"], expected)
    world.ca_file.write_bytes(world.authority.cert_pem)
    expected = base64.b64encode(world.authority.cert_pem).decode()
    await eventually(lambda: world.registered()["clientConfig"]["caBundle"], expected)


async def test_what_is_changed_by_hand_is_put_right(world: World) -> None:
    world.policy()
    await eventually(world.failure_policy, "Fail")
    right = world.registered()
    world.patch(
        {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"},
        {"op": "remove", "path": "/webhooks/0/matchConditions"},
        {"op": "remove", "path": "/webhooks/0/namespaceSelector"},
        {"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "eA=="},
    )

    def seen() -> Any:
        return {**world.registered(), "namespaceSelector": None}

    await eventually(seen, {**right, "namespaceSelector": None})
    (expression,) = world.registered()["namespaceSelector"]["matchExpressions"]
    assert sorted(expression["values"]) == sorted({"kube-system", "kube-sync", POLICIES})


@pytest.mark.slow
async def test_applying_the_manifest_again_argues_about_nothing(world: World) -> None:
    await eventually(world.failure_policy, "Ignore")
    world.register()
    assert world.failure_policy() == "Ignore"


@pytest.mark.slow
async def test_each_change_is_one_write(world: World) -> None:
    """A generation is a change of what it says: there are as many as there were reasons."""
    world.policy()
    await eventually(world.failure_policy, "Fail")
    before = world.generation()
    world.stack.api.annotate(KIND, NAME, {"seen": secrets.token_hex(4)})
    world.no_policy()
    await eventually(world.failure_policy, "Ignore")
    world.policy()
    await eventually(world.failure_policy, "Fail")
    assert world.generation() == before + 2


async def test_a_configuration_that_is_missing_is_told_and_found_when_it_comes(
    world: World,
) -> None:
    world.unregister()
    await eventually(lambda: "install manifests/webhook" in world.conditions(), expected=True)
    world.register()
    await eventually(world.failure_policy, "Ignore")


async def test_who_writes_is_named_by_a_lease(world: World) -> None:
    await eventually(world.failure_policy, "Ignore")
    spec = world.stack.api.get("leases", LEASE, "kube-sync")["spec"]
    assert spec["holderIdentity"].startswith(f"{socket.gethostname()}_")


async def test_the_role_is_for_one_configuration_and_writing_events_only(world: World) -> None:
    for arguments in (
        ("get", KIND, "another"),
        ("get", KIND),
        ("delete", KIND, NAME),
        ("get", "validatingwebhookconfigurations"),
        ("get", "events.v1.events.k8s.io", "--all-namespaces"),
        ("get", "lease", "another", "--namespace=kube-sync"),
    ):
        with pytest.raises(ToolError, match="forbidden"):
            world.stack.kubectl(*arguments, role="admission")


async def test_what_mends_a_policy_gets_past_a_webhook_that_is_down(
    stack: RunningStack, namespace: str
) -> None:
    """Asked about everything, and it answers nothing: the worst that an administrator can do."""
    labelled = Labelled(namespaces=(namespace,))
    settings = Settings(policies=Policies(labelled=labelled))
    wish = Wish(
        "/admit/placement",
        "Fail",
        None,
        left_out_namespaces(settings),
        left_out_conditions(settings),
    )
    file = ROOT / "manifests/webhook/mutatingwebhookconfiguration.yaml"
    manifest = yaml.safe_load(file.read_text(encoding="utf-8"))
    manifest["metadata"]["name"] = f"down-{secrets.token_hex(4)}"
    (webhook,) = manifest["webhooks"]
    url = f"https://127.0.0.1:{free_port()}/admit/placement"
    only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace, POLICIES]}
    webhook |= {
        "clientConfig": {"url": url},
        "rules": [
            {
                "apiGroups": ["*"],
                "apiVersions": ["*"],
                "resources": ["*/*"],
                "operations": ["*"],
                "scope": "*",
            }
        ],
        "namespaceSelector": {"matchExpressions": [only]},
    }

    def put(kind: str, version: str, where: str = namespace, **content: Any) -> None:
        labels = content.pop("labels", {})
        metadata = {"name": "it", "namespace": where, "labels": labels}
        document = {"apiVersion": version, "kind": kind, "metadata": metadata, **content}
        stack.api.apply(document)

    about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "it"}
    policy = {"openpolicyagent.org/policy": "rego"}
    right = made_right(manifest, wish)
    stack.api.apply(right)
    try:
        with pytest.raises(ToolError, match="failed calling webhook"):
            put("ConfigMap", "v1", data={"a": "1"})
        put("ConfigMap", "v1", POLICIES, data={"readme": "1"})
        put("ConfigMap", "v1", labels=policy, data={"a": "1"})
        put("ConfigMap", "v1", labels=policy, data={"a": "2"})
        stack.api.label("configmaps", "it", namespace, **{"openpolicyagent.org/policy": None})
        put("ConfigMap", "v1", labels={"openpolicyagent.org/data": "opa"}, data={"a": "2"})
        stack.api.delete("configmaps", "it", namespace)
        put("Lease", "coordination.k8s.io/v1", spec={"holderIdentity": "me"})
        put("Event", "v1", involvedObject=about, message="x", reason="X")
    finally:
        stack.api.delete(KIND, manifest["metadata"]["name"])
        stack.api.delete_all("configmaps", POLICIES)
