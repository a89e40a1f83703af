"""All parts at once under exactly the roles of the manifests: enough rights, and none to spare."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from kube_sync.certificates import issue, make_authority
from kube_sync.kube.policymaps import STATUS
from tests.eventually import eventually
from tests.fakes.manifests import Manifest, build, of_kind
from tests.fakes.topologies import (
    NS,
    allowing,
    color,
    gateway,
    gateway_class,
    listener,
    listener_set,
    overrides,
    route,
    service,
    target,
)
from tests.integration.rbac_syncing import SETTINGS, policies_are_synced
from tests.integration.rbac_usage import Grant, asked, granted, held, refused, rules_of
from tools.demo.components import start_service
from tools.demo.fleet import FLEET, POLICIES, cluster, namespace, replica_set
from tools.servers.argocd import argocd_kinds
from tools.servers.argocd_controller import application_set
from tools.servers.errors import ToolError
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.http import get
from tools.servers.running import Launcher, RunningServer, free_port
from tools.servers.stack import RunningStack, start_stack

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
KUBE_SYNC = Path(sys.executable).with_name("kube-sync")
FOLDERS = (
    "base",
    "labelled",
    "metadata-rbac",
    "scheduling-rbac",
    "placement-decisions",
    "ocm-placement-decisions",
    "argocd",
    "argocd-applicationsets",
    "argocd-health",
    "topology-data-rbac",
    "topology-rbac",
    "provision",
    "webhook",
    "webhook-scheduling",
    "webhook-metadata",
    "examples/colorpolicy",
    "policy-sync-rbac",
    "policy-sync-direct-rbac",
    "policy-sync-spoke-rbac",
)
RBAC = (
    "Namespace",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
ROUTES = ("httproutes", "grpcroutes", "tcproutes", "tlsroutes", "udproutes")
GATEWAY = "gateway.networking.k8s.io"
KINDS = ("gatewayclasses", "gateways", *ROUTES, "backendtlspolicies")

REPLICATED = [
    {
        "group": "multicluster.x-k8s.io",
        "version": "v1alpha1",
        "resource": "clusterprofiles",
        "as": "clusters",
    },
    {"group": "apps", "version": "v1", "resource": "replicasets"},
    {"group": "argoproj.io", "version": "v1alpha1", "resource": "applicationsets"},
]

# What a role grants although no request of this run needs it, and why.
_PLACEMENT_DECISIONS = ("multicluster.x-k8s.io", "placementdecisions")
_OCM_DECISIONS = ("cluster.open-cluster-management.io", "placementdecisions")
_RBAC = "rbac.authorization.k8s.io"
EXPLAINED: dict[str, set[Grant]] = {
    "nobody asks with this verb: who gives it to others has to hold it": {
        Grant("replicator", "policy.kube-sync.io", "schedulingpolicies", "use"),
    },
    "Open Cluster Management asks whether the account may": {
        Grant("policy-sync", "work.open-cluster-management.io", "manifestworks", "execute-as"),
        Grant("policy-sync-spoke", "examples.kube-sync.io", "colorpolicies", "update"),
    },
    "an apply to what is not there needs it, and is logged as the patch that it is": {
        Grant("topology", "", "configmaps", "create"),
        Grant("remediator", *_PLACEMENT_DECISIONS, "create"),
        Grant("remediator", *_OCM_DECISIONS, "create"),
        Grant("policy-sync", "work.open-cluster-management.io", "manifestworks", "create"),
        Grant("policy-sync-spoke", "examples.kube-sync.io", "colorpolicies", "create"),
    },
    "a slice that is not needed any more: see test_placement_decisions, test_ocm_decisions": {
        Grant("remediator", *_PLACEMENT_DECISIONS, "delete"),
        Grant("remediator", *_OCM_DECISIONS, "delete"),
        Grant("remediator", *_PLACEMENT_DECISIONS, "get"),
        Grant("remediator", *_OCM_DECISIONS, "get"),
    },
    "what is told again minutes later counts on the same Event": {
        Grant("remediator", "events.k8s.io", "events", "patch"),
        Grant("policy-sync", "events.k8s.io", "events", "patch"),
    },
    "a canary halted, a version refused: see test_ledger, test_expensive_policies": {
        Grant("replicator", "events.k8s.io", "events", "create"),
        Grant("replicator", "events.k8s.io", "events", "patch"),
        Grant("replicator", "events.k8s.io", "events", "list"),
    },
    "a default of an older version: see test_scheduling_bootstrap": {
        Grant("replicator", "policy.kube-sync.io", "schedulingpolicies", "update"),
        Grant("replicator", _RBAC, "rolebindings", "delete"),
    },
    "targets like the others, at which no policy of this run takes effect": {
        Grant("topology", "", "namespaces/status", "patch"),
        Grant("topology", GATEWAY, "gatewayclasses/status", "patch"),
        Grant("topology", "", "services/status", "patch"),
        Grant("topology", GATEWAY, "backendtlspolicies/status", "patch"),
    },
}
# What a part tries although no role grants it, and why.
REFUSED: dict[str, set[Grant]] = {
    "a kind of policies that no class lists: copies from before are looked for, and it is noted": {
        Grant("policy-sync-spoke", GATEWAY, "backendtlspolicies", "list"),
    },
}


@dataclass
class Everything:
    """A cluster in which every part runs."""

    stack: RunningStack
    services: dict[str, RunningServer]
    folder: Path
    manifests: list[Manifest]

    def apply(self, *manifests: Manifest) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        self.stack.kubectl(
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=test",
            "-f",
            "-",
            stdin=text,
        )

    def provision(self) -> list[str]:
        kubeconfig = str(self.stack.kubeconfigs["provision"])
        answer = subprocess.run(
            [KUBE_SYNC, "provision"],
            env={
                **os.environ,
                "KUBE_SYNC_KUBERNETES_KUBECONFIG": kubeconfig,
                "KUBE_SYNC_REMEDIATE_ARGOCD_LISTEN": "127.0.0.1:9409",
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout.splitlines()

    def ready(self) -> dict[str, str]:
        """Return what is not ready, and why."""
        pages = {name: get(server.url + "/readyz") for name, server in self.services.items()}
        return {name: page.body.decode() for name, page in pages.items() if page.status != 200}

    def used(self) -> set[Grant]:
        assert self.stack.audit_log is not None
        return set(asked(self.stack.audit_log))


@pytest.fixture(scope="module")
def everything(
    launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Everything]:
    folder = tmp_path_factory.mktemp("everything")
    manifests = [found for name in FOLDERS for found in build(name)]
    with ExitStack() as ending:
        stack = start_stack(launcher, folder / "stack", audit=True)
        ending.callback(shutil.rmtree, stack.etcd.spec.folder / "data")
        ending.callback(stack.stop)
        for kinds in ("tests/crds", "manifests/crds", "manifests/examples/colorpolicy"):
            stack.install_kinds(ROOT / kinds)
        for kind in ("placementpolicies", "schedulingpolicies", "metadatapolicies"):
            stack.kubectl("delete", "crd", f"{kind}.policy.kube-sync.io")
        stack.install_gateway_api()
        stack.install_open_cluster_management()
        stack.install_kinds(argocd_kinds())
        stack.api.create(namespace("argocd"))
        found = Everything(stack, {}, folder, manifests)
        found.apply(*(as_aggregated(one, manifests) for one in of_kind(manifests, *RBAC)))
        found.apply(*(namespace(name) for name in (FLEET, "shop")))
        found.apply(*(cluster(name, "europe-west1", "2") for name in ("west", "east", "north")))
        authority, port = make_authority("webhook"), free_port()
        write_pair(folder, "tls", issue(authority, "kube-sync", LOOPBACK))
        write_file(folder / "ca.crt", authority.cert_pem)
        found.apply(*webhooks(manifests, port, authority.cert_pem))
        for command, configuration in configurations(stack, folder, port).items():
            arguments = configuration.pop("role")
            configuration["kubernetes"] = {"kubeconfig": str(stack.kubeconfigs[str(arguments)])}
            service = start_service(command, folder / command, configuration)
            ending.callback(service.stop)
            found.services[command] = service
        yield found


def as_aggregated(manifest: Manifest, manifests: list[Manifest]) -> Manifest:
    """Return a role with the rules that the cluster's controller would put in."""
    if "aggregationRule" not in manifest:
        return manifest
    without = {key: value for key, value in manifest.items() if key != "aggregationRule"}
    return without | {"rules": rules_of(manifest, manifests)}


