"""Which objects can be targets, and what sinks do without annotations, on a real API server.

The remediator has exactly its roles, and of the targets it may patch only those that get
annotations. Decisions come from a stand-in: the remediator knows nothing but the stream.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.config import Placement, Settings
from kube_sync.config import Target as Placed
from kube_sync.decisions.decision import REQUESTED, Decision
from kube_sync.decisions.records import DecisionRecord, Target
from kube_sync.guard import ADDITION, HISTORY
from kube_sync.kube.approvals import APPROVED
from kube_sync.processes import sinks
from kube_sync.processes.context import process
from kube_sync.processes.remediating import remediate
from kube_sync.runtime.services import Service
from tests.eventually import eventually
from tests.fakes.decisionstream import FakeDecisionStream, fake_decision_stream
from tests.integration import config_map_sink
from tests.integration.decisions_world import preferences
from tests.integration.webhook_world import webhook_world, workload
from tests.unit.async_tools import running
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import PREFERENCES
from tools.servers.errors import ToolError
from tools.servers.http import get
from tools.servers.running import Launcher, RunningServer, free_port
from tools.servers.stack import RunningStack, furnished_stack

ROOT = Path(__file__).resolve().parents[2]
KIND = "placementdecisions.cluster.open-cluster-management.io"
FOREIGN = {"clusterName": "asia", "reason": ""}
POLICIES = "kube-federation-scheduling-policy"
GROUPS = {
    "deployments": ("apps", "v1"),
    "jobs": ("batch", "v1"),
    "manifestworks": ("work.open-cluster-management.io", "v1"),
}
# Of the Deployments nothing is changed, so that nothing but reading them is granted.
SINKS: tuple[object, ...] = (
    {"name": "deployments", "sinks": ["ocm_placement_decisions"]},
    "jobs",
    {"name": "manifestworks", "sinks": ["annotations", "ocm_placement_decisions"]},
)
RULES = [
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "watch"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch", "patch"]},
    {
        "apiGroups": ["work.open-cluster-management.io"],
        "resources": ["manifestworks"],
        "verbs": ["list", "watch", "patch"],
    },
]


@pytest.fixture(scope="module")
def cluster(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A stack of its own: the remediator watches all targets there are."""
    with furnished_stack(launcher, tmp_path_factory.mktemp("sinks")) as stack:
        stack.install_open_cluster_management()
        stack.apply(ROOT / "manifests/ocm-placement-decisions")
        for kind, found in (("ClusterRole", {"rules": RULES}), ("ClusterRoleBinding", _BINDING)):
            api = "rbac.authorization.k8s.io/v1"
            stack.api.create({"apiVersion": api, "kind": kind, "metadata": _ROLE, **found})
        yield stack


_ROLE = {"name": "targets-of-sinks"}
_BINDING = {
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **_ROLE},
    "subjects": [
        {"kind": "ServiceAccount", "name": "kube-sync-remediator", "namespace": "kube-sync"}
    ],
}


