"""Reports of OpenReports on the released kind, by a remediator with exactly its roles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http.client import OK
from typing import Any

import pytest

from kube_sync.kube.openreports import LEFT_OUT, MANAGER, NAME
from kube_sync.kube.slices import MANAGED_BY, OURS
from tests.eventually import eventually
from tests.integration.test_pair import ROOT
from tools.demo.components import UNBRAKED, Components, start_components
from tools.demo.fleet import FLEET, cluster, namespace, policy_map, replica_set
from tools.servers.errors import ToolError
from tools.servers.http import get
from tools.servers.kubeapi import KubeApi
from tools.servers.running import Launcher, RunningServer
from tools.servers.stack import RunningStack, furnished_stack
from tools.servers.thirdparty import ensure_kinds

POLICY = """
package io.k8s.federation.admission

_asked := object.get(input.metadata, "annotations", {})

annotations["federation.kubernetes.io/replica-set-preferences"] := {
	"clusters": {name: {"weight": 1} |
		some name in [object.get(_asked, "where", "west")]
		name != "nowhere"
	},
} if input.kind == "ReplicaSet"

errors contains "not here" if _asked.refuse
"""
MOST = 2
ORDINARY = {"where": "west"}
REFUSED = {"refuse": "yes"}


@dataclass
class World:
    """A stack and our services."""

    stack: RunningStack
    components: Components

    @property
    def remediator(self) -> RunningServer:
        return self.components.services["remediate"]

    def workload(self, place: str, name: str, annotations: dict[str, str]) -> None:
        found = replica_set(name)
        found["metadata"] |= {"namespace": place, "annotations": annotations}
        self.stack.api.apply(found, manager="test", force=True)

    def report(self, place: str) -> Any:
        try:
            return self.stack.api.get("reports", NAME, place)
        except ToolError:
            return None

    def said(self, place: str) -> list[tuple[str, str, str, str]] | None:
        """Return object, category, rule and result of each result."""
        report = self.report(place)
        return report and [
            (one["resources"][0]["name"], one["category"], one["rule"], one["result"])
            for one in report["results"]
        ]

    def readiness(self, about: str) -> str:
        """Return the line of the page about the reports (`openreports`) or their kind."""
        page = get(self.remediator.url + "/readyz").body.decode()
        (line,) = (line for line in page.splitlines() if f"{about}:" in line)
        return line

    def writes(self) -> list[str]:
        """Return the namespaces of all requests that changed a report, or tried to."""
        return [
            entry["objectRef"]["namespace"]
            for entry in self.stack.audited(":kube-sync-remediator")
            if entry["user"]["username"].endswith(":kube-sync-remediator")
            and entry.get("objectRef", {}).get("resource") == "reports"
            and entry["verb"] not in ("get", "list", "watch")
        ]

    def refusal(self, name: str, place: str, patch: Any) -> str:
        """Return why a PATCH of a report with the account's token was refused."""
        stack = self.stack
        token = stack.kube_tokens["remediator"]
        with closing(KubeApi(stack.apiserver_url, stack.apiserver_ca_file, token)) as api:
            try:
                api.merge("reports", name, patch, place)
            except ToolError as error:
                return str(error)
        return ""


