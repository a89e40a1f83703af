"""Moves that add first, with Argo CD's released kinds on a real API server.

The Applications are written here as Argo CD's application controller would: it needs the clusters
themselves. The remediator has exactly its roles.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.servers.argocd import argocd_kinds

from kube_sync.decisions.decision import Decision
from tests.eventually import eventually
from tests.fakes.standin import StandIn, stand_in
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import PREFERENCES, cluster, namespace, replica_set
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack

ROOT = Path(__file__).resolve().parents[2]
ARGO = "argocd"
LABEL = "example.com/workload"
APPLICATIONS = "applications.argoproj.io"


@pytest.fixture(scope="module")
def stack_of_argo(
    launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningStack]:
    with furnished_stack(launcher, tmp_path_factory.mktemp("add-first-argocd")) as stack:
        stack.install_kinds(argocd_kinds())
        for name in (ARGO, "shop", "fleet"):
            stack.api.create(namespace(name))
        stack.apply(ROOT / "manifests/argocd-health")
        stack.api.create(cluster("eu", "europe-west1", "2"))
        yield stack


class World:
    """One workload, the decision on it, and its Applications."""

    def __init__(self, stack: RunningStack, engine: StandIn, name: str) -> None:
        self.stack, self.engine, self.name = stack, engine, name
        self.uid = ""

    async def create(self, *clusters: str) -> None:
        manifest = replica_set(self.name)
        manifest["metadata"]["annotations"] = {PREFERENCES: _place(*clusters)}
        found = await asyncio.to_thread(self.stack.api.create, manifest)
        self.uid = found["metadata"]["uid"]

    async def decide(self, *clusters: str) -> None:
        decision = Decision({PREFERENCES: _place(*clusters)})
        await self.engine.decide(("shop", self.name, self.uid, decision))

    def place(self) -> list[str]:
        found = self.stack.api.get("replicasets", self.name, "shop")["metadata"]["annotations"]
        return sorted(json.loads(found[PREFERENCES])["clusters"])

    def application(self, cluster: str, health: str) -> None:
        """Write an Application of the workload in a cluster, with this health."""
        name = f"{self.name}-{cluster}"
        self.stack.api.apply(
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Application",
                "metadata": {"name": name, "namespace": ARGO, "labels": {LABEL: self.name}},
                "spec": {
                    "project": "default",
                    "source": {"repoURL": "https://git.example.com/web.git", "path": "."},
                    "destination": {"name": cluster, "namespace": "shop"},
                },
            }
        )
        status = {"status": {"health": {"status": health}, "sync": {"status": "Synced"}}}
        self.stack.api.merge(APPLICATIONS, name, status, ARGO)


def _place(*clusters: str) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in clusters}})


@pytest.fixture
async def engine(stack_of_argo: RunningStack, tmp_path: Path) -> AsyncGenerator[StandIn]:
    """Yield what decides, with a remediator that carries it out."""
    async with stand_in() as engine:
        health = {"source": "argocd", "label": LABEL}
        configuration: dict[str, Any] = {
            "kubernetes": {"kubeconfig": str(stack_of_argo.kubeconfigs["remediator"])},
            "decisions": {"url": engine.url},
            "remediate": {
                "guard": {**GUARD_OFF, "known_clusters": False},
                "moves": "add-first",
                "add_first": {"healthy_within_seconds": 5, "health": health},
            },
        }
        server = await asyncio.to_thread(start_service, "remediate", tmp_path, configuration)
        try:
            yield engine
        finally:
            await asyncio.to_thread(server.stop)


async def test_old_clusters_go_when_the_applications_in_the_new_ones_are_healthy(
    stack_of_argo: RunningStack, engine: StandIn
) -> None:
    world = World(stack_of_argo, engine, "web")
    await world.create("eu")
    world.application("eu", "Healthy")
    await world.decide("us")
    await eventually(world.place, ["eu", "us"])
    world.application("us", "Progressing")
    world.application("us", "Healthy")
    await eventually(world.place, ["us"])


async def test_what_argo_cd_calls_degraded_is_taken_back(
    stack_of_argo: RunningStack, engine: StandIn
) -> None:
    world = World(stack_of_argo, engine, "api")
    await world.create("eu")
    world.application("eu", "Healthy")
    await world.decide("us")
    await eventually(world.place, ["eu", "us"])
    world.application("us", "Degraded")
    await eventually(world.place, ["eu"])