@dataclass
class World:
    """A namespace with an object of each kind, and a remediator that can be started again."""

    stack: RunningStack
    stream: FakeDecisionStream
    folder: Path
    guard: Mapping[str, object]
    namespace: str
    moves: Mapping[str, object] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    uids: dict[str, str] = field(default_factory=dict)
    services: list[RunningServer] = field(default_factory=list)

    def document(self, *resources: object) -> dict[str, object]:
        """Return a configuration with these targets."""
        replicated = [
            {"group": group, "version": version, "resource": name}
            for name, (group, version) in GROUPS.items()
        ]
        return {
            "decisions": {"url": f"{self.stream.http.url}/v1/decisions"},
            "replicate": {"resources": replicated},
            "placement": {"resources": list(resources)},
            "remediate": {"guard": {**GUARD_OFF, **self.guard}, **self.moves},
        }

    async def start(self, *resources: object, ready: str = "/readyz") -> None:
        document = self.document(*(resources or SINKS))
        document["kubernetes"] = {"kubeconfig": str(self.stack.kubeconfigs["remediator"])}
        listen = {"listen": f"127.0.0.1:{self.port}"}
        document["remediate"] = {**document["remediate"], **listen}  # type: ignore[dict-item]
        self.services.append(
            await asyncio.to_thread(
                partial(start_service, "remediate", self.folder, document, ready=ready)
            )
        )

    async def stop(self) -> None:
        await asyncio.to_thread(self.services.pop().stop)

    async def create(self) -> None:
        """Create an object of each kind."""
        for manifest in objects():
            manifest["metadata"] |= {"name": "web", "namespace": self.namespace}
            found = await asyncio.to_thread(self.stack.api.create, manifest)
            self.uids[f"{manifest['kind'].lower()}s"] = found["metadata"]["uid"]

    def decide(self, resource: str, *clusters: str) -> None:
        target = Target(*GROUPS[resource], resource, "web", self.namespace)
        decision = Decision({PREFERENCES: preferences(clusters)})
        uid = self.uids[resource]
        self.stream.say(DecisionRecord(target, uid, decision, 1, "data", "p1"))

    def object(self, resource: str) -> Any:
        group, _ = GROUPS[resource]
        return self.stack.api.get(f"{resource}.{group}", "web", self.namespace)

    def annotations(self, resource: str) -> dict[str, str]:
        """Return the annotations of an object without those of the remediator itself."""
        found = self.object(resource)["metadata"].get("annotations", {})
        return {k: text for k, text in found.items() if k not in (REQUESTED, HISTORY)}

    def histories(self) -> list[bool]:
        """Tell of each published object whether it keeps a history of moves."""
        items = self.stack.api.get(KIND, namespace=self.namespace)["items"]
        return [HISTORY in one["metadata"]["annotations"] for one in items]

    def records(self) -> list[list[str]]:
        """Return the step and the clusters of each addition that is recorded."""
        items = self.stack.api.get(KIND, namespace=self.namespace)["items"]
        texts = [one["metadata"]["annotations"].get(ADDITION) for one in items]
        found = [json.loads(text) for text in texts if text]
        return [[one.get("step", "added"), *one["added"]] for one in found]

    def heal(self, cluster: str) -> None:
        """Report that the Deployment is healthy in a cluster, as its agent would."""
        healthy = {f"health.kube-sync.io/{cluster}": "healthy"}
        self.stack.api.annotate("deployments.apps", "web", healthy, self.namespace)

    def published(self) -> dict[str, list[str]]:
        """Return the clusters that are published, by the resource that they are of."""
        return {
            found["metadata"]["annotations"]["kube-sync.io/placed"].partition(".")[0]: [
                one["clusterName"] for one in found.get("status", {}).get("decisions", ())
            ]
            for found in self.stack.api.get(KIND, namespace=self.namespace)["items"]
        }

    def waiting(self) -> Any:
        page = get(f"http://127.0.0.1:{self.port}/v1/remediation/status").body
        return json.loads(page)["waiting"]

    def held(self) -> list[tuple[str, str]]:
        return [(one["resource"].partition(".")[0], one["kind"]) for one in self.waiting()]


def objects() -> Iterator[dict[str, Any]]:
    """Yield the manifest of an object of each kind, without a name."""
    pod = {"containers": [{"name": "main", "image": "nginx"}]}
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": template}
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": spec}
    once = {"template": {"spec": {**pod, "restartPolicy": "Never"}}}
    yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": once}
    api = "work.open-cluster-management.io/v1"
    manifests: dict[str, Any] = {"workload": {"manifests": []}}
    yield {"apiVersion": api, "kind": "ManifestWork", "metadata": {}, "spec": manifests}


@asynccontextmanager
async def a_world(
    stack: RunningStack, folder: Path, guard: Mapping[str, object], **moves: object
) -> AsyncGenerator[World]:
    namespace = f"test-{secrets.token_hex(4)}"
    await asyncio.to_thread(stack.api.create_namespace, namespace)
    async with fake_decision_stream() as stream:
        world = World(stack, stream, folder / "remediate", guard, namespace, moves)
        await world.create()
        try:
            yield world
        finally:
            while world.services:
                await world.stop()