@pytest.fixture(scope="module")
def module_world(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("openreports")
    with furnished_stack(launcher, folder / "stack", audit=True) as stack:
        stack.install_kinds(ensure_kinds("openreports"))
        stack.apply(ROOT / "manifests/openreports")
        remediate: dict[str, object] = {
            **UNBRAKED,
            "namespaces": {"rehearsed": "dry-run"},
            "openreports": {"enabled": True, "most_results": MOST, "interval_seconds": 0.1},
        }
        for name in (FLEET, "rehearsed", "refused", "held", "many"):
            stack.api.apply(namespace(name))
        stack.api.apply(cluster("west", "europe-west1", "2"))
        stack.api.apply(policy_map(POLICY))
        components = start_components(stack, folder / "components", remediate)
        world = World(stack, components)
        try:
            world.workload("rehearsed", "web", ORDINARY)
            world.workload("refused", "web", REFUSED)
            world.workload("held", "web", {"where": "nowhere"})
            yield world
        finally:
            components.stop()


@pytest.fixture
async def world(module_world: World) -> World:
    """All reports are there, and on the audit log too, which has a write after its effect."""
    places = {"rehearsed", "refused", "held"}
    for place in places:
        await eventually(partial(module_world.report, place))
    await eventually(lambda: places <= {*module_world.writes()}, expected=True)
    return module_world


async def test_refused_held_and_drifted_workloads_are_in_the_report_of_their_namespace(
    world: World,
) -> None:
    assert world.said("refused") == [("web", "refused", "errors", "fail")]
    assert world.said("held") == [("web", "held", "empty", "warn")]
    assert world.said("rehearsed") == [("web", "drifted", "dry-run", "fail")]
    report = world.report("refused")
    assert "not here" in report["results"][0]["message"]
    uid = world.stack.api.get("replicasets", "web", "refused")["metadata"]["uid"]
    assert report["results"][0]["resources"][0]["uid"] == uid
    (managed,) = report["metadata"]["managedFields"]
    assert (managed["manager"], managed["operation"]) == (MANAGER, "Apply")
    header, row = world.stack.kubectl("get", "reports", "--namespace=refused").splitlines()
    assert dict(zip(header.split(), row.split(), strict=True))["FAIL"] == "1"
    await eventually(partial(world.readiness, "openreports"), lambda line: line.endswith("ok"))


async def test_report_is_written_when_it_changes_and_removed_when_nothing_is_left(
    world: World,
) -> None:
    api = world.stack.api
    before = len(world.writes())
    for name in ("a", "b", "c"):
        world.workload("many", name, REFUSED)
    await eventually(lambda: (world.report("many") or {}).get("summary", {}).get("fail"), 3)
    report = world.report("many")
    assert len(report["results"]) == MOST
    assert report["metadata"]["annotations"] == {LEFT_OUT: "1"}
    world.workload("many", "c", ORDINARY)
    await eventually(lambda: world.report("many")["summary"]["fail"], 2)
    assert LEFT_OUT not in world.report("many")["metadata"].get("annotations", {})
    lie = {"summary": {"fail": 0, "pass": 100}}
    api.merge("reports", NAME, lie, "many")
    await eventually(lambda: world.report("many")["summary"]["fail"], 2)
    api.delete("reports", NAME, "many")
    await eventually(partial(world.report, "many"))
    for name in ("a", "b"):
        world.workload("many", name, ORDINARY)
    await eventually(partial(world.report, "many"), None)
    assert set(world.writes()[before:]) == {"many"}, "the others did not change"


@pytest.mark.slow  # unit/remediation/test_openreports.py
async def test_restart_removes_what_is_no_more_and_writes_nothing_else(world: World) -> None:
    world.workload("many", "d", REFUSED)
    await eventually(partial(world.said, "many"), [("d", "refused", "errors", "fail")])
    before = len(world.writes())
    world.remediator.stop()
    world.workload("many", "d", ORDINARY)
    world.remediator.start()
    await eventually(partial(world.report, "many"), None)
    assert world.writes()[before:] == ["many"]


async def test_namespace_that_is_deleted_leaves_no_trouble(world: World) -> None:
    api, place = world.stack.api, "leaving"
    api.apply(namespace(place))
    world.workload(place, "web", REFUSED)
    await eventually(partial(world.report, place))
    # Nobody empties it here, as the controller of namespaces does.
    api.delete("namespaces", place)
    api.delete("reports", NAME, place)
    await eventually(partial(world.readiness, "openreports"), lambda line: f"{place}: " in line)
    api.delete("replicasets", "web", place)
    await eventually(partial(world.readiness, "openreports"), lambda line: line.endswith("ok"))


async def test_account_may_write_its_own_reports_alone(world: World) -> None:
    api = world.stack.api
    foreign = {"apiVersion": "openreports.io/v1alpha1", "kind": "Report", "source": "other"}
    place = "many"
    for name in ("theirs", NAME):
        api.apply({**foreign, "metadata": {"name": name, "namespace": place}})
    ours = {"metadata": {"labels": {MANAGED_BY: OURS}}}
    assert "forbidden" in world.refusal("theirs", place, ours)
    said = world.refusal(NAME, place, ours)
    assert "Reports that it has made, and no others" in said
    world.workload(place, "d", REFUSED)
    await eventually(partial(world.readiness, "openreports"), lambda line: f"{place}: " in line)
    assert world.report(place)["source"] == "other"
    api.delete("reports", NAME, place)
    await eventually(partial(world.said, place), [("d", "refused", "errors", "fail")])
    world.workload(place, "d", ORDINARY)
    await eventually(partial(world.report, place), None)
    await eventually(partial(world.readiness, "openreports"), lambda line: line.endswith("ok"))


@pytest.mark.slow  # a kind is believed to be gone after 10 s
async def test_kind_that_is_missing_is_said_once_and_waited_for(world: World) -> None:
    api, about = world.stack.api, partial(world.readiness, "of ours")
    api.delete("customresourcedefinitions", "reports.openreports.io")
    await eventually(about, lambda line: "is its CRD there?" in line)
    assert get(world.remediator.url + "/readyz").status == OK
    world.stack.install_kinds(ensure_kinds("openreports"))
    await eventually(partial(world.said, "held"), [("web", "held", "empty", "warn")])
    await eventually(about, lambda line: line.endswith("ok"))
    log = (world.remediator.spec.folder / "kube-sync-remediate.log").read_text(encoding="utf-8")
    assert log.count('"reports_not_served"') == 1
