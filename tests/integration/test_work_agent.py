"""The stand-in for OCM's work agent between real API servers: policies arrive, statuses return."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.errors import NotFound, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource
from tests.eventually import eventually
from tests.fakes.topologies import color, rules
from tests.ocm.fleet import connected, work_agents
from tests.ocm.works import FINALIZER, WORKS, WorkRefused
from tools.servers.spokes import RunningSpoke
from tools.servers.stack import RunningStack

# Of a stand-in that only tests use; tests/integration/test_policy_sync.py has policies arrive.
pytestmark = pytest.mark.slow

FLAT = GroupVersionResource("tests.kube-sync.io", "v1", "flatpolicies")
KIND = Path(__file__).resolve().parents[1] / "ocm/flatpolicies.yaml"
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
PATHS = {
    "enforced": '.status.conditions[?(@.type=="Enforced")].status',
    "reason": '.status.conditions[?(@.type=="Enforced")].reason',
    "generation": ".status.observedGeneration",
}
Body = dict[str, Any]


class Fleet:
    """A hub and two spokes, and a namespace of the test's own on the spokes."""

    def __init__(self, stack: RunningStack, spokes: tuple[RunningSpoke, ...]) -> None:
        self.stack = stack
        self.spokes = spokes
        self.namespace = f"test-{secrets.token_hex(4)}"
        self.hub: KubeClient
        self.on: dict[str, KubeClient] = {}

    @property
    def kubeconfigs(self) -> dict[str, Any]:
        return {spoke.name: spoke.kubeconfig for spoke in self.spokes}

    def agents(self, interval: float = 0.1, **options: Any) -> Any:
        hub = self.stack.kubeconfigs["admin"]
        return work_agents(hub, self.kubeconfigs, interval=interval, jitter=lambda: 0.0, **options)

    def name(self, name: str = "p") -> str:
        return f"{self.namespace}-{name}"

    async def place(self, *manifests: Body, cluster: str = "spoke-1", name: str = "p",
                    **spec: Any) -> None:  # fmt: skip
        """Create a work for a cluster."""
        work = {
            "apiVersion": "work.open-cluster-management.io/v1",
            "kind": "ManifestWork",
            "metadata": {"name": self.name(name), "namespace": cluster},
            "spec": {"workload": {"manifests": list(manifests)}} | spec,
        }
        await self.hub.request("POST", WORKS.path(cluster), body=msgspec.json.encode(work))

    async def change(self, change: Body, cluster: str = "spoke-1", name: str = "p") -> None:
        path = WORKS.path(cluster, self.name(name))
        body = msgspec.json.encode(change)
        await self.hub.request("PATCH", path, body=body, content_type=MERGE)

    async def end(self, cluster: str = "spoke-1", name: str = "p") -> None:
        await self.hub.request("DELETE", WORKS.path(cluster, self.name(name)))

    async def work(self, cluster: str = "spoke-1", name: str = "p") -> Body | None:
        return await got(self.hub, WORKS, cluster, self.name(name))

    async def said(self, cluster: str = "spoke-1", name: str = "p") -> dict[str, Any]:
        """Return what the status says: reasons of conditions by type, and the values."""
        work = await self.work(cluster, name) or {}
        status = work.get("status", {})
        found = {one["type"]: one["reason"] for one in status.get("conditions", ())}
        for entry in status.get("resourceStatus", {}).get("manifests", ()):
            found |= {f"its {c['type']}": c["reason"] for c in entry["conditions"]}
            for value in entry.get("statusFeedback", {}).get("values", ()):
                typed = {k: v for k, v in value["fieldValue"].items() if k != "type"}
                found[value["name"]] = next(iter(typed.values()))
        return found

    async def policy(self, cluster: str = "spoke-1", name: str = "p") -> Body | None:
        return await got(self.on[cluster], FLAT, self.namespace, name)

    async def report(self, status: Body, cluster: str = "spoke-1", name: str = "p") -> None:
        """Write a policy's status, as its controller on the spoke would."""
        path = f"{FLAT.path(self.namespace, name)}/status"
        body = msgspec.json.encode({"status": status})
        await self.on[cluster].request("PATCH", path, body=body, content_type=MERGE)

    def color(self, name: str = "p", value: str = "blue") -> Body:
        found = color(name, namespace=self.namespace, rules=rules(sky=value))
        return found | {"apiVersion": "tests.kube-sync.io/v1", "kind": "FlatPolicy"}


