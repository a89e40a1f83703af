"""Moves that add first, with Argo CD's released kinds on a real API server.

What Argo CD's application controller would write is written here: it needs the clusters themselves.
The remediator has exactly its roles. Of the last test the ApplicationSet controller is Argo CD's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kube_sync.decisions.decision import Decision
from tests.eventually import eventually
from tests.fakes.standin import StandIn, stand_in
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import PREFERENCES, cluster, namespace, replica_set
from tools.servers.argocd import argocd_kinds
from tools.servers.argocd_controller import cluster_secret
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack
from tools.soak.argocd.fleet import (
    DECISION,
    PLUGIN,
    POLICY,
    application_set,
    known_cluster,
    policy,
    profile,
)
from tools.soak.argocd.scene import REMEDIATOR, REPLICATOR, Scene, argocd_scene

ROOT = Path(__file__).resolve().parents[2]
ARGO = "argocd"
pytestmark = pytest.mark.asyncio(loop_scope="module")

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
        stack.apply(ROOT / "manifests/argocd-health", ROOT / "manifests/argocd-clusters")
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

    def application(
        self, cluster: str, health: str, destination: Mapping[str, str] | None = None
    ) -> None:
        """Write an Application of the workload in a cluster, with this health.

        `destination`: what it is for, None: the cluster by its name.
        """
        name = f"{self.name}-{cluster}"
        destination = {"name": cluster} if destination is None else destination
        self.stack.api.apply(
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Application",
                "metadata": {"name": name, "namespace": ARGO, "labels": {LABEL: self.name}},
                "spec": {
                    "project": "default",
                    "source": {"repoURL": "https://git.example.com/web.git", "path": "."},
                    "destination": {**destination, "namespace": "shop"},
                },
            },
            force=True,
        )
        status = {"status": {"health": {"status": health}, "sync": {"status": "Synced"}}}
        self.stack.api.merge(APPLICATIONS, name, status, ARGO)


def _place(*clusters: str) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in clusters}})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(
    stack_of_argo: RunningStack,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> AsyncGenerator[StandIn]:
    """Yield what decides, with a remediator that carries it out; the parameter is its patience."""
    within, folder = getattr(request, "param", 600), tmp_path_factory.mktemp("remediate")
    async with stand_in() as engine:
        health = {"source": "argocd", "label": LABEL}
        configuration: dict[str, Any] = {
            "kubernetes": {"kubeconfig": str(stack_of_argo.kubeconfigs["remediator"])},
            "decisions": {"url": engine.url},
            "remediate": {
                "guard": {**GUARD_OFF, "known_clusters": False},
                "moves": "add-first",
                "add_first": {"healthy_within_seconds": within, "health": health},
            },
        }
        server = await asyncio.to_thread(start_service, "remediate", folder, configuration)
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


@pytest.mark.slow
@pytest.mark.parametrize("engine", [5], indirect=True)
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


@pytest.mark.slow
async def test_an_application_for_a_server_counts_for_the_cluster_that_argo_cd_has_there(
    stack_of_argo: RunningStack, engine: StandIn
) -> None:
    """And what is for no cluster is said on the workload."""
    world = World(stack_of_argo, engine, "shop")
    api = stack_of_argo.api
    await world.create("eu")
    world.application("eu", "Healthy", {"server": "https://eu.example.com"})
    await world.decide("us")
    await eventually(world.place, ["eu", "us"])
    world.application("us", "Healthy", {"server": "https://us.example.com/"})
    await eventually(
        lambda: _notes(api, "shop", "RemediationUnmatched"), _named("knows no cluster")
    )
    await asyncio.to_thread(api.create, cluster_secret("us"))
    await eventually(world.place, ["us"])


async def test_an_application_without_a_destination_is_said_on_the_workload(
    stack_of_argo: RunningStack, engine: StandIn
) -> None:
    world = World(stack_of_argo, engine, "lost")
    await world.create("eu")
    world.application("eu", "Healthy")
    world.application("us", "Healthy", {})
    await world.decide("us")
    notes = partial(_notes, stack_of_argo.api, "lost", "RemediationUnmatched")
    await eventually(notes, _named("Application argocd/lost-us is for no cluster"))
    assert world.place() == ["eu", "us"]


def _notes(api: Any, name: str, reason: str) -> list[str]:
    """Return the notes of Events with this reason about a workload."""
    found = api.get("events.events.k8s.io", namespace="shop")["items"]
    of_it = (one for one in found if one["regarding"]["name"] == name)
    return [one["note"] for one in of_it if one["reason"] == reason]


def _named(text: str) -> Callable[[list[str]], bool]:
    return lambda notes: any(text in note for note in notes)


DECISIONS = "placementdecisions.cluster.open-cluster-management.io"
WITHIN = 20  # seconds


@pytest.mark.built("argocd")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_healthy", [True, False])
async def test_argo_cd_deletes_no_application_before_another_one_is_healthy(
    launcher: Launcher, tmp_path: Path, *, is_healthy: bool
) -> None:
    moves: dict[str, Any] = {
        "moves": "add-first",
        "add_first": {"healthy_within_seconds": WITHIN, "health": {"source": "argocd"}},
    }
    with furnished_stack(launcher, tmp_path / "stack") as stack:
        stack.api.create(namespace(ARGO))
        stack.apply(ROOT / "manifests/argocd-health")
        async with argocd_scene(stack, tmp_path / "scene", GUARD_OFF, **moves) as scene:
            await asyncio.to_thread(_set_up, scene)
            await eventually(lambda: len(scene.api.get(DECISIONS, namespace=ARGO)["items"]), 2)
            # Before there was one, Argo CD took that for an error, and waits.
            await scene.reconciled([f"{way}-0" for way in (DECISION, PLUGIN)])
            await eventually(scene.applications, _are("c0"))
            before = scene.applications()
            _health(scene, "c0", "Healthy")
            scene.api.apply(policy(POLICY.replace("== input.metadata.labels.tier", '== "silver"')))
            await eventually(scene.applications, _are("c0", "c1"))
            assert scene.applications().items() >= before.items(), "the same as before"
            _health(scene, "c1", "Healthy" if is_healthy else "Degraded")
            await eventually(scene.applications, _are("c1" if is_healthy else "c0"))
            assert is_healthy or scene.applications() == before


def _set_up(scene: Scene) -> None:
    """Place two ApplicationSets, each of which follows its placement in one way."""
    for name, tier in (("c0", "gold"), ("c1", "silver")):
        scene.api.create(profile(name, tier))
        scene.api.create(known_cluster(name, tier=tier))
    scene.api.apply(policy())
    for command in (REPLICATOR, REMEDIATOR):
        scene.start(command)
    scene.start_controller()
    for way in (DECISION, PLUGIN):
        scene.api.create(application_set(way, 0, every=1))


def _are(*clusters: str) -> Callable[[Mapping[str, str]], bool]:
    names = {f"{way}-0-{name}" for way in (DECISION, PLUGIN) for name in clusters}
    return lambda found: found.keys() == names


def _health(scene: Scene, cluster: str, health: str) -> None:
    for way in (DECISION, PLUGIN):
        status = {"status": {"health": {"status": health}, "sync": {"status": "Synced"}}}
        scene.api.merge(APPLICATIONS, f"{way}-0-{cluster}", status, ARGO)
