"""PlacementDecisions of OCM's shape on a real API server with OCM's released kinds.

The remediator has exactly its roles: for the namespace argocd the Role there, and no ClusterRole.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kube_sync.config import Kubernetes
from kube_sync.decisions.records import StatusRecord
from kube_sync.kube.cache import Cache
from kube_sync.kube.client import kube_client
from kube_sync.kube.collection import Item, KubeCollection
from kube_sync.kube.ocmdecisions import OCM_PLACEMENT, OCM_PLACEMENT_DECISIONS
from kube_sync.kube.reflector import Reflector
from tests.eventually import eventually
from tests.fakes.decisionstream import FakeDecisionStream, fake_decision_stream
from tests.fakes.manifests import build
from tests.integration.decisions_world import World, preferences, profile
from tests.unit.async_tools import running
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import PREFERENCES
from tools.servers.running import Launcher, RunningServer
from tools.servers.stack import RunningStack, furnished_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).resolve().parents[2]
KIND = "placementdecisions.cluster.open-cluster-management.io"
ARGO = "argocd"
NAMES = [f"c{n:03}" for n in range(150)]
ADDS_FIRST = {"moves": "add-first", "add_first": {"healthy_within_seconds": 600}}
Row = tuple[str, list[str]]


@pytest.fixture(scope="module")
def cluster(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A stack of its own: the remediator watches all ReplicaSets there are."""
    folder = tmp_path_factory.mktemp("ocm-decisions")
    with furnished_stack(launcher, folder) as stack:
        stack.install_open_cluster_management()
        stack.api.create_namespace(ARGO)
        stack.apply(ROOT / "manifests/ocm-placement-decisions-argocd")
        stack.api.create_namespace("fleet")
        stack.api.create(profile("eu"))  # without a cluster nothing moves
        yield stack


@dataclass
class Remediator:
    """A remediator that can be started again."""

    stack: RunningStack
    stream: FakeDecisionStream
    folder: Path
    sink: Mapping[str, object]
    moves: Mapping[str, object]
    services: list[RunningServer] = field(default_factory=list)

    async def start(self) -> None:
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.stack.kubeconfigs["remediator"])},
            "decisions": {"url": f"{self.stream.http.url}/v1/decisions"},
            "remediate": {
                "guard": {**GUARD_OFF, "known_clusters": False},
                "sinks": {"ocm_placement_decisions": {"enabled": True, **self.sink}},
                **self.moves,
            },
        }
        started = await asyncio.to_thread(start_service, "remediate", self.folder, configuration)
        self.services.append(started)

    async def stop(self) -> None:
        await asyncio.to_thread(self.services.pop().stop)

    async def namespace(self) -> World:
        """Return a new namespace."""
        name = f"test-{secrets.token_hex(4)}"
        await asyncio.to_thread(self.stack.api.create_namespace, name)
        return World(self.stack, self.stream, name)