async def got(
    client: KubeClient, gvr: GroupVersionResource, namespace: str, name: str
) -> Body | None:
    try:
        body: Body = msgspec.json.decode(await client.request("GET", gvr.path(namespace, name)))
    except NotFound:
        return None
    return body


def has(**wanted: Any) -> Callable[[Mapping[str, Any]], bool]:
    return lambda seen: wanted.items() <= seen.items()


def config(fleet: Fleet, paths: Mapping[str, str] = PATHS, **fields: Any) -> Body:
    """Return how a policy sync would have its copy applied and read."""
    named = [{"name": name, "path": path} for name, path in paths.items()]
    return {
        "resourceIdentifier": {
            "group": FLAT.group,
            "resource": FLAT.resource,
            "namespace": fleet.namespace,
            "name": "p",
        },
        "updateStrategy": {
            "type": "ServerSideApply",
            "serverSideApply": {"force": False, "fieldManager": "work-agent-test"},
        },
        "feedbackRules": [{"type": "JSONPaths", "jsonPaths": named}],
    } | fields


@pytest.fixture(scope="module")
def flat(spokes: tuple[RunningSpoke, ...]) -> tuple[RunningSpoke, ...]:
    """The spokes, with the kind on them."""
    for spoke in spokes:
        spoke.install_kinds(KIND)
    return spokes


@pytest.fixture
async def fleet(hub: RunningStack, flat: tuple[RunningSpoke, ...]) -> AsyncGenerator[Fleet]:
    spokes, found = flat, Fleet(hub, flat)
    kubeconfigs = [spoke.kubeconfig for spoke in spokes]
    async with connected(hub.kubeconfigs["admin"], *kubeconfigs) as [found.hub, *clients]:
        found.on = {spoke.name: client for spoke, client in zip(spokes, clients, strict=True)}
        for name, client in found.on.items():
            if await got(found.hub, NAMESPACES, "", name) is None:
                await create_namespace(found.hub, name)
            await create_namespace(client, found.namespace)
        yield found
        if [work for name in found.on for work in await leftover(found, name)]:
            async with found.agents():
                for name in found.on:
                    await eventually(partial(leftover, found, name), lambda left: not left)


async def leftover(fleet: Fleet, cluster: str) -> list[str]:
    """Delete the test's works and return those that are still there."""
    works = msgspec.json.decode(await fleet.hub.request("GET", WORKS.path(cluster)))["items"]
    left = [one["metadata"] for one in works if one["metadata"]["name"].startswith(fleet.namespace)]
    for one in left:
        if not one.get("deletionTimestamp"):
            await fleet.hub.request("DELETE", WORKS.path(cluster, one["name"]))
    return [one["name"] for one in left]


