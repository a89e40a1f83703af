"""The dispatcher of MultiKueue with the real Kueue: a manager cluster and three workers.

The remediator has exactly its roles. What is decided comes from a stand-in; OPA and a policy are in
the demo, which `tests/e2e/test_multikueue_page.py` runs.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import DecisionRecord, StatusRecord, Target
from kube_sync.kube.kueue import WORKLOADS
from kube_sync.remediation.sinks.nomination import SECONDS_KEY
from tests.eventually import eventually
from tests.fakes.decisionstream import FakeDecisionStream, fake_decision_stream
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import PREFERENCES
from tools.servers.errors import ToolError
from tools.servers.kubeapi import KubeApi
from tools.servers.multikueue import job
from tools.servers.multikueue_stack import CPUS, QUEUE, WORKERS, MultiKueue, running_multikueue
from tools.servers.running import Launcher, RunningServer

pytestmark = [pytest.mark.built("kueue"), pytest.mark.timeout(300)]

NS = QUEUE.namespace
KIND = "workloads.kueue.x-k8s.io"


@pytest.fixture(scope="module")
def clusters(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MultiKueue]:
    with running_multikueue(launcher, tmp_path_factory.mktemp("kueue"), audit=True) as found:
        yield found


@dataclass
class World:
    """Jobs, and what is decided on their Workloads."""

    clusters: MultiKueue
    stream: FakeDecisionStream
    folder: Path
    seq: int = 0
    services: list[RunningServer] = field(default_factory=list)

    @property
    def api(self) -> KubeApi:
        return self.clusters.manager.api

    async def start(self, **remediate: object) -> None:
        """Start a remediator."""
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.clusters.manager.kubeconfigs["remediator"])},
            "decisions": {"url": f"{self.stream.http.url}/v1/decisions"},
            "replicate": {"resources": [_resource("workloads")]},
            "placement": {"resources": ["workloads"]},
            "remediate": {
                "guard": {**GUARD_OFF, "known_clusters": False},
                "sinks": {"multikueue": {"enabled": True}},
                **remediate,
            },
        }
        started = await asyncio.to_thread(start_service, "remediate", self.folder, configuration)
        self.services.append(started)

    async def stop(self) -> None:
        await asyncio.to_thread(self.services.pop().stop)

    async def job(self, cpus: int = 1) -> str:
        """Create a Job and return the name of its Workload, once it has quota and its check."""
        name = f"job-{secrets.token_hex(4)}"
        await asyncio.to_thread(self.api.create, job(name, QUEUE, cpus=cpus))
        found = await eventually(lambda: self._reserved(name))
        return str(found["metadata"]["name"])

    def _reserved(self, name: str) -> Any:
        for found in self.clusters.workloads():
            owners = [owner["name"] for owner in found["metadata"]["ownerReferences"]]
            status = found.get("status", {})
            has_quota = _is_true(status.get("conditions", ()), "QuotaReserved")
            if name in owners and has_quota and status.get("admissionChecks"):
                return found  # Kueue writes the two one after the other
        return None

    def workload(self, name: str) -> Any:
        return self.api.get(KIND, name, NS)

    def status(self, name: str) -> Any:
        return self.workload(name).get("status", {})

    def cluster(self, name: str) -> str | None:
        found: str | None = self.status(name).get("clusterName")
        return found

    def nominated(self, name: str) -> list[str]:
        return list(self.status(name).get("nominatedClusterNames", ()))

    def decide(self, name: str, *order: str, seconds: float | None = None) -> None:
        """Decide that a Workload may run on these clusters, the first one preferred."""
        weights = {one: {"weight": len(order) - place} for place, one in enumerate(order)}
        annotations = {PREFERENCES: json.dumps({"clusters": weights})}
        if seconds is not None:
            annotations[SECONDS_KEY] = str(seconds)
        self.say(name, Decision(annotations))

    def say(self, name: str, decision: Decision | None, failure: str | None = None) -> None:
        target = Target(WORKLOADS.group, WORKLOADS.version, WORKLOADS.resource, name, NS)
        uid, self.seq = self.workload(name)["metadata"]["uid"], self.seq + 1
        self.stream.say(
            DecisionRecord(target, uid, decision, self.seq, "object", "p1", failure=failure)
        )

    def events(self, name: str) -> list[tuple[str, str]]:
        items = self.api.get("events.events.k8s.io", namespace=NS)["items"]
        return [(one["reason"], one["note"]) for one in items if one["regarding"]["name"] == name]

    def ever_copied(self, name: str) -> set[str]:
        """Return the workers that a Workload was ever copied to, their audit logs the witness."""
        found = set()
        for worker, spoke in self.clusters.workers.items():
            log = spoke.cluster.audit_log
            assert log is not None
            lines = map(json.loads, log.read_bytes().rpartition(b"\n")[0].splitlines())
            if any(_creates(line, name) for line in lines):
                found.add(worker)
        return found


def _creates(line: Mapping[str, Any], name: str) -> bool:
    about = line.get("objectRef", {})
    kind = (about.get("resource"), about.get("subresource"), line["verb"])
    return kind == ("workloads", None, "create") and about.get("name") == name


def _resource(name: str) -> dict[str, str]:
    return {"group": WORKLOADS.group, "version": WORKLOADS.version, "resource": name}


def _is_true(conditions: Any, kind: str) -> bool:
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


@pytest.fixture
async def world(clusters: MultiKueue, tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_decision_stream() as stream:
        found = World(clusters, stream, tmp_path / "remediate")
        await found.start()
        try:
            yield found
        finally:
            while found.services:
                await found.stop()
            for name in WORKERS:
                await asyncio.to_thread(clusters.give, name, CPUS)


async def test_a_job_is_copied_to_the_policys_first_cluster_alone_and_admitted_there(
    world: World,
) -> None:
    name = await world.job()
    world.decide(name, "oregon", "paris")
    await eventually(lambda: world.cluster(name), "oregon")
    assert world.nominated(name) == []
    assert world.ever_copied(name) == {"oregon"}
    said = await eventually(lambda: world.events(name))
    assert ("RemediationNominated", "oregon is the policy's first") in said


async def test_kueues_own_fields_stay_as_they_were(world: World) -> None:
    for worker in WORKERS:
        await asyncio.to_thread(world.clusters.give, worker, 0)
    name = await world.job()
    before = world.workload(name)
    world.decide(name, "dublin")
    await eventually(lambda: world.nominated(name), ["dublin"])
    after = world.workload(name)
    assert {**after["status"], "nominatedClusterNames": None} == {
        **before["status"],
        "nominatedClusterNames": None,
    }
    assert after["spec"] == before["spec"]
    owners = {
        (one["manager"], one["operation"])
        for one in after["metadata"]["managedFields"]
        if "f:nominatedClusterNames" in json.dumps(one["fieldsV1"])
    }
    assert owners == {("kueue-admission", "Apply")}, "or Kueue could not clear it"


async def test_the_next_cluster_is_nominated_when_the_first_has_no_room(world: World) -> None:
    await asyncio.to_thread(world.clusters.give, "paris", 0)
    name = await world.job()
    world.decide(name, "paris", "dublin", "oregon", seconds=1)
    await eventually(lambda: world.cluster(name), "dublin")
    assert world.ever_copied(name) == {"paris", "dublin"}
    note = "paris did not admit it within 1 s: dublin is nominated too"
    await eventually(lambda: ("RemediationNominated", note) in world.events(name))
    await eventually(lambda: name in world.clusters.copies()["paris"], expected=False)


async def test_nobody_is_nominated_while_decisions_are_held_or_failed(world: World) -> None:
    first, second = await world.job(), await world.job()
    world.stream.say(StatusRecord(("OPA is being loaded",), "fake"))
    world.decide(first, "paris")
    world.say(second, None, failure="evaluation error")
    world.stream.say(StatusRecord((), "fake"))
    await eventually(lambda: world.cluster(first), "paris")
    assert world.nominated(second) == []
    note = "no usable decision: evaluation error"
    await eventually(lambda: ("RemediationNotNominated", note) in world.events(second))
    world.decide(second, "oregon")
    await eventually(lambda: world.cluster(second), "oregon")


async def test_a_policy_that_changes_takes_back_what_waits(world: World) -> None:
    await asyncio.to_thread(world.clusters.give, "paris", 0)
    name = await world.job()
    world.decide(name, "paris")
    await eventually(lambda: name in world.clusters.copies()["paris"])
    world.decide(name, "oregon")
    await eventually(lambda: world.cluster(name), "oregon")
    await eventually(lambda: name in world.clusters.copies()["paris"], expected=False)


async def test_what_somebody_else_nominates_is_undone_unless_the_policy_permits_it(
    world: World,
) -> None:
    for worker in ("paris", "dublin"):
        await asyncio.to_thread(world.clusters.give, worker, 0)
    name = await world.job()
    world.decide(name, "paris", "dublin")
    await eventually(lambda: world.nominated(name), ["paris"])
    for asked, left in ((["paris", "dublin"], ["paris", "dublin"]), (["oregon"], ["paris"])):
        patch = {"status": {"nominatedClusterNames": asked}}
        world.api.merge(KIND, name, patch, NS, "status")
        await eventually(partial(world.nominated, name), left)
    note = "oregon is left: no policy permits it; paris is the policy's first"
    await eventually(lambda: ("RemediationNominated", note) in world.events(name))
    assert world.cluster(name) is None


async def test_the_account_may_change_nothing_else_of_the_status(world: World) -> None:
    name = await world.job()
    manager = world.clusters.manager
    api = KubeApi(
        manager.apiserver_url, manager.apiserver_ca_file, manager.kube_tokens["remediator"]
    )
    where = f"{world.api.path(KIND, name, NS)}/status"
    merge = "application/merge-patch+json"
    others: list[Any] = [{"clusterName": "oregon"}, {"conditions": []}, {"admission": None}]
    for status in others:
        with pytest.raises(ToolError, match="changes the nominated clusters of a Workload"):
            api.ask("PATCH", where, {"status": status}, merge)
    with pytest.raises(ToolError, match="nothing else of an object"):
        api.ask("PATCH", world.api.path(KIND, name, NS), {"spec": {"active": False}}, merge)
    with pytest.raises(ToolError, match="cannot delete"):
        api.ask("DELETE", world.api.path(KIND, name, NS))
    api.close()


@pytest.mark.slow
async def test_a_cluster_that_goes_inactive_is_left_for_the_next(world: World) -> None:
    for worker in WORKERS:
        await asyncio.to_thread(world.clusters.give, worker, 0)
    name = await world.job()
    world.decide(name, "paris", "dublin")
    await eventually(lambda: world.nominated(name), ["paris"])
    spoke = world.clusters.workers["paris"].cluster
    await asyncio.to_thread(spoke.server.stop)
    try:
        await eventually(lambda: world.nominated(name), ["dublin"])
        await eventually(
            lambda: [note for _, note in world.events(name) if "paris is left: not active" in note]
        )
    finally:
        await asyncio.to_thread(spoke.server.start)
    await eventually(lambda: _is_active(world.api, "paris"), seconds=120)


def _is_active(api: KubeApi, name: str) -> bool:
    found = api.get("multikueueclusters.kueue.x-k8s.io", name)
    return _is_true(found["status"]["conditions"], "Active")


async def test_a_restart_does_not_begin_the_time_of_a_cluster_anew(world: World) -> None:
    await asyncio.to_thread(world.clusters.give, "paris", 0)
    name = await world.job()
    world.decide(name, "paris", "dublin")
    await eventually(lambda: world.nominated(name), ["paris"])
    await world.stop()
    managers = world.workload(name)["metadata"]["managedFields"]
    for one in managers:
        one["time"] = "2026-01-01T00:00:00Z"
    patch = {"metadata": {"managedFields": managers, "labels": {"aged": "yes"}}}
    world.api.merge(KIND, name, patch, NS)
    await world.start()
    await eventually(lambda: world.cluster(name), "dublin")


def _add_first(within: float) -> dict[str, Any]:
    terms = {"healthy_within_seconds": within, "health": {"source": "kueue"}}
    return {"moves": "add-first", "add_first": terms}


def _placement(world: World, name: str) -> set[str]:
    has = world.workload(name)["metadata"]["annotations"]
    return set(json.loads(has[PREFERENCES])["clusters"])


async def test_a_move_that_adds_first_ends_where_kueue_admits_the_job(world: World) -> None:
    await world.stop()
    await world.start(**_add_first(600))
    for worker in WORKERS:
        await asyncio.to_thread(world.clusters.give, worker, 0)
    name = await world.job()
    world.decide(name, "paris")
    await eventually(lambda: world.nominated(name), ["paris"])
    world.decide(name, "dublin", "oregon")
    await eventually(lambda: world.nominated(name), ["paris", "dublin"])
    assert _placement(world, name) == {"paris", "dublin", "oregon"}
    await asyncio.to_thread(world.clusters.give, "dublin", CPUS)
    await eventually(lambda: world.cluster(name), "dublin")
    await eventually(lambda: _placement(world, name), {"dublin", "oregon"})
    assert world.ever_copied(name) == {"paris", "dublin"}


async def test_a_job_that_runs_is_not_moved_and_the_addition_is_taken_back(world: World) -> None:
    await world.stop()
    await world.start(**_add_first(1))
    name = await world.job()
    world.decide(name, "oregon")
    await eventually(lambda: world.cluster(name), "oregon")
    world.decide(name, "paris")
    await eventually(lambda: [r for r, _ in world.events(name) if r == "RemediationUnhealthy"])
    await eventually(lambda: _placement(world, name), {"oregon"})
    assert world.cluster(name) == "oregon"
    assert world.ever_copied(name) == {"oregon"}


@pytest.mark.slow
async def test_in_dry_run_nobody_is_nominated(world: World) -> None:
    await world.stop()
    await world.start(mode="dry-run")
    name = await world.job()
    world.decide(name, "paris")
    await world.stop()
    assert (world.nominated(name), world.cluster(name)) == ([], None)
    await world.start()
    await eventually(lambda: world.cluster(name), "paris")


@pytest.mark.slow
async def test_a_nomination_of_another_manager_could_not_be_cleared_by_kueue(world: World) -> None:
    """Why it is written as Kueue's own manager: this is what happens otherwise."""
    await world.stop()
    name = await world.job()
    patch = {"status": {"nominatedClusterNames": ["paris"]}}
    world.api.merge(KIND, name, patch, NS, "status")
    await eventually(lambda: name in world.clusters.copies()["paris"])
    log = world.clusters.kueues[""].logs
    await eventually(lambda: "mutually exclusive" in log())
    assert world.cluster(name) is None
