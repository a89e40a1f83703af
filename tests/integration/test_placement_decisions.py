"""PlacementDecisions on a real API server, kept by the remediator with exactly its roles.

Decisions come from a stand-in: the remediator knows nothing but the stream.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kube_sync.decisions.decision import REQUESTED, Decision
from kube_sync.decisions.records import DecisionRecord, StatusRecord, Target
from kube_sync.remediation.sinks.slices import decision_key
from tests.eventually import eventually
from tests.fakes.clients import REPLICASETS
from tests.fakes.decisionstream import FakeDecisionStream, fake_decision_stream
from tests.integration.decisions_world import KIND, World, preferences, profile
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import PREFERENCES
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).resolve().parents[2]
LABEL = "multicluster.x-k8s.io"
NAMES = [f"c{n:03}" for n in range(150)]


@pytest.fixture(scope="module")
def cluster(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A stack of its own: the remediator watches all ReplicaSets there are."""
    folder = tmp_path_factory.mktemp("placement-decisions")
    with furnished_stack(launcher, folder, audit=True) as stack:
        stack.apply(ROOT / "manifests/placement-decisions")
        stack.api.create_namespace("fleet")
        for name in ("eu", "us", *NAMES):
            stack.api.apply(profile(name))
        yield stack


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stream(
    cluster: RunningStack,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> AsyncGenerator[FakeDecisionStream]:
    """What the remediator of the module reads; a parameter is what its sink is told."""
    told = getattr(request, "param", {})
    async with fake_decision_stream() as stream:
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(cluster.kubeconfigs["remediator"])},
            "decisions": {"url": f"{stream.http.url}/v1/decisions"},
            "remediate": {
                # A cluster may be decided before it has a profile; test_pair.py compares them.
                "guard": {**GUARD_OFF, "known_clusters": False},
                "sinks": {"placement_decisions": {"enabled": True, **told}},
            },
        }
        folder = tmp_path_factory.mktemp("remediate")
        service = await asyncio.to_thread(start_service, "remediate", folder, configuration)
        try:
            yield stream
        finally:
            await asyncio.to_thread(service.stop)


@pytest.fixture
def world(cluster: RunningStack, stream: FakeDecisionStream) -> World:
    """A namespace of the test's own."""
    namespace = f"test-{secrets.token_hex(4)}"
    cluster.api.create_namespace(namespace)
    return World(cluster, stream, namespace)


async def test_a_placement_is_published_for_its_resource_and_by_name(world: World) -> None:
    uid = await world.create("web")
    world.decide("web", uid, ["eu", "us"], {"eu": "jurisdiction"})
    await eventually(world.clusters, [["eu", "us"]])
    (found,) = world.published()
    assert found["schedulerName"] == "kube-sync"
    assert found["decisions"] == [
        {"clusterProfileRef": {"name": "eu", "namespace": "fleet"}, "reason": "jurisdiction"},
        {"clusterProfileRef": {"name": "us", "namespace": "fleet"}, "reason": "selected by p1"},
    ]
    metadata = found["metadata"]
    assert metadata["ownerReferences"] == [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid}
    ]
    assert metadata["name"] == f"{metadata['labels'][f'{LABEL}/decision-key']}-0"
    assert metadata["labels"][f"{LABEL}/decision-index"] == "0"
    (manager,) = metadata["managedFields"]
    assert (manager["manager"], manager["operation"]) == ("kube-sync-remediator", "Apply")


@pytest.mark.slow
async def test_the_same_decision_again_writes_nothing(world: World) -> None:
    uid = await world.create("web")
    world.decide("web", uid, ["eu"])
    await eventually(world.clusters, [["eu"]])
    world.decide("web", uid, ["eu"])
    world.decide("web", uid, ["eu"], {"eu": "cheap"})
    await eventually(lambda: world.published()[0]["decisions"][0]["reason"], "cheap")
    await eventually(world.writes, 2)