@contextmanager
def rights_of(cluster: RunningStack, sink: Mapping[str, object]) -> Iterator[None]:
    """Give the remediator what a sink without a namespace needs beside its roles."""
    manifests = [] if "namespace" in sink else build("ocm-placement-decisions")
    for one in manifests:
        cluster.api.apply(one)
    yield
    for one in manifests:
        cluster.api.remove(one)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def remediator(
    cluster: RunningStack,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> AsyncGenerator[Remediator]:
    """The remediator of the module; a parameter is its sink, and how it moves."""
    sink, moves = getattr(request, "param", ({"namespace": ARGO}, {}))
    folder = tmp_path_factory.mktemp("remediate")
    with rights_of(cluster, sink):
        async with fake_decision_stream() as stream:
            found = Remediator(cluster, stream, folder, sink, moves)
            await found.start()
            try:
                yield found
            finally:
                while found.services:
                    await found.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def world(remediator: Remediator) -> World:
    return await remediator.namespace()


def published(world: World, where: str = ARGO) -> list[Any]:
    """Return what is published of the namespace of a test."""
    items: list[Any] = world.stack.api.get(KIND, namespace=where)["items"]
    source = "kube-sync.io/placed-namespace"
    return [
        one
        for one in items
        if one["metadata"].get("annotations", {}).get(source, where) == world.namespace
    ]


def clusters(world: World, where: str = ARGO) -> list[list[str]]:
    return [
        [one["clusterName"] for one in found.get("status", {}).get("decisions", ())]
        for found in published(world, where)
        if OCM_PLACEMENT in found["metadata"]["labels"]
    ]


@asynccontextmanager
async def witness(stack: RunningStack) -> AsyncGenerator[list[Any]]:
    """Note every state that a reader by label finds, as Argo CD's generator is one."""
    seen: list[Any] = []

    def see(item: Item) -> bool:
        seen.append(json.loads(item.body))
        return True

    async with kube_client(Kubernetes(kubeconfig=str(stack.kubeconfigs["admin"]))) as client:
        source = KubeCollection(
            client, OCM_PLACEMENT_DECISIONS, namespace=ARGO, label_selector=OCM_PLACEMENT
        )
        cache = Cache[bool](see)
        reflector = Reflector("witness", source, cache, lambda _: None)
        async with running(reflector.run()):
            await eventually(lambda: cache.listed, expected=True)
            yield seen


async def test_a_placement_is_published_in_argo_cds_namespace_as_its_generator_reads_it(
    world: World,
) -> None:
    uid = await world.create("web")
    world.decide("web", uid, ["eu", "us"], {"eu": "jurisdiction"})
    await eventually(lambda: clusters(world), [["eu", "us"]])
    (found,) = published(world)
    assert found["status"] == {
        "decisions": [
            {"clusterName": "eu", "reason": "jurisdiction"},
            {"clusterName": "us", "reason": "selected by p1"},
        ]
    }
    metadata = found["metadata"]
    assert metadata["name"] == f"{metadata['labels'][OCM_PLACEMENT]}-0"
    assert "ownerReferences" not in metadata, "nothing owns an object across namespaces"
    assert json.loads(metadata["annotations"]["kube-sync.io/placed-owner"])["uid"] == uid
    assert metadata["annotations"]["kube-sync.io/placed"] == "replicasets.apps/web"
    assert {one["manager"] for one in metadata["managedFields"]} == {"kube-sync-remediator"}


@pytest.mark.slow
async def test_no_reader_by_label_ever_finds_one_without_its_clusters(world: World) -> None:
    """One such object alone is no clusters to Argo CD's generator, and no error."""
    uid = await world.create("web")
    async with witness(world.stack) as seen:
        world.decide("web", uid, ["eu"])
        await eventually(lambda: clusters(world), [["eu"]])
        name = published(world)[0]["metadata"]["name"]
        await asyncio.to_thread(world.stack.api.delete, KIND, name, ARGO)
        await eventually(lambda: clusters(world), [["eu"]])
        world.decide("web", uid, NAMES)
        await eventually(lambda: clusters(world), [NAMES[:100], NAMES[100:]])
        world.decide("web", uid, NAMES[60:])
        await eventually(lambda: clusters(world), [NAMES[60:]])
        await eventually(lambda: len(seen) > 4, expected=True)
    assert all(one["status"]["decisions"] for one in seen)


@pytest.mark.slow
async def test_the_same_name_in_two_namespaces_is_published_twice(remediator: Remediator) -> None:
    first, second = await remediator.namespace(), await remediator.namespace()
    for one, name in ((first, "eu"), (second, "us")):
        one.decide("web", await one.create("web"), [name])
    await eventually(lambda: (clusters(first), clusters(second)), ([["eu"]], [["us"]]))


async def test_what_is_undecided_or_held_stays_as_it_is(world: World) -> None:
    uid, other = await world.create("web"), await world.create("other")
    world.decide("web", uid, ["eu"])
    await eventually(lambda: clusters(world), [["eu"]])
    (before,) = published(world)
    world.decide("web", uid, None, failure="evaluation error")
    world.stream.say(StatusRecord(("OPA is being loaded",), "fake"))
    world.decide("web", uid, [])
    world.decide("other", other, ["us"])
    world.decide("web", uid, None, failure="evaluation error")
    world.stream.say(StatusRecord((), "fake"))
    await eventually(lambda: sorted(clusters(world)), [["eu"], ["us"]])
    assert before in published(world)


@pytest.mark.slow
async def test_what_is_of_a_resource_that_went_while_nobody_watched_is_deleted(
    remediator: Remediator,
) -> None:
    gone, there = await remediator.namespace(), await remediator.namespace()
    uids = {one.namespace: await one.create("web") for one in (gone, there)}
    for one in (gone, there):
        one.decide("web", uids[one.namespace], ["eu"])
    await eventually(lambda: clusters(gone) + clusters(there), [["eu"], ["eu"]])
    await remediator.stop()
    await gone.delete("replicasets", "web")
    await remediator.start()
    await eventually(lambda: (clusters(gone), clusters(there)), ([], [["eu"]]))


@pytest.mark.slow
async def test_a_resource_that_is_deleted_or_created_again_takes_its_clusters_along(
    world: World,
) -> None:
    world.decide("web", await world.create("web"), ["eu"])
    await eventually(lambda: clusters(world), [["eu"]])
    await world.delete("replicasets", "web")
    await eventually(lambda: clusters(world), [])
    world.decide("web", await world.create("web"), ["us"])
    await eventually(lambda: clusters(world), [["us"]])


async def test_what_ocm_decided_is_neither_taken_nor_deleted(world: World) -> None:
    """As its placement controller writes it: the label, and a Placement that owns it."""
    theirs = {
        "apiVersion": OCM_PLACEMENT_DECISIONS.api_version,
        "kind": "PlacementDecision",
        "metadata": {
            "name": "theirs-decision-1",
            "namespace": ARGO,
            "labels": {OCM_PLACEMENT: "theirs"},
        },
    }
    api = world.stack.api
    await asyncio.to_thread(api.create, theirs)
    status = {"status": {"decisions": [{"clusterName": "us", "reason": ""}]}}
    await asyncio.to_thread(api.merge, KIND, "theirs-decision-1", status, ARGO, "status")
    before = api.get(KIND, "theirs-decision-1", ARGO)
    world.decide("web", await world.create("web"), ["eu"])
    await eventually(lambda: clusters(world), [["eu"]])
    assert api.get(KIND, "theirs-decision-1", ARGO) == before


@pytest.mark.slow
async def test_clusters_that_somebody_changed_are_put_right(world: World) -> None:
    world.decide("web", await world.create("web"), ["eu"])
    await eventually(lambda: clusters(world), [["eu"]])
    name = published(world)[0]["metadata"]["name"]
    change: dict[str, Any] = {"status": {"decisions": []}}
    await asyncio.to_thread(world.stack.api.merge, KIND, name, change, ARGO, "status")
    await eventually(lambda: clusters(world), [["eu"]])


@pytest.mark.slow
@pytest.mark.parametrize("remediator", [({}, {})], indirect=True, ids=["no namespace"])
async def test_without_a_namespace_a_placement_is_published_beside_its_resource(
    world: World,
) -> None:
    uid = await world.create("web", {PREFERENCES: preferences(["eu"])})
    world.decide("web", uid, ["eu"])
    await eventually(lambda: clusters(world, world.namespace), [["eu"]])
    (found,) = published(world, world.namespace)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid}
    assert found["metadata"]["ownerReferences"] == [owner]
    await world.delete("replicasets", "web")
    await eventually(lambda: clusters(world, world.namespace), [])


