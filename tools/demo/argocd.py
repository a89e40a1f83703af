"""Argo CD's ApplicationSet controller beside the demo's stack, and the act that it is in.

Nothing of it is changed; nothing is deployed, since there are only the Secrets of clusters.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube_sync.certificates import issue, make_authority
from tools.demo.fleet import CLUSTERS, LEVEL, SHOP, Manifest, cluster
from tools.demo.narrator import Narrator
from tools.demo.world import World
from tools.servers.argocd_controller import (
    NAMESPACE,
    application_set,
    cluster_secret,
    install_argocd,
    plain_secret,
    start_argocd,
)
from tools.servers.files import LOOPBACK, write_file, write_pair, write_private
from tools.servers.manifests import manifests_of
from tools.servers.running import RunningServer, free_port
from tools.servers.stack import RunningStack

GENERATOR = "kube-sync-generator"
_MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
_TARGETS = {"group": "argoproj.io", "version": "v1alpha1", "resource": "applicationsets"}


@dataclass(frozen=True, slots=True)
class Parts:
    """Argo CD in a stack: what services are configured with, and the controller once it runs."""

    stack: RunningStack
    folder: Path
    remediate: Mapping[str, object]  # more keys of that section
    shared: Mapping[str, Mapping[str, object]]  # sections of every service

    def start(self) -> RunningServer:
        """Start the controller; the remediator has to be started before."""
        return start_argocd(self.stack.api, self.folder, self.folder / "ca.crt")


def prepare(stack: RunningStack, folder: Path) -> Parts:
    """Install Argo CD's kinds and roles, and ours for it; return the rest to start it with."""
    authority = make_authority("kube-sync demo generator")
    write_file(folder / "ca.crt", authority.cert_pem)
    write_pair(folder, "tls", issue(authority, "kube-sync", LOOPBACK))
    token, port = secrets.token_urlsafe(24), free_port()
    install_argocd(stack.api)
    for part in ("argocd", "argocd-applicationsets"):
        for manifest in manifests_of(_MANIFESTS / part):
            stack.api.apply(_here(manifest, f"https://127.0.0.1:{port}"))
    stack.api.apply(plain_secret(GENERATOR, {"token": token}))
    generator = {
        "listen": f"127.0.0.1:{port}",
        "token_file": str(write_private(folder / "generator.token", token)),
        "cert_file": str(folder / "tls.crt"),
        "key_file": str(folder / "tls.key"),
    }
    replicated = [
        {
            "group": "multicluster.x-k8s.io",
            "version": "v1alpha1",
            "resource": "clusterprofiles",
            "as": "clusters",
        },
        {"group": "apps", "version": "v1", "resource": "replicasets"},
        dict(_TARGETS),
    ]
    shared: dict[str, Mapping[str, object]] = {
        "replicate": {"resources": replicated},
        "placement": {"resources": ["replicasets", _TARGETS["resource"]]},
    }
    return Parts(stack, folder, {"argocd": generator}, shared)


def _here(manifest: Manifest, url: str) -> Manifest:
    """Return a manifest as it is, but for where the generator is."""
    if manifest["kind"] != "ConfigMap":
        return manifest
    return {**manifest, "data": {**manifest["data"], "baseUrl": url}}


def argo_cd_follows(world: World, narrator: Narrator) -> None:
    """Tell how Applications follow a placement, and what an accident does to them."""
    target = {"resource": "replicasets.apps", "namespace": SHOP, "name": "nginx-eu"}
    placed = {
        "plugin": {
            "configMapRef": {"name": GENERATOR},
            "input": {"parameters": target},
            "requeueAfterSeconds": 1,
        }
    }
    own: dict[str, Any] = {
        "clusters": {"selector": {"matchLabels": {LEVEL: CLUSTERS["gce-europe-west1"][1]}}}
    }
    west1, west2 = "gce-europe-west1", "gce-europe-west2"
    with narrator.step("Argo CD makes an Application for each cluster of a placement"):
        for name, (region, level) in CLUSTERS.items():
            world.store(cluster(name, region, level))
            world.store(cluster_secret(name, {LEVEL: level}))
        world.store(application_set("eu", placed))
        narrator.see(
            "where nginx-eu is to run", (west1, west2), lambda: world.placements().get("nginx-eu")
        )
        narrator.see(
            "the Applications", [f"eu-{west1}", f"eu-{west2}"], lambda: _applications(world, "eu")
        )
    with narrator.step("A cluster loses its PCI level: its Application goes"):
        world.label(west2, LEVEL, "1")
        narrator.see("the Applications", [f"eu-{west1}"], lambda: _applications(world, "eu"))
        world.label(west2, LEVEL, "2")
        narrator.see(
            "the Applications after it has it again",
            [f"eu-{west1}", f"eu-{west2}"],
            lambda: _applications(world, "eu"),
        )
    with narrator.step("All clusters vanish: no Application does, but for Argo CD's own generator"):
        world.store(application_set("own", own))
        both = [f"own-{west1}", f"own-{west2}"]
        narrator.see("those of its own generator", both, lambda: _applications(world, "own"))
        world.forget(*CLUSTERS)
        world.unknow(*CLUSTERS)
        narrator.see("those of its own generator now", [], lambda: _applications(world, "own"))
        narrator.see(
            "what it says on the ApplicationSet of the placement",
            "Argo CD knows no cluster",
            lambda: _cause(world),
        )
        narrator.see(
            "the Applications", [f"eu-{west1}", f"eu-{west2}"], lambda: _applications(world, "eu")
        )


def _applications(world: World, application_set: str) -> list[str]:
    items = world.stack.api.get("applications.argoproj.io", namespace=NAMESPACE)["items"]
    owners = ((one["metadata"], one["metadata"].get("ownerReferences", ())) for one in items)
    return sorted(
        metadata["name"]
        for metadata, owned in owners
        if any(owner["name"] == application_set for owner in owned)
    )


def _cause(world: World) -> str:
    found = world.stack.api.get("applicationsets.argoproj.io", "eu", NAMESPACE)
    conditions = found.get("status", {}).get("conditions", ())
    said = " ".join(one["message"] for one in conditions if one["type"] == "ErrorOccurred")
    return "Argo CD knows no cluster" if "Argo CD knows no cluster" in said else said