@pytest.mark.slow
async def test_more_than_a_hundred_clusters_are_slices_that_come_and_go(world: World) -> None:
    uid = await world.create("web")
    world.decide("web", uid, NAMES)
    await eventually(world.clusters, [NAMES[:100], NAMES[100:]])
    world.decide("web", uid, NAMES[60:])
    await eventually(world.clusters, [NAMES[60:]])


async def test_what_is_undecided_or_held_stays_and_a_release_catches_up(world: World) -> None:
    uid, other = await world.create("web"), await world.create("other")
    world.decide("web", uid, ["eu"])
    await eventually(world.clusters, [["eu"]])
    world.decide("web", uid, None, failure="evaluation error")
    world.stream.say(StatusRecord(("OPA is being loaded",), "fake"))
    world.decide("other", other, ["us"])
    world.stream.say(StatusRecord((), "fake"))
    await eventually(lambda: sorted(world.clusters()), [["eu"], ["us"]])
    await eventually(world.writes, 2)


async def test_a_placement_that_is_gone_is_deleted_and_others_are_not_touched(
    world: World,
) -> None:
    asked = {PREFERENCES: preferences(["eu"])}
    uids = {name: await world.create(name, asked) for name in ("undecided", "deleted")}
    for name, uid in uids.items():
        world.decide(name, uid, ["eu"])
    await eventually(world.clusters, [["eu"], ["eu"]])
    strange = json.loads(json.dumps(world.published()[0]))
    strange["metadata"] = {
        "name": "strange",
        "labels": {f"{LABEL}/decision-key": "strange"},
        "ownerReferences": strange["metadata"]["ownerReferences"],
    }
    await world.put(strange)
    world.decide("undecided", uids["undecided"], None)
    await world.annotate("undecided", {PREFERENCES: None})
    await world.delete("replicasets", "deleted")
    await eventually(lambda: [f["metadata"]["name"] for f in world.published()], ["strange"])


@pytest.mark.slow
async def test_a_placement_of_an_earlier_decision_is_published_until_the_resource_lacks_it(
    world: World,
) -> None:
    uid = await world.create("web")
    world.decide("web", uid, ["eu"])
    await eventually(world.clusters, [["eu"]])
    world.decide("web", uid, None)
    await world.annotate("web", {PREFERENCES: None, REQUESTED: None})
    await eventually(world.clusters, [])
    await eventually(world.writes, 2)


@pytest.mark.slow
async def test_a_placement_that_its_owner_asks_for_is_published_until_the_owner_does_not(
    world: World,
) -> None:
    uid = await world.create("web", {PREFERENCES: preferences(["eu"])})
    world.decide("web", uid, ["eu"])
    await eventually(world.clusters, [["eu"]])
    world.decide("web", uid, None)
    await world.annotate("web", {PREFERENCES: preferences(["us"])})
    await eventually(world.clusters, [["us"]])
    await eventually(world.writes, 2)  # it was published all the time
    await world.annotate("web", {PREFERENCES: None})
    await eventually(world.clusters, [])


async def test_a_cluster_that_may_hold_no_replica_is_not_published(world: World) -> None:
    text = '{"clusters":{"eu":{"weight":1},"us":{"weight":2,"maxReplicas":0}}}'
    uid = await world.create("web", {PREFERENCES: text})
    target = Target("apps", "v1", "replicasets", "web", world.namespace)
    decision = Decision({PREFERENCES: text})
    world.stream.say(DecisionRecord(target, uid, decision, 1, "data", "p1"))
    await eventually(world.clusters, [["eu"]])


@pytest.mark.slow
async def test_a_name_that_somebody_else_took_is_used_once_it_is_free(world: World) -> None:
    uid = await world.create("web")
    name = f"{decision_key(REPLICASETS, 'web')}-0"
    theirs = {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "PlacementDecision",
        "metadata": {"name": name, "labels": {f"{LABEL}/decision-key": "theirs"}},
        "decisions": [{"clusterProfileRef": {"name": "eu"}}],
    }
    await world.put(theirs)
    world.decide("web", uid, ["us"])
    await eventually(lambda: _placement(world), preferences(["us"]))
    assert world.clusters() == [["eu"]], "somebody else's"
    await world.delete(KIND, name)
    await eventually(world.clusters, [["us"]], 40)