def webhooks(manifests: list[Manifest], port: int, authority: bytes) -> Iterator[Manifest]:
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    for found in of_kind(manifests, *kinds):
        for webhook in found["webhooks"]:
            url = f"https://127.0.0.1:{port}{webhook['clientConfig']['service']['path']}"
            bundle = base64.b64encode(authority).decode()
            webhook["clientConfig"] = {"url": url, "caBundle": bundle}
            webhook["failurePolicy"] = "Ignore"
        yield found


def configurations(stack: RunningStack, folder: Path, port: int) -> dict[str, dict[str, object]]:
    builtin: dict[str, object] = {"builtin": ["scheduling", "metadata"]}
    labelled = {"labelled": {"namespaces": ["*"]}}
    token = {"token_file": str(stack.opa_token_files["admission"])}
    placement = {"resources": ["replicasets", "applicationsets"]}
    return {
        "replicate": builtin
        | {
            "placement": placement,
            "role": "replicator",
            "opa": stack.opa_settings(),
            "decisions": stack.endpoint.server(),
            "policies": labelled,
            "replicate": {"topology": True, "resources": REPLICATED},
        },
        "remediate": {
            "role": "remediator",
            "decisions": stack.endpoint.client(),
            "replicate": {"resources": REPLICATED},
            "placement": placement,
            "remediate": {
                "argocd": {"listen": f"127.0.0.1:{free_port()}"},
                "moves": "add-first",
                "add_first": {"health": {"source": "argocd"}},
                "listen": f"127.0.0.1:{free_port()}",
                "sinks": {
                    "placement_decisions": {"enabled": True},
                    "ocm_placement_decisions": {"enabled": True},
                },
                "guard": {"dwell_seconds": 0, "mass_share": 1},
            },
        },
        "admit": builtin
        | {
            "role": "admission",
            "replicate": {"resources": REPLICATED},
            "placement": placement,
            "opa": stack.opa_settings() | token,
            "policies": labelled,
            "admission": {
                "listen": f"127.0.0.1:{port}",
                "cert_file": str(folder / "tls.crt"),
                "key_file": str(folder / "tls.key"),
                "drain_seconds": 0.5,
                "registration": {
                    "name": "kube-sync-placement",
                    "ca_file": str(folder / "ca.crt"),
                },
            },
        },
        "topology --live": {"role": "topology"},
        "policy-sync": {"role": "policy-sync"} | SETTINGS,
    }