@pytest.fixture
async def world(
    cluster: RunningStack, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncGenerator[World]:
    """A world whose parameter is limits of the guard."""
    async with a_world(cluster, tmp_path, getattr(request, "param", {})) as found:
        await found.start()
        yield found


async def test_any_kind_may_be_a_target_and_each_has_its_own_sinks(world: World) -> None:
    before = world.object("deployments")
    for resource in GROUPS:
        world.decide(resource, "eu")
    placed = {PREFERENCES: preferences(["eu"])}
    await eventually(world.published, {"deployments": ["eu"], "manifestworks": ["eu"]})
    for resource in ("jobs", "manifestworks"):
        await eventually(partial(world.annotations, resource), placed)
    assert world.object("deployments") == before
    for resource in GROUPS:
        world.decide(resource, "us")
    await eventually(world.published, {"deployments": ["us"], "manifestworks": ["us"]})
    await eventually(lambda: world.annotations("jobs"), {PREFERENCES: preferences(["us"])})
    assert world.object("deployments") == before


@pytest.mark.slow
@pytest.mark.parametrize("world", [{"dwell_seconds": 3600}], indirect=True)
async def test_a_restart_reads_back_what_was_let_through_and_when(world: World) -> None:
    """There is no annotation: the history of moves is on what is published."""
    world.decide("deployments", "eu")
    await eventually(world.published, {"deployments": ["eu"]})
    for again in (False, True):
        if again:
            await world.stop()
            await world.start()
        world.decide("deployments", "us")
        await eventually(world.held, [("deployments", "dwell")])
        assert world.published() == {"deployments": ["eu"]}
    (held,) = world.waiting()
    assert held["changes"].keys() == {PREFERENCES}
    await asyncio.to_thread(world.stack.api.delete, "deployments.apps", "web", world.namespace)
    await eventually(world.published, {})


@pytest.mark.slow
@pytest.mark.parametrize("world", [{"mass_share": 0, "mass_floor": 0}], indirect=True)
async def test_an_approval_lets_through_what_is_not_annotated(world: World) -> None:
    world.decide("deployments", "eu")
    await eventually(world.published, {"deployments": ["eu"]})
    world.decide("deployments", "us")
    await eventually(world.held, [("deployments", "mass")])
    (held,) = world.waiting()
    assert world.published() == {"deployments": ["eu"]}
    approval = {APPROVED: f"{held['approve']}@{time.time():.0f}"}
    metadata = {"name": world.namespace, "namespace": POLICIES, "annotations": approval}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}
    await asyncio.to_thread(world.stack.api.create, manifest)
    await eventually(world.published, {"deployments": ["us"]})
    await eventually(world.waiting, [])


@pytest.mark.slow
async def test_the_history_goes_where_the_leading_sink_is(world: World) -> None:
    await world.stop()
    sinks_of_jobs = ["ocm_placement_decisions"]
    await world.start({"name": "jobs", "sinks": sinks_of_jobs})
    world.decide("jobs", "eu")
    await eventually(world.published, {"jobs": ["eu"]})
    assert (world.histories(), world.annotations("jobs")) == ([True], {})
    await world.stop()
    await world.start({"name": "jobs", "sinks": [*sinks_of_jobs, "annotations"]})
    await eventually(world.histories, [False])
    assert world.annotations("jobs") == {PREFERENCES: preferences(["eu"])}
    assert world.published() == {"jobs": ["eu"]}


@asynccontextmanager
async def adding_first(stack: RunningStack, folder: Path, within: float) -> AsyncGenerator[World]:
    """Yield a Deployment on eu whose move to us has begun."""
    terms = {"healthy_within_seconds": within}
    async with a_world(stack, folder, {}, moves="add-first", add_first=terms) as world:
        await world.start()
        world.decide("deployments", "eu")
        await eventually(world.published, {"deployments": ["eu"]})
        world.heal("eu")
        world.decide("deployments", "us")
        yield world


async def test_a_move_without_annotations_adds_first_also_after_a_restart_between_its_steps(
    cluster: RunningStack, tmp_path: Path
) -> None:
    async with adding_first(cluster, tmp_path, 600) as world:
        for again in (False, True):
            if again:
                await world.stop()
                await world.start()
                world.decide("deployments", "us")
            await eventually(world.published, {"deployments": ["eu", "us"]})
            await eventually(world.held, [("deployments", "adding")])
        assert world.records() == [["added", "us"]]
        world.heal("us")
        await eventually(world.published, {"deployments": ["us"]})
        await eventually(world.waiting, [])
        await eventually(world.records, [])
        assert ADDITION not in world.annotations("deployments")


@pytest.mark.slow
async def test_a_move_without_annotations_that_is_not_healthy_in_time_is_taken_back(
    cluster: RunningStack, tmp_path: Path
) -> None:
    async with adding_first(cluster, tmp_path, 1) as world:
        for again in (False, True):
            if again:
                await world.stop()
                await world.start()
                world.decide("deployments", "us")
            await eventually(world.held, [("deployments", "unhealthy")])
            await eventually(world.records, [["reverted", "us"]])
            await eventually(world.published, {"deployments": ["eu"]})


@pytest.mark.slow
async def test_a_move_whose_health_has_a_source_that_is_not_served_waits_and_says_so(
    cluster: RunningStack, tmp_path: Path
) -> None:
    terms = {"health": {"source": "argocd", "label": "app"}}
    async with a_world(cluster, tmp_path, {}, moves="add-first", add_first=terms) as world:
        await world.start(ready="/livez")
        world.decide("deployments", "eu")
        await eventually(world.published, {"deployments": ["eu"]})
        world.decide("deployments", "us")
        await eventually(world.published, {"deployments": ["eu", "us"]})
        await eventually(world.held, [("deployments", "adding")])
        (held,) = world.waiting()
        assert "it is not known whether it is healthy in us: " in held["reason"]


