"""Argo CD's released ApplicationSet controller acts on placements, and no accident deletes any.

One controller, API server, OPA, replicator and remediator for the module; each test leaves the
fleet as it found it. Every move waits for an approval here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from tests.eventually import eventually
from tests.integration.decisions_world import preferences
from tools.demo.fleet import FLEET, POLICIES, PREFERENCES
from tools.servers.argocd_controller import NAMESPACE
from tools.servers.errors import ToolError
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack
from tools.soak.argocd.faults import FAULTS, Fault
from tools.soak.argocd.fleet import (
    DECISION,
    OWN,
    PLUGIN,
    POLICY,
    POLICY_NAME,
    TIER,
    WAYS,
    application_set,
    known_cluster,
    policy,
    profile,
)
from tools.soak.argocd.scene import Scene, argocd_scene
from tools.soak.argocd.table import complete, estate_of, furnish, rows

pytestmark = [
    pytest.mark.built("argocd"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]

ESTATE = estate_of(2, 4)
ALL = 2 * 4
SETS = "applicationsets.argoproj.io"
# What Argo CD's own generator loses under each fault: it follows what it sees.
LOST = {
    "no cluster is listed": ALL,
    "a cluster is renamed": 2,
    "half of the fleet is gone": ALL // 2,
    "the rule selects nothing": ALL,
    "watches hang, half is gone": ALL // 2,
}
# And what it loses by PlacementDecisions, where a cluster has no Secret of its name any more.
UNKNOWN = {name: count for name, count in LOST.items() if name != "the rule selects nothing"}


@pytest.fixture(scope="module")
def stack(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with furnished_stack(launcher, tmp_path_factory.mktemp("argocd")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(
    stack: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Scene]:
    async with argocd_scene(stack, tmp_path_factory.mktemp("scene")) as found:
        await furnish(found, ESTATE)
        yield found


def clusters(scene: Scene, name: str) -> list[str]:
    """Return the clusters that an ApplicationSet has Applications on."""
    prefix = f"{name}-"
    names = scene.applications()
    return sorted(one.removeprefix(prefix) for one in names if one.startswith(prefix))


async def approve(scene: Scene, name: str) -> None:
    """Approve as an operator does, on the policy."""
    approved = {"kube-sync.io/approved": name}
    await asyncio.to_thread(scene.api.annotate, "configmaps", POLICY_NAME, approved, POLICIES)


async def held(scene: Scene, moves: int = 4) -> str:
    """Wait until so many moves are held as one mass; return the approval that they wait for.

    Before, some of them may wait for the watch to tell of their last change, and the approval that
    the others ask for is of these alone. For some seconds after clusters have returned, moves are
    held because of the fleet, and the approval of that counts for no other size of it.
    """

    def kinds() -> list[tuple[str, str]]:
        return [(one["kind"], one["approve"]) for one in scene.waiting()]

    def is_one_mass(found: list[tuple[str, str]]) -> bool:
        return len(found) == moves and len({*found}) == 1 and found[0][0] == "mass"

    found = await eventually(kinds, is_one_mass)
    return str(found[0][1])


async def refresh(scene: Scene, *names: str) -> None:
    await scene.reconciled(names)


async def test_each_way_makes_an_application_for_each_cluster(scene: Scene) -> None:
    for way in WAYS:
        assert clusters(scene, f"{way}-0") == list(ESTATE.clusters)
    found = scene.api.get("applications.argoproj.io", f"{PLUGIN}-0-c000", NAMESPACE)
    assert found["spec"]["destination"]["server"] == "https://c000.example.com"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_no_accident_deletes_an_application_of_the_plugin_generator(
    scene: Scene, fault: Fault
) -> None:
    (row,) = [row async for row in rows(scene, ESTATE, [fault])]
    assert row.deleted == {
        OWN: LOST.get(fault.name, 0),
        DECISION: UNKNOWN.get(fault.name, 0),
        PLUGIN: 0,
    }


async def test_clusters_that_only_the_policy_does_not_see_cost_neither_way_an_application(
    scene: Scene,
) -> None:
    before = scene.applications()
    for name in ESTATE.clusters:
        await asyncio.to_thread(scene.api.delete, "clusterprofiles", name, FLEET)
    await eventually(lambda: len(scene.waiting()), 4)
    await refresh(scene, *(f"{way}-{number}" for way in WAYS for number in range(2)))
    assert scene.applications() == before
    for name in ESTATE.clusters:
        await asyncio.to_thread(scene.api.create, profile(name))
    await eventually(scene.waiting, [])
    await complete(scene, ESTATE)


async def test_an_approved_move_deletes_exactly_what_was_approved(scene: Scene) -> None:
    before = scene.applications()
    await asyncio.to_thread(scene.api.label, "clusterprofiles", "c000", FLEET, tier="silver")
    name = await held(scene)
    await refresh(scene, f"{PLUGIN}-0", f"{PLUGIN}-1", f"{DECISION}-0", f"{DECISION}-1")
    assert scene.applications() == before
    await approve(scene, name)
    left = list(ESTATE.clusters[1:])
    await eventually(lambda: clusters(scene, f"{PLUGIN}-0"), left)
    await eventually(lambda: clusters(scene, f"{DECISION}-0"), left)
    assert clusters(scene, f"{OWN}-0") == list(ESTATE.clusters), "its Secret has the label yet"
    await asyncio.to_thread(scene.api.label, "clusterprofiles", "c000", FLEET, tier="gold")
    await complete(scene, ESTATE)


async def test_a_cluster_that_argo_cd_does_not_know_is_said_on_the_application_set(
    scene: Scene,
) -> None:
    before = scene.applications()
    await asyncio.to_thread(scene.api.create, profile("stranger"))
    names = [f"{PLUGIN}-0", f"{PLUGIN}-1"]
    await eventually(lambda: "stranger" in str(scene.placement(f"{PLUGIN}-0")), expected=True)
    await refresh(scene, *names)
    assert "Argo CD knows no cluster stranger" in scene.error(f"{PLUGIN}-0")
    assert scene.applications() == before
    await asyncio.to_thread(scene.api.create, known_cluster("stranger"))
    await eventually(lambda: "stranger" in clusters(scene, f"{PLUGIN}-0"), expected=True)
    await eventually(lambda: scene.error(f"{PLUGIN}-0"), "")
    await _take_back(scene, "stranger")


async def _take_back(scene: Scene, cluster: str) -> None:
    await asyncio.to_thread(scene.api.delete, "clusterprofiles", cluster, FLEET)
    await approve(scene, await held(scene))
    await eventually(lambda: cluster in str(scene.placement(f"{PLUGIN}-0")), expected=False)
    await eventually(lambda: cluster in str(scene.placement(f"{DECISION}-1")), expected=False)
    await asyncio.to_thread(scene.api.delete, "secrets", f"cluster-{cluster}", NAMESPACE)
    await complete(scene, ESTATE)


async def test_a_placement_edited_by_hand_deletes_nothing(scene: Scene) -> None:
    before = scene.applications()
    change = {PREFERENCES: '{"clusters":{"c000":{"weight":1}}}'}
    await asyncio.to_thread(scene.api.annotate, SETS, f"{PLUGIN}-0", change, NAMESPACE)
    await refresh(scene, f"{PLUGIN}-0")
    await eventually(lambda: "c003" in str(scene.placement(f"{PLUGIN}-0")), expected=True)
    await refresh(scene, f"{PLUGIN}-0")
    assert scene.applications() == before


async def test_a_decision_written_past_the_brakes_deletes_nothing_until_it_is_approved(
    scene: Scene,
) -> None:
    """As the webhook writes it with any update of the owner, while the remediator holds it."""
    before, name = scene.applications(), f"{PLUGIN}-0"
    await asyncio.to_thread(scene.api.label, "clusterprofiles", "c000", FLEET, tier="silver")
    await held(scene)
    written = {PREFERENCES: preferences(ESTATE.clusters[1:])}
    await asyncio.to_thread(scene.api.annotate, SETS, name, written, NAMESPACE)
    await refresh(scene, name)
    why = await eventually(lambda: scene.error(name), lambda said: "no brake" in said)
    assert scene.applications() == before
    await approve(scene, why.split("`")[1].rpartition(" ")[2])
    await scene.reconciled([name])
    await eventually(lambda: clusters(scene, name), list(ESTATE.clusters[1:]))
    await asyncio.to_thread(scene.api.label, "clusterprofiles", "c000", FLEET, tier="gold")
    await complete(scene, ESTATE)


async def test_two_application_sets_of_one_target_are_said_on_it(scene: Scene) -> None:
    before = scene.applications()
    second = application_set(PLUGIN, 7, tier="none")
    named = second["spec"]["generators"][0]["plugin"]["input"]["parameters"]
    named["name"] = f"{PLUGIN}-0"
    await asyncio.to_thread(scene.api.create, second)
    await eventually(lambda: clusters(scene, f"{PLUGIN}-7"), list(ESTATE.clusters))
    await eventually(
        lambda: any("plugin-0, plugin-7 follow its placement" in one for one in events(scene)),
        expected=True,
    )
    await asyncio.to_thread(scene.api.delete, SETS, f"{PLUGIN}-7", NAMESPACE)
    for name in scene.applications().keys() - before.keys():  # no garbage collector runs here
        await asyncio.to_thread(scene.api.delete, "applications.argoproj.io", name, NAMESPACE)
    assert scene.applications() == before


def events(scene: Scene) -> list[str]:
    found: Any = scene.api.get("events.events.k8s.io", namespace=NAMESPACE)["items"]
    return [one.get("note", "") for one in found]


async def test_a_target_that_is_gone_keeps_its_applications(scene: Scene) -> None:
    """Of another object than the ApplicationSet, say a Deployment that somebody deletes."""
    await asyncio.to_thread(scene.api.create, application_set(DECISION, 8, tier="gold"))
    await eventually(lambda: "c003" in str(scene.placement(f"{DECISION}-8")), expected=True)
    follower = application_set(PLUGIN, 8, tier="none")
    named = follower["spec"]["generators"][0]["plugin"]["input"]["parameters"]
    named["name"] = f"{DECISION}-8"
    await asyncio.to_thread(scene.api.create, follower)
    await eventually(lambda: clusters(scene, f"{PLUGIN}-8"), list(ESTATE.clusters))
    before = {n: u for n, u in scene.applications().items() if n.startswith(PLUGIN)}
    await asyncio.to_thread(scene.api.delete, SETS, f"{DECISION}-8", NAMESPACE)
    await refresh(scene, f"{PLUGIN}-8")
    assert "there is no applicationsets.argoproj.io argocd/decision-8" in scene.error(f"{PLUGIN}-8")
    assert {n: u for n, u in scene.applications().items() if n.startswith(PLUGIN)} == before
    await asyncio.to_thread(scene.api.delete, SETS, f"{PLUGIN}-8", NAMESPACE)
    for name in scene.applications():
        if "-8-" in name:
            await asyncio.to_thread(scene.api.delete, "applications.argoproj.io", name, NAMESPACE)


@pytest.mark.parametrize("name", ["kube-sync-placements", "kube-sync-generator"])
async def test_the_configmap_of_a_generator_cannot_be_made_wrong(scene: Scene, name: str) -> None:
    """A wrong matchKey would be an empty list to Argo CD, and no error."""
    wrong = {"data": {"matchKey": "name", "baseUrl": "https://elsewhere"}}
    with pytest.raises(ToolError, match="immutable"):
        await asyncio.to_thread(scene.api.merge, "configmaps", name, wrong, NAMESPACE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"configMapRef": {"name": "nobody"}}, "not found"),
        ({"configMapRef": {"name": "test-wrong"}}, "baseUrl not found in ConfigMap"),
        (
            {"input": {"parameters": {"resource": "pods", "name": "a"}}},
            "placed are: applicationsets",
        ),
        ({"input": {"parameters": {"name": "a"}}}, "missing required field `resource`"),
    ],
    ids=["no ConfigMap", "an empty one", "another resource", "no resource"],
)
async def test_a_generator_that_is_wrong_is_said_on_the_application_set_and_all_stays(
    scene: Scene, change: dict[str, object], said: str
) -> None:
    before, name = scene.applications(), f"{PLUGIN}-0"
    heading = {"apiVersion": "v1", "kind": "ConfigMap"}
    wrong = {"metadata": {"name": "test-wrong", "namespace": NAMESPACE}, "data": {"matchKey": "x"}}
    await asyncio.to_thread(scene.api.apply, heading | wrong)
    right = scene.application_set(name)["spec"]["generators"]
    await generate(scene, name, [{"plugin": {**right[0]["plugin"], **change}}])
    await eventually(lambda: scene.error(name), lambda found: said in found)
    assert scene.applications() == before
    await generate(scene, name, right)
    await complete(scene, ESTATE)


async def generate(scene: Scene, name: str, generators: list[Any]) -> None:
    """Set the generators of an ApplicationSet."""
    change = {"spec": {"generators": generators}}
    await asyncio.to_thread(scene.api.merge, SETS, name, change, NAMESPACE)


async def test_a_wrong_token_is_said_on_the_application_set(scene: Scene) -> None:
    before = scene.applications()
    secret = "test-generator-token"
    wrong = {"stringData": {"token": "wrong"}}
    await asyncio.to_thread(scene.api.merge, "secrets", secret, wrong, NAMESPACE)
    await eventually(lambda: _error_of(scene), lambda said: "bearer token is not" in said)
    assert scene.applications() == before
    right = {"stringData": {"token": scene.token}}
    await asyncio.to_thread(scene.api.merge, "secrets", secret, right, NAMESPACE)
    await complete(scene, ESTATE)


def _error_of(scene: Scene) -> str:
    change = {"argocd.argoproj.io/application-set-refresh": "true"}
    scene.api.annotate(SETS, f"{PLUGIN}-0", change, NAMESPACE)
    return scene.error(f"{PLUGIN}-0")


async def test_nothing_is_selected_once_a_person_approves_it(scene: Scene) -> None:
    """The policy allows it (`evict`), the guard lets it through, and yet nothing is deleted."""
    evicting = POLICY + "\nevict if count(_clusters) == 0\n"
    await asyncio.to_thread(scene.api.apply, policy(evicting))
    name = f"{PLUGIN}-1"
    await asyncio.to_thread(scene.api.label, SETS, name, NAMESPACE, tier="none")
    approval = await held(scene, 1)
    before = scene.applications()
    await refresh(scene, name)
    assert scene.applications() == before
    await approve(scene, approval)
    await eventually(lambda: clusters(scene, name), [])
    await asyncio.to_thread(scene.api.label, SETS, name, NAMESPACE, **{TIER: "gold"})
    await asyncio.to_thread(scene.api.apply, policy())
    await complete(scene, ESTATE)


async def test_a_remediator_that_is_not_there_deletes_nothing(scene: Scene) -> None:
    before = scene.applications()
    await asyncio.to_thread(scene.services["remediate"].kill)
    await refresh(scene, f"{PLUGIN}-0", f"{PLUGIN}-1")
    assert scene.applications() == before
    assert "connection refused" in scene.error(f"{PLUGIN}-0")
    await asyncio.to_thread(scene.services["remediate"].start)
    await complete(scene, ESTATE)