def configmap(name: str, where: str, data: dict[str, str], **labels: str) -> Manifest:
    metadata = {"name": name, "namespace": where, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def until(everything: Everything, *wanted: Grant) -> None:
    """Wait until these rights were used."""
    await eventually(lambda: set(wanted) - everything.used(), set(), 60)


DENIED = """
package io.k8s.federation.admission

errors contains "not on a Sunday" if input.metadata.labels.app == "denied"

annotations["federation.kubernetes.io/replica-set-preferences"] := {
	"clusters": {name: {"weight": 1} | some name, _ in data.kubernetes.clusters.fleet},
} if input.kind in {"ReplicaSet", "ApplicationSet"}
"""
METADATA_POLICY = {
    "apiVersion": "policy.kube-sync.io/v1alpha1",
    "kind": "MetadataPolicy",
    "metadata": {"name": "labels", "namespace": "shop"},
    "spec": {"rules": []},
}


def denial(everything: Everything) -> str:
    with pytest.raises(ToolError) as denied:
        everything.apply(replica_set("denied"))
    return str(denied.value)


async def admission_denies(everything: Everything) -> None:
    """Deny the same again and again: the second time counts on the Event of the first."""
    what = "not on a Sunday"
    for _ in range(2):
        await eventually(lambda: denial(everything).partition(what)[1], what, 60)


def placement_policy(name: str) -> Manifest:
    return {
        "apiVersion": "policy.kube-sync.io/v1alpha1",
        "kind": "PlacementPolicy",
        "metadata": {"name": name, "namespace": POLICIES},
        "spec": {"modules": [{"name": "p.rego", "rego": "package beside\n\nx := 1\n"}]},
    }


def candidate(everything: Everything) -> str:
    """Return what a candidate says."""
    found = everything.stack.kubectl(
        "get", "configmap", "next", f"--namespace={POLICIES}", "-ojson"
    )
    said = json.loads(found)["metadata"].get("annotations", {}).get(STATUS, "{}")
    return str(json.loads(said).get("error") or json.loads(said).get("status"))


async def placements_move(everything: Everything) -> None:
    """One cluster comes, which moves, and then one goes, which is more than may go at once."""
    everything.apply(replica_set("web"), application_set("web", {}))
    everything.apply(cluster("south", "europe-west1", "2"))
    await until(everything, Grant("remediator", "apps", "replicasets", "patch"))
    for name in ("east", "north"):
        everything.stack.kubectl("delete", "clusterprofile", name, f"--namespace={FLEET}")
    await until(everything, Grant("remediator", "events.k8s.io", "events", "create"))


def policies_attach(everything: Everything) -> None:
    """A policy above everything, and routes of every kind below it."""
    protocols = {"TCPRoute": "TCP", "TLSRoute": "TLS", "UDPRoute": "UDP", "HTTPRoute": "HTTP"}
    listeners = [
        {"name": kind.lower(), "port": 80 + index, "protocol": protocol}
        | ({"tls": {"mode": "Passthrough"}, "hostname": "a.example"} if protocol == "TLS" else {})
        for index, (kind, protocol) in enumerate(protocols.items())
    ]
    backend = [{"backendRefs": [{"name": "service", "port": 80}]}]
    a_class = gateway_class() | {"spec": {"controllerName": "example.com/c"}}
    more = listener_set("my-set", listener("more", port=90))
    objects = [a_class, allowing(gateway("my-gateway", *listeners)), more, service("service", 80)]
    named = {"TLSRoute": {"hostnames": ["a.example"]}}
    objects += [
        route(kind.lower(), kind, rules=backend, **named.get(kind, {}))
        for kind in (*protocols, "GRPCRoute")
    ]
    through = [{"kind": "ListenerSet", "name": "my-set"}]
    objects.append(route("through-set", parentRefs=through, rules=backend))
    objects += [
        color(f"on-{kind.lower()}", target(kind, name), **overrides(a="blue"))
        for kind, name in (
            ("GatewayClass", "my-gateway-class"),
            ("Gateway", "my-gateway"),
            ("Service", "service"),
            ("Namespace", "shop"),
        )
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    everything.stack.kubectl("apply", "-f", "-", stdin=text.replace(NS, "shop"))


def secrets_get_old(everything: Everything) -> None:
    everything.provision()
    assert everything.provision() == ["nothing to do"]
    everything.stack.kubectl(
        "annotate",
        "secret",
        "kube-sync-decisions",
        "--namespace=kube-sync",
        "--overwrite",
        "kube-sync.io/provisioned-at=0",
    )
    assert everything.provision() == ["Secret kube-sync/kube-sync-decisions renewed"]


def defaults_are_changed(everything: Everything) -> None:
    """What the replicator installed, by somebody who should not: it is brought up at a start."""
    kubectl = everything.stack.kubectl
    nobody = ("--type=merge", "--patch", '{"subjects":[]}')
    kubectl("patch", "clusterrole", "sp:restricted", "--type=merge", "--patch", '{"rules":[]}')
    kubectl("patch", "clusterrolebinding", "sp:restricted", *nobody)
    binding = ("rolebinding", "sp:kube-system-privileged")
    kubectl("patch", *binding, *nobody, "--namespace=kube-system")
    restart(everything)
    kubectl("delete", "clusterrolebinding", "sp:restricted")
    kubectl("create", "clusterrolebinding", "sp:restricted", "--clusterrole=view", "--group=g")
    restart(everything)


def restart(everything: Everything) -> None:
    before = everything.stack.kubectl("get", "clusterrolebinding", "sp:restricted", "-oyaml")
    server = everything.services["replicate"]
    server.stop()
    server.start()
    for _ in range(600):
        after = everything.stack.kubectl(
            "get", "clusterrolebinding", "--output=yaml", "--ignore-not-found", "sp:restricted"
        )
        if after and after != before:
            return
    msg = "the replicator did not bring its defaults up"
    raise AssertionError(msg)


def test_every_explanation_is_of_something_granted() -> None:
    grants = granted(found for name in FOLDERS for found in build(name))
    explained = set().union(*EXPLAINED.values())
    assert explained <= grants


@pytest.mark.timeout(600)
async def test_parts_need_no_more_than_their_roles_grant_and_use_what_they_grant(
    everything: Everything,
) -> None:
    await eventually(everything.ready, {}, 60)
    await asyncio.to_thread(secrets_get_old, everything)
    everything.apply(configmap("placement", POLICIES, {"p.rego": DENIED}))
    # The kinds come late: whether they are there was asked before.
    await asyncio.to_thread(everything.stack.install_kinds, ROOT / "manifests/crds")
    everything.apply(placement_policy("beside"), METADATA_POLICY)
    staged = {"kube-sync.io/stage": "candidate"}
    everything.apply(configmap("next", POLICIES, {"p.rego": "package next"}, **staged))
    await admission_denies(everything)
    await placements_move(everything)
    await eventually(lambda: candidate(everything), "ok", 120)
    await asyncio.to_thread(policies_attach, everything)
    await policies_are_synced(
        everything.stack, everything.folder, everything.apply, partial(until, everything)
    )
    await asyncio.to_thread(defaults_are_changed, everything)
    expected = granted(everything.manifests) - set().union(*EXPLAINED.values())
    await eventually(lambda: {str(grant) for grant in expected - everything.used()}, set(), 120)
    assert everything.stack.audit_log is not None
    assert held(everything.stack.audit_log) == []
    tried = set(refused(everything.stack.audit_log))
    assert {str(grant) for grant in tried - set().union(*REFUSED.values())} == set()