@pytest.mark.parametrize(
    ("verb", "namespace", "allowed"),
    [("list", ARGO, True), ("list", "default", False), ("patch", ARGO, False)],
)
async def test_argo_cds_controller_may_read_them_in_its_namespace_and_no_more(
    cluster: RunningStack, verb: str, namespace: str, *, allowed: bool
) -> None:
    attributes = {
        "group": OCM_PLACEMENT_DECISIONS.group,
        "resource": OCM_PLACEMENT_DECISIONS.resource,
        "verb": verb,
        "namespace": namespace,
    }
    user = f"system:serviceaccount:{ARGO}:argocd-applicationset-controller"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = cluster.api.ask("POST", path, review)
    assert answer["status"]["allowed"] == allowed


async def test_the_generators_configmap_names_what_is_published(cluster: RunningStack) -> None:
    """The generator uses `kind` as the plural; a list or key that is wrong stops the controller."""
    data = cluster.api.get("configmaps", "kube-sync-placements", ARGO)["data"]
    path = f"/apis/{data['apiVersion']}/namespaces/{ARGO}/{data['kind']}"
    assert path == OCM_PLACEMENT_DECISIONS.path(ARGO)
    assert (data["statusListKey"], data["matchKey"]) == ("decisions", "clusterName")


@pytest.mark.parametrize(
    "remediator", [({"namespace": ARGO}, ADDS_FIRST)], indirect=True, ids=["adds first"]
)
@pytest.mark.parametrize("ends", ["us", "eu"])
async def test_consumers_see_both_steps_of_a_move_that_adds_first(world: World, ends: str) -> None:
    """The second step takes the old cluster away, or the new one where the decision goes back."""
    uid, api = await world.create("web"), world.stack.api
    change = {"spec": {"replicas": 1}}  # without any, it would move at once
    await asyncio.to_thread(api.merge, "replicasets", "web", change, world.namespace)
    world.decide("web", uid, ["eu"])
    await eventually(lambda: clusters(world), [["eu"]])
    async with witness(world.stack) as seen:
        world.decide("web", uid, ["us"])
        await eventually(lambda: _shown(seen, world), ["eu", "eu,us"])
        if ends == "us":
            await world.annotate("web", {"health.kube-sync.io/us": "healthy"})
        else:
            world.decide("web", uid, ["eu"])
        await eventually(lambda: _shown(seen, world), ["eu", "eu,us", ends])


def _shown(seen: Iterable[Any], world: World) -> list[str]:
    """Return the clusters that a reader found of a namespace, one after the other."""
    source = "kube-sync.io/placed-namespace"
    found = [
        ",".join(one["clusterName"] for one in body["status"]["decisions"])
        for body in [*seen]
        if body["metadata"].get("annotations", {}).get(source) == world.namespace
    ]
    return [text for before, text in zip(["", *found], found, strict=False) if text != before]
