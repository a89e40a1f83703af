"""Nominations of clusters on a real API server with Kueue's released kinds, and no Kueue.

What Kueue would write of a Workload is written here, as it writes it: server-side apply of the
status as `kueue-admission`. With the real Kueue it is in `test_multikueue`.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import DecisionRecord, Target
from kube_sync.guard import ADDITION
from kube_sync.kube.kueue import WORKLOADS
from tests.eventually import eventually
from tests.fakes.decisionstream import FakeDecisionStream, fake_decision_stream
from tests.fakes.manifests import build
from tests.integration.rbac_usage import Grant, asked, granted, refused
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import PREFERENCES
from tools.servers.errors import StartFailed, ToolError
from tools.servers.kubeapi import KubeApi
from tools.servers.kueue import kueue_source
from tools.servers.manifests import manifests_of
from tools.servers.multikueue import install_kueue_kinds
from tools.servers.running import Launcher, RunningServer
from tools.servers.stack import RunningStack, furnished_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).resolve().parents[2]
NS = "research"
KIND = "workloads.kueue.x-k8s.io"
NOW = "2026-01-01T00:00:00Z"
RESERVED = {
    "type": "QuotaReserved",
    "status": "True",
    "reason": "QuotaReserved",
    "message": "",
    "lastTransitionTime": NOW,
}
CHECK = {"name": "mk", "state": "Pending", "message": "", "lastTransitionTime": NOW}
STATUS = {
    "conditions": [RESERVED],
    "admissionChecks": [CHECK],
    "admission": {
        "clusterQueue": "jobs",
        "podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": "default"}}],
    },
}


@pytest.fixture(scope="module")
def cluster(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("nominations")
    with furnished_stack(launcher, folder, audit=True) as stack:
        install_kueue_kinds(stack.api)
        stack.apply(ROOT / "manifests/multikueue")
        stack.api.create_namespace(NS)
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "c"}
        controller = "kueue.x-k8s.io/multikueue"
        _create(stack, "AdmissionCheck", "mk", controllerName=controller, parameters=parameters)
        _create(stack, "MultiKueueConfig", "c", clusters=["eu", "us"])
        for name in ("eu", "us"):
            where = {"location": name, "locationType": "Secret"}
            _create(stack, "MultiKueueCluster", name, kubeConfig=where)
            _activate(stack, name)
        yield stack


def _create(stack: RunningStack, kind: str, name: str, **spec: Any) -> None:
    version = WORKLOADS.api_version
    stack.api.create(
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    )


def _activate(stack: RunningStack, name: str, status: str = "True") -> None:
    active = {
        "type": "Active",
        "status": status,
        "reason": "Tested",
        "message": "said the test",
        "lastTransitionTime": NOW,
    }
    patch = {"status": {"conditions": [active]}}
    stack.api.merge("multikueueclusters.kueue.x-k8s.io", name, patch, subresource="status")


@dataclass
class World:
    stack: RunningStack
    stream: FakeDecisionStream
    folder: Path
    number: int = 0
    service: RunningServer | None = None

    async def restart(self, meanwhile: Callable[[], object] = lambda: None, **more: object) -> None:
        """Stop the remediator, and start one that has `more` in its configuration."""
        await self.stop()
        await asyncio.to_thread(meanwhile)
        configuration = _configuration(self.stack, self.stream, **more)
        self.service = await asyncio.to_thread(
            start_service, "remediate", self.folder, configuration
        )

    async def stop(self) -> None:
        if self.service is not None:
            await asyncio.to_thread(self.service.stop)
        self.service = None

    def workload(self, name: str) -> str:
        """Create a Workload as Kueue does, with its quota reserved; return its uid."""
        container = {"name": "main", "image": "main"}
        template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
        manifest = {
            "apiVersion": WORKLOADS.api_version,
            "kind": "Workload",
            "metadata": {"name": name, "namespace": NS},
            "spec": {
                "queueName": "jobs",
                "podSets": [{"name": "main", "count": 1, "template": template}],
            },
        }
        uid = str(self.stack.api.create(manifest)["metadata"]["uid"])
        self.kueue(name, STATUS)
        return uid

    def kueue(self, name: str, status: Any, version: str = WORKLOADS.version) -> Any:
        """Apply a status as Kueue does."""
        root = f"/apis/{WORKLOADS.group}/{version}/namespaces/{NS}/workloads/{name}/status"
        body = {
            "apiVersion": f"{WORKLOADS.group}/{version}",
            "kind": "Workload",
            "metadata": {"name": name},
            "status": status,
        }
        query = {"fieldManager": "kueue-admission", "force": "true"}
        return self.stack.api.ask("PATCH", root, body, "application/apply-patch+yaml", query=query)

    def decide(self, name: str, uid: str, *order: str) -> None:
        weights = {one: {"weight": len(order) - place} for place, one in enumerate(order)}
        decision = Decision({PREFERENCES: json.dumps({"clusters": weights})})
        target = Target(WORKLOADS.group, WORKLOADS.version, WORKLOADS.resource, name, NS)
        self.number += 1
        self.stream.say(DecisionRecord(target, uid, decision, self.number, "object", "p1"))

    def status(self, name: str) -> Any:
        return self.stack.api.get(KIND, name, NS)["status"]

    def nominated(self, name: str) -> list[str]:
        return list(self.status(name).get("nominatedClusterNames", ()))

    def clusters(self, name: str) -> set[str]:
        """Return the clusters of the placement that the Workload has."""
        has = self.stack.api.get(KIND, name, NS)["metadata"].get("annotations", {})
        return set(json.loads(has.get(PREFERENCES, '{"clusters": {}}'))["clusters"])

    def age(self, name: str) -> None:
        """Make what is nominated old; the API server does not store a patch of times alone."""
        managers = self.stack.api.get(KIND, name, NS)["metadata"]["managedFields"]
        for one in managers:
            one["time"] = "2026-01-01T00:00:00Z"
        patch = {"metadata": {"managedFields": managers, "labels": {"aged": "yes"}}}
        self.stack.api.merge(KIND, name, patch, NS)

    def notes(self, name: str, reason: str) -> list[str]:
        items = self.stack.api.get("events.events.k8s.io", namespace=NS)["items"]
        return [
            one["note"]
            for one in items
            if (one["regarding"]["name"], one["reason"]) == (name, f"Remediation{reason}")
        ]


def _configuration(
    stack: RunningStack, stream: FakeDecisionStream, **remediate: object
) -> dict[str, object]:
    workloads = {
        "group": WORKLOADS.group,
        "version": WORKLOADS.version,
        "resource": WORKLOADS.resource,
    }
    return {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["remediator"])},
        "decisions": {"url": f"{stream.http.url}/v1/decisions"},
        "replicate": {"resources": [workloads]},
        "placement": {"resources": ["workloads"]},
        "remediate": {
            "guard": {**GUARD_OFF, "known_clusters": False},
            "sinks": {"multikueue": {"enabled": True}},
            **remediate,
        },
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    cluster: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[World]:
    """One remediator for the module: each test has a Workload of its own."""
    async with fake_decision_stream() as stream:
        found = World(cluster, stream, tmp_path_factory.mktemp("remediate"))
        await found.restart()
        try:
            yield found
        finally:
            await found.stop()


async def test_the_first_cluster_is_nominated_and_kueue_can_clear_it(world: World) -> None:
    uid = world.workload("first")
    world.decide("first", uid, "us", "eu")
    await eventually(lambda: world.nominated("first"), ["us"])
    status = world.status("first")
    assert {key: status[key] for key in STATUS} == STATUS, "nothing else has changed"
    # As Kueue does when a cluster admits it: it names the cluster, and no nomination any more.
    world.kueue("first", {**STATUS, "clusterName": "us"})
    status = world.status("first")
    assert (status["clusterName"], status.get("nominatedClusterNames")) == ("us", None)
    await eventually(lambda: world.notes("first", "Nominated"), ["us is the policy's first"])


@pytest.mark.slow
async def test_an_inactive_cluster_is_left(world: World, cluster: RunningStack) -> None:
    uid = world.workload("left")
    world.decide("left", uid, "us", "eu")
    await eventually(lambda: world.nominated("left"), ["us"])
    _activate(cluster, "us", "False")
    try:
        await eventually(lambda: world.nominated("left"), ["eu"])
    finally:
        _activate(cluster, "us")
    said = "us is left: not active (said the test); eu is the policy's first that is active"
    await eventually(lambda: said in world.notes("left", "Nominated"))


@pytest.mark.slow
async def test_without_quota_nobody_is_nominated(world: World) -> None:
    uid, other = world.workload("unreserved"), world.workload("other")
    world.kueue("unreserved", {"admissionChecks": [CHECK]})
    world.decide("unreserved", uid, "us")
    world.decide("other", other, "us")
    await eventually(lambda: world.nominated("other"), ["us"])
    assert world.nominated("unreserved") == []
    world.kueue("unreserved", STATUS)
    await eventually(lambda: world.nominated("unreserved"), ["us"])


async def test_a_restart_does_not_begin_the_time_of_a_cluster_anew(world: World) -> None:
    uid = world.workload("aged")
    world.decide("aged", uid, "us", "eu")
    await eventually(lambda: world.nominated("aged"), ["us"])
    await world.restart(partial(world.age, "aged"))
    await eventually(lambda: world.nominated("aged"), ["us", "eu"])
    said = "us did not admit it within 300 s: eu is nominated too"
    await eventually(lambda: said in world.notes("aged", "Nominated"))


@pytest.mark.slow
async def test_a_move_that_adds_first_ends_where_kueue_admits_the_workload(world: World) -> None:
    await world.restart(moves="add-first", add_first={"health": {"source": "kueue"}})
    uid = world.workload("moved")
    world.decide("moved", uid, "us")
    await eventually(lambda: world.nominated("moved"), ["us"])
    world.decide("moved", uid, "eu")
    await eventually(lambda: world.nominated("moved"), ["us", "eu"])
    assert world.clusters("moved") == {"us", "eu"}
    ready = {**CHECK, "state": "Ready", "message": 'The workload got reservation on "eu"'}
    world.kueue("moved", {**STATUS, "admissionChecks": [ready], "clusterName": "eu"})
    await eventually(lambda: world.clusters("moved"), {"eu"})
    has = world.stack.api.get(KIND, "moved", NS)["metadata"]["annotations"]
    assert ADDITION not in has
    assert world.status("moved")["clusterName"] == "eu"
    await world.restart()  # as the other tests have it


@pytest.mark.slow
async def test_clusters_that_the_check_does_not_list_are_said(world: World) -> None:
    uid = world.workload("elsewhere")
    world.decide("elsewhere", uid, "asia")
    said = "MultiKueueConfig c lists none of asia, only eu, us"
    await eventually(lambda: world.notes("elsewhere", "NotNominated"), [said])
    assert world.nominated("elsewhere") == []


async def test_the_account_may_change_nothing_else_of_a_workload(
    world: World, cluster: RunningStack
) -> None:
    world.workload("kept")
    token = cluster.kube_tokens["remediator"]
    api = KubeApi(cluster.apiserver_url, cluster.apiserver_ca_file, token)
    path, merge = api.path(KIND, "kept", NS), "application/merge-patch+json"
    others: list[Any] = [{"clusterName": "us"}, {"conditions": []}, {"admission": None}]
    for status in others:
        with pytest.raises(ToolError, match="changes the nominated clusters of a Workload"):
            api.ask("PATCH", f"{path}/status", {"status": status}, merge)
    with pytest.raises(ToolError, match="nothing else of an object"):
        api.ask("PATCH", path, {"spec": {"active": False}}, merge)
    with pytest.raises(ToolError, match="cannot delete"):
        api.ask("DELETE", path)
    assert api.ask("PATCH", f"{path}/status", {"status": {"nominatedClusterNames": ["us"]}}, merge)
    api.close()


async def test_every_right_of_the_sink_is_used_and_none_is_missing(
    world: World, cluster: RunningStack
) -> None:
    uid = world.workload("rights")
    world.decide("rights", uid, "us")
    await eventually(lambda: world.nominated("rights"), ["us"])
    log = cluster.audit_log
    assert log is not None
    needed = {one for one in granted(build("multikueue")) if one.account == "remediator"}
    await eventually(lambda: needed - asked(log).keys(), set())
    about = {one for one in refused(log) if "kueue" in one.group}
    assert about - {Grant("remediator", WORKLOADS.group, "workloads", "delete")} == set()


@pytest.mark.slow
async def test_a_kueue_of_another_version_is_said_and_left_alone(
    world: World, cluster: RunningStack
) -> None:
    _serve_another_version(cluster)
    uid = world.workload("later")
    world.kueue("later", STATUS, "v1beta9")
    world.decide("later", uid, "us")
    said = "kueue-admission writes kueue.x-k8s.io/v1beta9, and this is kueue.x-k8s.io/v1beta1"
    await eventually(lambda: said in world.notes("later", "NotNominated"))
    assert world.nominated("later") == []


def _serve_another_version(stack: RunningStack) -> None:
    folder = kueue_source() / "config/components/crd/bases"
    (definition,) = (
        copy.deepcopy(one)
        for one in manifests_of(folder)
        if one["spec"]["names"]["plural"] == "workloads"
    )
    (version,) = definition["spec"]["versions"]
    definition["spec"]["versions"].append({**version, "name": "v1beta9", "storage": False})
    stack.api.apply(definition)
    until = "/apis/kueue.x-k8s.io/v1beta9"
    for _ in range(300):
        try:
            stack.api.ask("GET", f"{until}/workloads")
        except ToolError:
            continue
        return


@pytest.mark.slow
async def test_without_kueues_kinds_it_is_not_ready_and_says_which(
    stack: RunningStack, tmp_path: Path
) -> None:
    async with fake_decision_stream() as stream:
        configuration = _configuration(stack, stream)
        with pytest.raises(StartFailed) as failed:
            await asyncio.to_thread(
                start_service, "remediate", tmp_path, configuration, patience=4.0
            )
    assert "workloads.v1beta1.kueue.x-k8s.io" in str(failed.value)


@pytest.mark.slow
async def test_it_does_not_start_if_no_decisions_are_made_on_workloads(
    stack: RunningStack, tmp_path: Path
) -> None:
    async with fake_decision_stream() as stream:
        configuration = _configuration(stack, stream) | {"placement": {"resources": []}}
        with pytest.raises(StartFailed, match=r"remediate\.sinks\.multikueue\.enabled"):
            await asyncio.to_thread(start_service, "remediate", tmp_path, configuration)