async def create_namespace(client: KubeClient, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await client.request("POST", NAMESPACES.path(), body=msgspec.json.encode(body))


async def test_a_policy_arrives_and_its_status_returns(fleet: Fleet) -> None:
    async with fleet.agents():
        await fleet.place(fleet.color(), manifestConfigs=[config(fleet)])
        await eventually(fleet.said, has(Available="ResourcesAvailable"))
        policy = await fleet.policy()
        assert policy is not None
        (manager,) = policy["metadata"]["managedFields"]
        assert (manager["manager"], manager["operation"]) == ("work-agent-test", "Apply")
        await fleet.report({
            "observedGeneration": 1,
            "conditions": [{"type": "Enforced", "status": "False", "reason": "Overridden"}],
        })  # fmt: skip
        said = await eventually(fleet.said, has(generation=1))
        assert said == {
            "Applied": "AppliedManifestWorkComplete",
            "Available": "ResourcesAvailable",
            "its Applied": "AppliedManifestComplete",
            "its Available": "ResourceAvailable",
            "its StatusFeedbackSynced": "StatusFeedbackSynced",
            "enforced": "False",
            "reason": "Overridden",
            "generation": 1,
        }


async def test_a_work_is_for_the_cluster_of_its_namespace(fleet: Fleet) -> None:
    async with fleet.agents():
        await fleet.place(fleet.color(value="red"))
        await fleet.place(fleet.color(value="blue"), cluster="spoke-2")
        for cluster, value in (("spoke-1", "red"), ("spoke-2", "blue")):
            await eventually(partial(fleet.said, cluster), has(Available="ResourcesAvailable"))
            policy = await fleet.policy(cluster)
            assert policy is not None
            assert policy["spec"]["rules"]["sky"]["color"] == value


async def test_what_is_no_scalar_is_told_and_drops_no_other(fleet: Fleet) -> None:
    paths = PATHS | {"all": ".status.conditions"}
    async with fleet.agents():
        await fleet.place(fleet.color(), manifestConfigs=[config(fleet, paths)])
        await eventually(fleet.policy, lambda policy: policy)
        await fleet.report({"observedGeneration": 4, "conditions": []})
        said = await eventually(fleet.said, has(generation=4))
        assert said["its StatusFeedbackSynced"] == "StatusFeedbackSyncFailed"
        assert "all" not in said


async def test_between_two_polls_the_hub_knows_what_was_true_before(fleet: Fleet) -> None:
    an_hour = 3600.0
    async with fleet.agents(interval=an_hour):
        await fleet.place(fleet.color(), manifestConfigs=[config(fleet)])
        await eventually(fleet.said, has(Available="ResourcesAvailable"))
        await fleet.report({"observedGeneration": 1})
        await fleet.place(fleet.color("other"), name="other")
        await eventually(lambda: fleet.said(name="other"), has(Available="ResourcesAvailable"))
        assert "generation" not in await fleet.said()
        # A change of the work, of whatever kind, makes the agent look.
        await fleet.change({"metadata": {"labels": {"touched": "yes"}}})
        await eventually(fleet.said, has(generation=1))


async def test_where_a_work_asks_for_it_a_status_is_watched(fleet: Fleet) -> None:
    async with fleet.agents(interval=3600.0):
        watched = config(fleet, feedbackScrapeType="Watch")
        await fleet.place(fleet.color(), manifestConfigs=[watched])
        await eventually(fleet.said, has(Available="ResourcesAvailable"))
        await fleet.report({"observedGeneration": 1})
        await eventually(fleet.said, has(generation=1))


async def test_a_changed_work_changes_its_object_and_is_observed(fleet: Fleet) -> None:
    async with fleet.agents():
        await fleet.place(fleet.color(value="red"), manifestConfigs=[config(fleet)])
        await eventually(fleet.said, has(Available="ResourcesAvailable"))
        await fleet.change({"spec": {"workload": {"manifests": [fleet.color(value="blue")]}}})
        policy = await eventually(fleet.policy, lambda one: one["metadata"]["generation"] == 2)
        assert policy["spec"]["rules"]["sky"]["color"] == "blue"

        async def observed() -> int:
            work = await fleet.work()
            assert work is not None
            return int(work["status"]["conditions"][0]["observedGeneration"])

        await eventually(observed, lambda generation: generation == 2)


@pytest.mark.parametrize(
    ("strategy", "color", "labels"),
    [
        ("Update", "blue", {"ours": "yes", "theirs": "yes"}),
        ("CreateOnly", "red", {"theirs": "yes"}),
        ("ReadOnly", "red", {"theirs": "yes"}),
    ],
)
async def test_the_other_strategies_do_with_what_is_there_as_their_names_say(
    fleet: Fleet, strategy: str, color: str, labels: dict[str, str]
) -> None:
    theirs, ours = fleet.color(value="red"), fleet.color(value="blue")
    theirs["metadata"]["labels"] = {"theirs": "yes"}
    ours["metadata"]["labels"] = {"ours": "yes"}
    collection = FLAT.path(fleet.namespace)
    await fleet.on["spoke-1"].request("POST", collection, body=msgspec.json.encode(theirs))
    async with fleet.agents():
        await fleet.place(ours, manifestConfigs=[config(fleet, updateStrategy={"type": strategy})])
        await eventually(fleet.said, has(Applied="AppliedManifestWorkComplete"))
        policy = await fleet.policy()
        assert policy is not None
        assert policy["spec"]["rules"]["sky"]["color"] == color
        assert policy["metadata"]["labels"] == labels
        await fleet.end()
        await eventually(fleet.work, lambda work: work is None)
        assert (await fleet.policy() is None) is (strategy != "ReadOnly")


async def test_what_is_deleted_on_the_spoke_is_told_and_comes_back_with_the_next_resync(
    fleet: Fleet,
) -> None:
    path = FLAT.path(fleet.namespace, "p")
    async with fleet.agents():
        await fleet.place(fleet.color())
        await eventually(fleet.said, has(Available="ResourcesAvailable"))
        await fleet.on["spoke-1"].request("DELETE", path)
        await eventually(fleet.said, has(Available="ResourcesNotAvailable"))
    async with fleet.agents(resync=0.0):
        await eventually(fleet.said, has(Available="ResourcesAvailable"))


async def test_a_cluster_scoped_manifest_lies_in_no_namespace(fleet: Fleet) -> None:
    made = f"{fleet.namespace}-made"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": made}}
    async with fleet.agents():
        await fleet.place(manifest, deleteOption={"propagationPolicy": "Orphan"})
        await eventually(fleet.said, has(Available="ResourcesAvailable"))
        work = await fleet.work()
        assert work is not None
        (entry,) = work["status"]["resourceStatus"]["manifests"]
        assert entry["resourceMeta"] == {
            "ordinal": 0,
            "group": "",
            "version": "v1",
            "kind": "Namespace",
            "resource": "namespaces",
            "namespace": "",
            "name": made,
        }


async def test_who_owns_a_field_on_the_spoke_keeps_it_unless_forced(fleet: Fleet) -> None:
    owned = msgspec.json.encode(fleet.color(value="red"))
    path = FLAT.path(fleet.namespace, "p")
    await fleet.on["spoke-1"].request(
        "PATCH", path, params={"fieldManager": "somebody"}, body=owned, content_type=APPLY
    )
    async with fleet.agents():
        await fleet.place(fleet.color(value="blue"), manifestConfigs=[config(fleet)])
        said = await eventually(fleet.said, has(Available="ResourcesAvailable"))
        assert said["Applied"] == "AppliedManifestWorkFailed"
        work = await fleet.work()
        assert work is not None
        (entry,) = work["status"]["resourceStatus"]["manifests"]
        applied = entry["conditions"][0]
        assert (applied["type"], applied["reason"]) == ("Applied", "AppliedManifestFailed")
        said_by = "Failed to apply manifest: Apply failed with 1 conflict: conflict with"
        assert applied["message"].startswith(f'{said_by} "somebody"')
        assert applied["observedGeneration"] == 1
        forced = config(fleet)
        forced["updateStrategy"]["serverSideApply"]["force"] = True
        await fleet.change({"spec": {"manifestConfigs": [forced]}})
        await eventually(fleet.said, has(Applied="AppliedManifestWorkComplete"))
        policy = await fleet.policy()
        assert policy is not None
        assert policy["spec"]["rules"]["sky"]["color"] == "blue"


async def test_what_cannot_be_applied_is_said_and_tried_until_it_can(fleet: Fleet) -> None:
    later = f"{fleet.namespace}-later"
    unknown = {"apiVersion": "example.com/v1", "kind": "Nothing", "metadata": {"name": "n"}}
    async with fleet.agents():
        elsewhere = fleet.color()
        elsewhere["metadata"]["namespace"] = later
        await fleet.place(elsewhere)
        await fleet.place(unknown, name="unknown")
        await eventually(fleet.said, has(Applied="AppliedManifestWorkFailed"))
        said = await eventually(
            lambda: fleet.said(name="unknown"), has(Applied="AppliedManifestWorkFailed")
        )
        assert said["its Applied"] == "AppliedManifestFailed"
        await create_namespace(fleet.on["spoke-1"], later)
        await eventually(fleet.said, has(Applied="AppliedManifestWorkComplete"))
        assert await got(fleet.on["spoke-1"], FLAT, later, "p")


async def test_a_work_goes_when_what_it_applied_is_gone(fleet: Fleet) -> None:
    async with fleet.agents():
        await fleet.place(fleet.color())
        await eventually(fleet.said, has(Applied="AppliedManifestWorkComplete"))
        path = FLAT.path(fleet.namespace, "p")
        held = msgspec.json.encode({"metadata": {"finalizers": ["example.com/held"]}})
        await fleet.on["spoke-1"].request("PATCH", path, body=held, content_type=MERGE)
        await fleet.end()
        await eventually(fleet.policy, lambda one: one["metadata"].get("deletionTimestamp"))
        work = await fleet.work()
        assert work is not None
        assert work["metadata"]["finalizers"] == [FINALIZER]
        free = msgspec.json.encode({"metadata": {"finalizers": []}})
        await fleet.on["spoke-1"].request("PATCH", path, body=free, content_type=MERGE)
        await eventually(fleet.work, lambda work: work is None)
        assert await fleet.policy() is None


async def test_an_orphan_stays_when_its_work_goes(fleet: Fleet) -> None:
    async with fleet.agents():
        await fleet.place(fleet.color(), deleteOption={"propagationPolicy": "Orphan"})
        await eventually(fleet.said, has(Applied="AppliedManifestWorkComplete"))
        await fleet.end()
        await eventually(fleet.work, lambda work: work is None)
        assert await fleet.policy()


async def test_what_a_work_has_no_more_goes(fleet: Fleet) -> None:
    async with fleet.agents():
        await fleet.place(fleet.color(), fleet.color("q"))
        await eventually(fleet.said, has(Available="ResourcesAvailable"))
        await fleet.change({"spec": {"workload": {"manifests": [fleet.color("q")]}}})
        await eventually(fleet.policy, lambda policy: policy is None)
        assert await fleet.policy(name="q")


async def test_what_two_works_hold_goes_with_the_last_of_them(fleet: Fleet) -> None:
    async with fleet.agents():
        for name in ("one", "other"):
            await fleet.place(fleet.color(), name=name)
            said = partial(fleet.said, name=name)
            await eventually(said, has(Available="ResourcesAvailable"))
        await fleet.end(name="one")
        await eventually(lambda: fleet.work(name="one"), lambda work: work is None)
        assert await fleet.policy()
        await fleet.end(name="other")
        await eventually(lambda: fleet.work(name="other"), lambda work: work is None)
        assert await fleet.policy() is None


async def test_an_agent_that_starts_again_writes_nothing_and_forgets_nothing(fleet: Fleet) -> None:
    async with fleet.agents():
        await fleet.place(fleet.color(), fleet.color("q"), manifestConfigs=[config(fleet)])
        await eventually(fleet.said, has(Available="ResourcesAvailable"))
    before, policy = await fleet.work(), await fleet.policy()
    async with fleet.agents():
        await fleet.place(fleet.color("z"), name="zzz")  # later than what was listed first
        await eventually(lambda: fleet.said(name="zzz"), has(Available="ResourcesAvailable"))
        assert (await fleet.work(), await fleet.policy()) == (before, policy)
    await fleet.change({"spec": {"workload": {"manifests": [fleet.color("q")]}}})
    async with fleet.agents():
        await eventually(fleet.policy, lambda policy: policy is None)
        await fleet.end()
        await eventually(fleet.work, lambda work: work is None)
        assert await fleet.policy(name="q") is None


async def test_a_spoke_that_is_away_for_a_while_hears_it_afterwards(fleet: Fleet) -> None:
    server = fleet.spokes[0].cluster.server
    async with fleet.agents():
        await fleet.place(fleet.color(value="red"))
        await eventually(fleet.said, has(Available="ResourcesAvailable"))
        await asyncio.to_thread(server.kill)
        try:
            await eventually(fleet.said, has(Available="ResourcesStatusUnknown"))
            await fleet.change({"spec": {"workload": {"manifests": [fleet.color(value="blue")]}}})
        finally:
            await asyncio.to_thread(server.start)
        await eventually(fleet.policy, lambda p: p["spec"]["rules"]["sky"]["color"] == "blue")
        await eventually(fleet.said, has(Available="ResourcesAvailable"))


async def test_a_work_that_ocm_refuses_ends_the_test(fleet: Fleet) -> None:
    with pytest.RaisesGroup(pytest.RaisesGroup(pytest.RaisesExc(WorkRefused, match="duplicate"))):
        async with fleet.agents():
            await fleet.place(fleet.color(), fleet.color())
            await asyncio.Event().wait()
    assert await fleet.policy() is None
    await fleet.end()


async def test_the_hub_itself_refuses_another_field_manager(fleet: Fleet) -> None:
    foreign = config(fleet)
    foreign["updateStrategy"]["serverSideApply"]["fieldManager"] = "kube-sync"
    with pytest.raises(Terminal, match="work-agent"):
        await fleet.place(fleet.color(), manifestConfigs=[foreign])