async def test_decision_that_has_but_some_of_our_marks_is_neither_taken_nor_deleted(
    world: World,
) -> None:
    uid = await world.create("web")
    ours = f"{decision_key(REPLICASETS, 'web')}-0"
    label = {"app.kubernetes.io/managed-by": "kube-sync-remediator"}
    mark = {"kube-sync.io/placed": "replicasets.apps/web"}
    for name, scheduler, metadata in (
        ("unmarked", "kube-sync", {"labels": label}),
        ("unlabelled", "kube-sync", {"annotations": mark}),
        (ours, "another", {"labels": label, "annotations": mark}),
    ):
        theirs = {
            "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "kind": "PlacementDecision",
            "metadata": {"name": name, **metadata},
            "schedulerName": scheduler,
            "decisions": [{"clusterProfileRef": {"name": "us"}}],
        }
        await world.put(theirs)
    before = world.published()
    world.decide("web", uid, ["eu"])
    await eventually(lambda: _placement(world), preferences(["eu"]))
    assert world.published() == before
    await world.delete(KIND, ours)
    await eventually(world.clusters, [["eu"], ["us"], ["us"]], 40)


async def test_what_somebody_deleted_or_changed_is_put_right(world: World) -> None:
    uid = await world.create("web")
    world.decide("web", uid, ["eu"])
    await eventually(world.clusters, [["eu"]])
    await asyncio.to_thread(world.stack.api.delete_all, KIND, world.namespace)
    await eventually(world.clusters, [["eu"]])
    name = world.published()[0]["metadata"]["name"]
    change = {"decisions": [{"clusterProfileRef": {"name": "us"}}]}
    await asyncio.to_thread(world.stack.api.merge, KIND, name, change, world.namespace)
    await eventually(world.clusters, [["eu"]])


@pytest.mark.slow
async def test_a_resource_that_is_created_again_becomes_the_owner(world: World) -> None:
    world.decide("web", await world.create("web"), ["eu"])
    await eventually(world.clusters, [["eu"]])
    await world.delete("replicasets", "web")
    uid = await world.create("web")
    world.decide("web", uid, ["us"])

    def owners() -> list[list[str]]:
        return [[o["uid"] for o in f["metadata"]["ownerReferences"]] for f in world.published()]

    await eventually(lambda: (world.clusters(), owners()), ([["us"]], [[uid]]))


@pytest.mark.slow
async def test_a_cluster_without_a_profile_is_published_once_it_has_one(world: World) -> None:
    uid = await world.create("web")
    world.decide("web", uid, ["eu"])
    await eventually(world.clusters, [["eu"]])
    late = f"late-{secrets.token_hex(4)}"
    world.decide("web", uid, [late])
    await eventually(lambda: _placement(world), preferences([late]))
    assert world.clusters() == [["eu"]]
    await asyncio.to_thread(world.stack.api.create, profile(late))
    await eventually(world.clusters, [[late]])


def _placement(world: World) -> Any:
    found = world.stack.api.get("replicasets", "web", world.namespace)
    return found["metadata"].get("annotations", {}).get(PREFERENCES)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [{"namespace": "elsewhere"}], indirect=True)
async def test_a_namespace_that_is_configured_is_that_of_every_cluster(world: World) -> None:
    world.decide("web", await world.create("web"), ["any"])
    await eventually(world.clusters, [["any"]])
    (found,) = world.published()
    reference = found["decisions"][0]["clusterProfileRef"]
    assert reference == {"name": "any", "namespace": "elsewhere"}


@pytest.mark.slow
@pytest.mark.parametrize("stream", [{"enabled": False}], indirect=True)
async def test_nothing_is_published_unless_it_is_switched_on(world: World) -> None:
    world.decide("web", await world.create("web"), ["eu"])
    await eventually(lambda: _placement(world), preferences(["eu"]))
    assert (world.published(), world.writes()) == ([], 0)
