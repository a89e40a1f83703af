"""Policy sync on a cluster that is hub and spoke in one, with everything its roles are for.

One spoke has a work agent, which stands in for Open Cluster Management's and is the admin here; the
other is written to by the account that the hub has a kubeconfig of.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from kube_sync.policysync.copies import PLACED
from kube_sync.policysync.desired import PLACEMENT
from tests.eventually import eventually
from tests.fakes.manifests import Manifest
from tests.integration.rbac_usage import Grant
from tests.integration.syncing_world import spec_of
from tests.ocm.fleet import work_agents
from tools.servers.apiserver import write_kubeconfig
from tools.servers.stack import RunningStack

SPACE, BY_WORKS, BY_ITSELF = "hub-of-itself", "by-works", "by-itself"
SPOKES = "kube-sync-spokes"
SETTINGS: dict[str, object] = {
    "policy_sync": {
        "placers": ["ocm", "direct"],
        "grace_seconds": 0,
        "brakes": {"shrink_share": 1},  # both spokes are left at once
    }
}
_GATEWAYS = "gateway.networking.k8s.io/v1"
_OCM = "cluster.open-cluster-management.io"
_COLORS = {"group": "examples.kube-sync.io", "version": "v1alpha1", "resource": "colorpolicies"}
TOLD = Grant("policy-sync", "gateway.networking.k8s.io", "gatewayclasses/status", "patch")
TAKEN_OFF = (
    Grant("policy-sync", "examples.kube-sync.io", "colorpolicies", "get"),
    Grant("policy-sync", "work.open-cluster-management.io", "manifestworks", "delete"),
    Grant("policy-sync-spoke", "examples.kube-sync.io", "colorpolicies", "delete"),
)


def _object(version: str, kind: str, name: str, space: str = "", **more: object) -> Manifest:
    metadata = {"name": name} | ({"namespace": space} if space else {})
    labels = {"labels": more.pop("labels")} if "labels" in more else {}
    return {"apiVersion": version, "kind": kind, "metadata": metadata | labels, **more}


def _class(name: str, params: str) -> Manifest:
    ref = {"group": "", "kind": "ConfigMap", "namespace": SPACE, "name": params}
    spec = {"controllerName": "kube-sync.io/policy-sync", "parametersRef": ref}
    return _object(_GATEWAYS, "GatewayClass", name, spec=spec)


def _placed(cluster: str) -> list[Manifest]:
    """Return a Gateway that is on this cluster, and a policy for it; all have its name."""
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    spec = {"gatewayClassName": "synced", "listeners": [listener]}
    label = {PLACEMENT: cluster}
    return [
        _object(_GATEWAYS, "Gateway", cluster, SPACE, labels=label, spec=spec),
        _object(f"{_OCM}/v1beta1", "PlacementDecision", cluster, SPACE, labels=label),
        _object(
            "examples.kube-sync.io/v1alpha1",
            "ColorPolicy",
            cluster,
            SPACE,
            spec=spec_of(to=cluster),
        ),
    ]


def _parameters(*kinds: dict[str, str]) -> Manifest:
    data = {"params": json.dumps({"policiesToSync": kinds})}
    return _object("v1", "ConfigMap", "params", SPACE, data=data)


def _objects(kubeconfig: bytes) -> list[Manifest]:
    return [
        *(_object("v1", "Namespace", name) for name in (SPACE, BY_WORKS)),
        _object(f"{_OCM}/v1", "ManagedCluster", BY_WORKS, spec={"hubAcceptsClient": True}),
        _object(
            "v1",
            "Secret",
            BY_ITSELF,
            SPOKES,
            labels={"kube-sync.io/spoke": "true"},
            data={"kubeconfig": base64.b64encode(kubeconfig).decode()},
        ),
        _parameters(_COLORS),
        _class("synced", "params"),
        _class("not-to-be-synced", "params-that-are-not-there"),
        *_placed(BY_WORKS),
        *_placed(BY_ITSELF),
    ]


def _spokes_account(stack: RunningStack, folder: Path) -> bytes:
    name = "kube-sync-policy-sync-spoke"
    token = stack.kubectl("create", "token", name, "--namespace=kube-sync", "--duration=1h").strip()
    url, ca_file = stack.apiserver_url, stack.apiserver_ca_file
    return write_kubeconfig(folder, "spoke", url, ca_file, token).read_bytes()


async def policies_are_synced(
    stack: RunningStack,
    folder: Path,
    apply: Callable[..., None],
    until: Callable[..., Awaitable[None]],
) -> None:
    """Have a policy come to each spoke, and go."""
    apply(*_objects(_spokes_account(stack, folder)))
    for cluster in (BY_WORKS, BY_ITSELF):
        decided = {"status": {"decisions": [{"clusterName": cluster, "reason": ""}]}}
        stack.kubectl(
            "patch",
            "placementdecision",
            cluster,
            f"--namespace={SPACE}",
            "--subresource=status",
            "--type=merge",
            f"--patch={json.dumps(decided)}",
        )

    def on() -> list[str]:
        found = json.loads(
            stack.kubectl("get", "colorpolicies", f"--namespace={SPACE}", "--output=json")
        )["items"]
        notes = [one["metadata"].get("annotations", {}).get(PLACED, "[]") for one in found]
        return sorted(entry["cluster"] for note in notes for entry in json.loads(note))

    admin = stack.kubeconfigs["admin"]
    works = {BY_WORKS: admin}
    async with work_agents(admin, works, interval=0.1, jitter=lambda: 0.0, executors=True):
        await eventually(on, [BY_ITSELF, BY_WORKS], 60)
        # While one class cannot say which kinds it lists, none is taken off.
        await until(TOLD)
        await asyncio.to_thread(stack.kubectl, "delete", "gatewayclass", "not-to-be-synced")
        apply(_parameters())  # their kind is listed no more, so copies and marks are taken off
        await until(*TAKEN_OFF)