async def test_what_somebody_makes_of_it_is_put_right(world: World) -> None:
    world.decide("deployments", "eu")
    await eventually(world.published, {"deployments": ["eu"]})
    (found,) = world.stack.api.get(KIND, namespace=world.namespace)["items"]
    name, theirs = found["metadata"]["name"], {"status": {"decisions": [FOREIGN]}}
    await asyncio.to_thread(world.stack.api.merge, KIND, name, theirs, world.namespace, "status")
    await eventually(world.published, {"deployments": ["eu"]})
    await asyncio.to_thread(world.stack.api.delete, KIND, name, world.namespace)
    await eventually(world.published, {"deployments": ["eu"]})


@pytest.mark.slow
async def test_the_webhook_leaves_what_other_sinks_place_as_it_is(
    launcher: Launcher, cluster: RunningStack, tmp_path: Path
) -> None:
    policy = f"""
package io.k8s.federation.admission

annotations["{PREFERENCES}"] := {{"clusters": {{"eu": {{}}}}}}

errors contains "no cluster is certified" if input.metadata.labels.certified == "no"
"""
    namespace = f"test-{secrets.token_hex(4)}"
    await asyncio.to_thread(cluster.api.create_namespace, namespace)
    for sink, expected in (("placement_decisions", set()), ("annotations", {PREFERENCES})):
        resources = [{"name": "replicasets", "sinks": [sink]}]
        with webhook_world(launcher, cluster, tmp_path / sink, resources=resources) as webhook:
            webhook.policy()
            webhook.opa("PUT", policy)
            webhook.register()
            await eventually(webhook.failure_policies, {"Fail"})
            manifest = workload(sink.replace("_", "-"), namespace)
            with pytest.raises(ToolError, match="no cluster is certified"):
                webhook.apply(manifest)
            del manifest["metadata"]["labels"]["certified"]
            found = await asyncio.to_thread(cluster.api.create, manifest)
            written = found["metadata"].get("annotations", {})
            assert written.keys() - {REQUESTED} == expected


# A sink that the project does not have: tests/integration/config_map_sink.py


@asynccontextmanager
async def remediating(world: World, *named: str) -> AsyncGenerator[None]:
    """Run a remediator in this process, whose Deployments have these sinks."""
    document = world.document()
    document["kubernetes"] = {"kubeconfig": str(world.stack.kubeconfigs["admin"])}
    document["observe"] = {"listen": "127.0.0.1:0"}
    document["remediate"] = {**document["remediate"], "listen": "127.0.0.1:0"}  # type: ignore[dict-item]
    settings = msgspec.convert(document, Settings)
    names: Any = named  # of no sink of ours
    target = Placed("deployments", names)
    settings = msgspec.structs.replace(settings, placement=Placement(resources=(target,)))
    async with process(settings, 0) as context:
        services = await remediate(context)
        async with running(*map(_endless, services)):
            yield


async def _endless(service: Service) -> None:
    await service()


def in_config_maps(world: World) -> dict[str, str]:
    """Return the clusters in ConfigMaps of placements, by their names."""
    found = world.stack.api.get("configmaps", namespace=world.namespace)["items"]
    return {
        one["metadata"]["name"]: one["data"]["clusters"]
        for one in found
        if config_map_sink.LABEL in one["metadata"].get("labels", {})
    }


@pytest.mark.parametrize("leads", [True, False], ids=["leading", "beside annotations"])
async def test_a_sink_of_ones_own_leads_or_follows(
    cluster: RunningStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, leads: bool
) -> None:
    monkeypatch.setitem(sinks.MAKERS, "config_maps", config_map_sink.make)
    named = ("config_maps",) if leads else ("annotations", "config_maps")
    name = "placement-deployments-web"
    async with a_world(cluster, tmp_path, {"dwell_seconds": 3600}) as world:
        before = world.object("deployments")
        async with remediating(world, *named):
            world.decide("deployments", "us", "eu")
            await eventually(lambda: in_config_maps(world), {name: "eu us"})
            found = world.stack.api.get("configmaps", name, world.namespace)
            assert (HISTORY in found["metadata"].get("annotations", {})) == leads
            assert (world.object("deployments") == before) == leads
        async with remediating(world, *named):  # another process
            world.decide("deployments", "us")  # held for an hour
            world.decide("deployments", "us", "eu", "asia")  # takes nothing away
            await eventually(lambda: in_config_maps(world), {name: "asia eu us"})
            await asyncio.to_thread(
                world.stack.api.delete, "deployments.apps", "web", world.namespace
            )
            await eventually(lambda: in_config_maps(world), {})


def test_the_page_about_sinks_has_the_sink_of_this_test_word_by_word() -> None:
    source = inspect.getsource(config_map_sink)
    assert source in (ROOT / "docs/sinks.md").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60
