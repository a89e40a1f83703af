"""What ValidatingAdmissionPolicies let each account write, by its own token on a real API server.

RBAC says which objects an account may write; these say what of them. So every refusal here has to
come from a policy: each account has the right to the verb.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kube_sync.config import Kubernetes
from kube_sync.errors import SyncError
from kube_sync.kube.client import kube_client
from tests.eventually import eventually
from tests.fakes.manifests import Manifest, build, of_kind
from tests.integration.account_writes import (
    ALL,
    ARGOCD,
    BEFORE,
    LARGE,
    MARKED,
    OWN,
    POLICIES,
    SHOP,
    SPOKE,
    TLS,
    WEBHOOK,
    Write,
    condition,
    copy,
    event,
    listener,
    role,
    work,
)
from tools.demo.fleet import namespace
from tools.servers import stack as servers
from tools.servers.accounts import aggregate, token_of
from tools.servers.apiserver import RunningApiserver, start_apiserver, write_kubeconfig
from tools.servers.argocd import argocd_kinds
from tools.servers.argocd_controller import application_set
from tools.servers.errors import ToolError
from tools.servers.running import Launcher
from tools.servers.thirdparty import ensure_kinds

# An API server of its own, and the rules of the roles are unit tests.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "base",
    "labelled",
    "scheduling-rbac",
    "metadata-rbac",
    "placement-decisions",
    "ocm-placement-decisions",
    "topology-rbac",
    "policy-sync-rbac",
    "policy-sync-spoke-rbac",
    "provision",
    "argocd",
    "argocd-applicationsets",
    "examples/colorpolicy",
)
ACCOUNTS = (
    "replicator",
    "remediator",
    "admission",
    "topology",
    "policy-sync",
    "policy-sync-spoke",
    "provision",
)
MERGE = "application/merge-patch+json"
PAIR = {"tls.crt": "", "tls.key": ""}  # of the type TLS, both have to be there
APPLICATION_SET: Manifest = {"spec": application_set("web", {})["spec"]}


def _there() -> list[Manifest]:
    """Return what is there before anybody writes."""
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    web = {"selector": {"matchLabels": {"app": "web"}}, "template": template, "replicas": 1}
    route = {"parentRefs": [{"name": "g"}]}
    gate = {
        "gatewayClassName": "c",
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
    }
    gateway = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"}
    limits: Manifest = {"targetRef": gateway, "limits": {"all": {}}}
    found: list[tuple[str, str, str, str, Manifest]] = [
        ("v1", "Namespace", "", SHOP, {}),
        ("v1", "Namespace", "", SPOKE, {}),
        ("argoproj.io/v1alpha1", "ApplicationSet", ARGOCD, "web", APPLICATION_SET),
        ("apps/v1", "ReplicaSet", SHOP, "web", {"spec": web}),
        ("v1", "Service", SHOP, "web", {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}),
        ("v1", "ConfigMap", SHOP, "theirs", {"data": {"p.rego": "package p"}}),
        ("v1", "ConfigMap", POLICIES, "policy", {"data": {"p.rego": "package p"}}),
        ("v1", "ConfigMap", POLICIES, LARGE, {"data": {"p.rego": "# " * 450_000}}),
        ("v1", "Secret", OWN, "kube-sync-authority", {"type": TLS, "data": PAIR}),
        ("v1", "Secret", OWN, MARKED, {"data": {"theirs": "eA=="}}),
        ("events.k8s.io/v1", "Event", SHOP, "there", event("kubelet")),
        ("multicluster.x-k8s.io/v1alpha1", "PlacementDecision", SHOP, "there", {"decisions": []}),
        ("cluster.open-cluster-management.io/v1beta1", "PlacementDecision", SHOP, "there", {}),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "", "sp:privileged", role("")),
        ("policy.kube-sync.io/v1alpha1", "SchedulingPolicy", "", "there", {"spec": {}}),
        (
            "gateway.networking.k8s.io/v1",
            "GatewayClass",
            "",
            "c",
            {"spec": {"controllerName": "a.io/b"}},
        ),
        ("gateway.networking.k8s.io/v1", "Gateway", SHOP, "g", {"spec": gate}),
        ("gateway.networking.k8s.io/v1", "HTTPRoute", SHOP, "r", {"spec": route}),
        ("kuadrant.io/v1", "RateLimitPolicy", SHOP, "limits", {"spec": limits}),
        (
            "examples.kube-sync.io/v1alpha1",
            "ColorPolicy",
            SHOP,
            "native",
            {"spec": copy("x")["spec"]},
        ),
        (
            "work.open-cluster-management.io/v1",
            "ManifestWork",
            SPOKE,
            "theirs",
            work("x", ours=False),
        ),
        (
            "work.open-cluster-management.io/v1",
            "ManifestWork",
            SPOKE,
            BEFORE,
            work("x", copy("c"), executor=False),
        ),
        (
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            "",
            "kube-sync-placement",
            {"webhooks": [WEBHOOK]},
        ),
    ]
    objects: list[Manifest] = []
    for version, kind, space, name, rest in found:
        metadata: Manifest = {"name": name} | ({"namespace": space} if space else {})
        metadata |= {"annotations": {"team": "theirs"}} if kind == "ReplicaSet" else {}
        metadata |= {"labels": rest["metadata"]["labels"]} if name == BEFORE else {}
        metadata |= {"annotations": {"kube-sync.io/provisioned-at": "1"}} if name == MARKED else {}
        objects.append(rest | {"apiVersion": version, "kind": kind, "metadata": metadata})
    return objects


def _may_say() -> Manifest:
    """Return the role by which the topology writes statuses of RateLimitPolicies."""
    resource = {"apiGroups": ["kuadrant.io"], "resources": ["ratelimitpolicies/status"]}
    labels = {"kube-sync.io/aggregate-to-topology-status": "true"}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "limits-status", "labels": labels},
        "rules": [resource | {"verbs": ["patch"]}],
    }


@dataclass(frozen=True)
class Cluster:
    """An API server with the accounts of the manifests, each with a token of its own."""

    api: RunningApiserver
    kubeconfigs: dict[str, Path]

    def admin(self, *arguments: str) -> str:
        return servers.kubectl(self.api.kubeconfigs["admin"], *arguments)

    def apply(self, *manifests: Manifest) -> None:
        for manifest in manifests:
            self.api.api.apply(manifest, force=True)

    def status(self, kind: str, name: str, status: Manifest) -> None:
        self.api.api.merge(kind, name, {"status": status}, SHOP, "status")

    async def write(self, wanted: Write, *, dry_run: bool = False) -> str | None:
        """Return why it was refused, None where it was done."""
        params = {"dryRun": "All"} if dry_run else {}
        body = await self._put(wanted) if wanted.method == "PUT" else wanted.body
        encoded = None if body is None else json.dumps(body).encode()
        content = MERGE if wanted.method == "PATCH" else "application/json"
        kubeconfig = str(self.kubeconfigs[wanted.account])
        async with kube_client(Kubernetes(kubeconfig=kubeconfig)) as client:
            try:
                await client.request(
                    wanted.method, wanted.path, params=params, body=encoded, content_type=content
                )
            except SyncError as error:
                return str(error)
        return None

    async def _put(self, wanted: Write) -> Manifest:
        """Return an object as it is, with what is to be of it; of a webhook these fields of it."""
        found: Manifest = self.api.api.ask("GET", wanted.path)
        if "webhooks" not in found:
            metadata = found["metadata"] | wanted.body["metadata"]
            return {**wanted.body, "metadata": metadata}
        webhooks = [] if wanted.body is None else [found["webhooks"][0] | wanted.body]
        return found | {"webhooks": webhooks}


@pytest.fixture(scope="module")
def cluster(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("limits")
    api = start_apiserver(launcher, folder)
    try:
        found = Cluster(api, {})
        kinds = (ROOT / "tests/crds", ROOT / "manifests/crds")
        projects = ("gateway-api", "open-cluster-management", "kuadrant")
        third = [*(ensure_kinds(one) for one in projects), argocd_kinds()]
        for path in (*kinds, *third, ROOT / "manifests/examples/colorpolicy/colorpolicies.yaml"):
            servers.install_kinds(api.api, path)
        manifests = [one for folder in FOLDERS for one in build(folder)]
        found.apply(*of_kind(manifests, "Namespace"), namespace(ARGOCD))
        without = ("CustomResourceDefinition", "Job", "CronJob")
        found.apply(*(one for one in manifests if one["kind"] not in without), _may_say())
        aggregate(api.api)
        found.apply(*_there())
        found.status(
            "gateway",
            "g",
            {
                "conditions": [condition("Programmed")],
                "listeners": [listener(1, condition("Programmed"))],
            },
        )
        said = [condition("example.com/Counted"), condition("Accepted")]
        found.status("ratelimitpolicy", "limits", {"conditions": said})
        parent: Manifest = {"parentRef": {"name": "g"}, "controllerName": "example.com/c"}
        parent["conditions"] = [condition("Programmed")]
        found.status("httproute", "r", {"parents": [parent]})
        for account in ACCOUNTS:
            token = token_of(api.api, f"kube-sync-{account}")
            found.kubeconfigs[account] = write_kubeconfig(
                folder, f"own-{account}", api.url, api.ca_file, token
            )
        asyncio.run(in_force(found))
        yield found
    finally:
        api.stop()


async def in_force(cluster: Cluster) -> None:
    """Wait until the API server goes by the policies that it has just been given."""
    refused = {one.account: one for one in ALL if one.says is not None and one.method == "POST"}
    assert refused.keys() == set(ACCOUNTS)
    for one in refused.values():

        def said(asked: Write = one) -> bool:
            refusal = asyncio.run(cluster.write(asked, dry_run=True)) or ""
            return "ValidatingAdmissionPolicy" in refusal

        await eventually(said, expected=True, seconds=30)


@pytest.mark.parametrize("wanted", [one for one in ALL if one.says is None], ids=str)
async def test_an_account_does_what_it_is_there_for(cluster: Cluster, wanted: Write) -> None:
    assert await cluster.write(wanted) is None


@pytest.mark.parametrize("wanted", [one for one in ALL if one.says is not None], ids=str)
async def test_an_account_is_refused_what_it_does_not_do(cluster: Cluster, wanted: Write) -> None:
    said = await cluster.write(wanted) or "done"
    assert f"ValidatingAdmissionPolicy 'kube-sync-{wanted.account}'" in said
    assert re.search(wanted.says or "", said), said


async def test_an_account_of_that_name_is_held_in_whichever_namespace_it_is(
    cluster: Cluster,
) -> None:
    """Kustomize moves an installation to another namespace, and does not look into expressions."""
    account = "system:serviceaccount:elsewhere:kube-sync-remediator"
    what = ("replicaset", "web", f"--namespace={SHOP}")
    patched = ("patch", *what, "--type=merge", '--patch={"spec":{"replicas":2}}')
    masters = (f"--as={account}", "--as-group=system:masters")
    with pytest.raises(ToolError, match="nothing else of an object"):
        cluster.admin(*patched, *masters)
    cluster.admin(*patched, "--as=somebody", "--as-group=system:masters")
