"""PlacementPolicies on real servers: they decide, say so, and close the webhook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.integration.test_pair import ROOT
from tests.integration.webhook_world import POLICY, World, webhook_world, workload
from tools.demo.components import start_service
from tools.demo.fleet import POLICIES
from tools.servers.errors import ToolError
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack

CRD = ROOT / "manifests/crds/placementpolicies.yaml"
NEXT = "web-candidate"
NAMED = "placementpolicies.policy.kube-sync.io"
FULL = "x" * 600_000
REGO_V0 = 'package io.k8s.federation.admission\n\nerrors["said in Rego v0"] { true }\n'
GOOD = {"name": "placement.rego", "rego": POLICY}


@dataclass
class Cluster:
    """The webhook and a replicator, each with exactly its role, on one OPA."""

    world: World
    folder: Path

    @contextmanager
    def replicating(self) -> Iterator[None]:
        engine = self.world.engine
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.world.stack.kubeconfigs["replicator"])},
            "opa": engine.settings(),
            "decisions": engine.replicator.server(),
        }
        server = start_service("replicate", self.folder / "replicate", configuration)
        try:
            yield
        finally:
            server.stop()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.world.stack.kubectl(*arguments, stdin=stdin)

    def install(self) -> None:
        try:
            self.world.stack.api.get("placementpolicies")
        except ToolError:
            self.world.stack.install_kinds(CRD)

    def uninstall(self) -> None:
        self.kubectl("delete", "crd", NAMED, "--ignore-not-found")

    def policy(self, rego: str = POLICY, *options: str, **spec: Any) -> None:
        modules = [{"name": "placement.rego", "rego": rego}]
        self.world.apply(manifest({"modules": modules} | spec), *options)

    def conditions(self) -> dict[str, tuple[str, str]]:
        """Return reason and message of each condition that is about the present generation."""
        found = self.found()
        generation = found["metadata"]["generation"]
        conditions = found.get("status", {}).get("conditions", ())
        current = [one for one in conditions if one["observedGeneration"] == generation]
        return {one["type"]: (one["reason"], one["message"]) for one in current}

    def canary(self, namespace: str) -> None:
        """Let one without objections decide on the objects of a namespace."""
        rego = 'package io.k8s.federation.admission\n\nlabels.fine := "yes"\n'
        modules = [{"name": "placement.rego", "rego": rego}]
        canary = manifest({"modules": modules, "stage": "canary"}, NEXT)
        canary["metadata"]["annotations"] = {"kube-sync.io/canary-namespaces": namespace}
        self.world.apply(canary)

    def found(self, name: str = "web") -> Any:
        return self.world.stack.api.get("placementpolicies", name, POLICIES)

    def staged(self, name: str = "web") -> dict[str, Any]:
        """Return what its status says of its stage."""
        staged: dict[str, Any] = self.found(name).get("status", {}).get("staged", {})
        return staged

    def as_stored(self, name: str, staged: dict[str, Any]) -> dict[str, Any]:
        """Return what the API server would make of these fields; it stores nothing."""
        patch = json.dumps({"status": {"staged": staged}})
        where = ("placementpolicy", name, f"--namespace={POLICIES}", "--subresource=status")
        how = ("--type=merge", "--dry-run=server", "--output=json", f"--patch={patch}")
        found: dict[str, Any] = json.loads(self.kubectl("patch", *where, *how))["status"]["staged"]
        return found

    def reasons(self) -> dict[str, str]:
        """Return the reasons of the conditions that are ours alone."""
        standard = ("Ready", "Reconciling", "Stalled")  # test_gitops.py
        found = self.conditions()
        return {kind: reason for kind, (reason, _) in found.items() if kind not in standard}

    def denied(self, namespace: str) -> str:
        """Return why a workload is not let in, "" if it is."""
        try:
            self.world.apply(workload("web", namespace), "--dry-run=server")
        except ToolError as error:
            return str(error)
        return ""


def manifest(spec: dict[str, Any], name: str = "web") -> dict[str, Any]:
    metadata = {"name": name, "namespace": POLICIES}
    return {
        "apiVersion": "policy.kube-sync.io/v1alpha1",
        "kind": "PlacementPolicy",
        "metadata": metadata,
        "spec": spec,
    }


@pytest.fixture(scope="module")
def cluster(
    launcher: Launcher, stack: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Nobody has installed the kind yet, and there is no policy."""
    folder = tmp_path_factory.mktemp("objects")
    with webhook_world(launcher, stack, folder) as world:
        found = Cluster(world, folder)
        found.uninstall()
        world.no_policy()
        world.register()
        yield found
        found.uninstall()


async def test_a_placementpolicy_decides_says_so_and_closes_the_webhook(
    cluster: Cluster, namespace: str
) -> None:
    """The kind comes after the start, and goes before the end."""
    failure_policy = cluster.world.failure_policy
    with cluster.replicating():
        await eventually(failure_policy, "Ignore")
        cluster.install()
        cluster.policy()
        good = {"Compiled": "Compiled", "Active": "InForce", "Conflicting": "Clear"}
        await eventually(cluster.reasons, good)
        await eventually(failure_policy, "Fail")
        assert "no cluster is certified" in cluster.denied(namespace)

        cluster.policy(POLICY + "\nerrors contains }\n")
        await eventually(lambda: cluster.reasons().get("Active"), "LastGood")
        compiled = cluster.conditions()["Compiled"]
        assert compiled[0] == "CompileError"
        row = len(POLICY.splitlines()) + 2
        assert f"placement.rego:{row}: rego_parse_error" in compiled[1]
        assert "no cluster is certified" in cluster.denied(namespace)

        cluster.policy(REGO_V0, regoVersion="0")
        # This OPA takes policies one by one, which has no version of Rego.
        await eventually(lambda: cluster.reasons().get("Compiled"), "Forbidden")
        assert "PUT /v1/policies has no version" in cluster.conditions()["Compiled"][1]
        assert "no cluster is certified" in cluster.denied(namespace)  # by the last good version

        cluster.policy(stage="shadow")
        await eventually(lambda: cluster.staged().get("objects"), 0)
        assert cluster.reasons() == {**good, "Active": "Shadow", "Conflicting": "NotTried"}
        assert cluster.staged()["standsFor"] == f"PlacementPolicy {POLICIES}/web"
        await eventually(failure_policy, "Ignore")
        await eventually(lambda: cluster.denied(namespace), "")

        cluster.policy(stage="candidate")
        await eventually(lambda: cluster.staged().get("stage"), "candidate")
        assert cluster.reasons() == {**good, "Active": "Candidate", "Conflicting": "NotTried"}
        plan = f"kube-sync plan --staged --candidate {POLICIES}/web.PlacementPolicy"
        assert cluster.staged()["plan"] == plan

        cluster.policy()
        await eventually(cluster.reasons, good)
        await eventually(failure_policy, "Fail")
        assert cluster.staged() == {}

        assert "no cluster is certified" in cluster.denied(namespace)
        cluster.canary(namespace)
        effect = {"share": "0", "namespaces": [namespace]}
        await eventually(lambda: cluster.staged(NEXT).get("effect"), effect)
        assert cluster.staged(NEXT)["limits"] == {"breaks": 0, "moves": 0.1}
        await eventually(lambda: cluster.denied(namespace), "")
        halted = {"why": ["1 would be failed, at most 0 may"], "counts": {"objects": 1}}
        assert cluster.as_stored(NEXT, {"halted": halted})["halted"] == halted
        cluster.canary("elsewhere")
        await eventually(
            lambda: "no cluster is certified" in cluster.denied(namespace), expected=True
        )
        cluster.uninstall()
        await eventually(failure_policy, "Ignore")
        await eventually(lambda: cluster.denied(namespace), "")


@pytest.mark.parametrize(
    ("name", "spec", "said"),
    [
        ("web", {"modules": []}, "at least 1 items"),
        ("web", {"modules": [GOOD, GOOD]}, "Duplicate value"),
        ("web", {"modules": [GOOD | {"name": "../a.rego"}]}, "should match"),
        ("web", {"modules": [GOOD | {"name": "placement"}]}, "should match"),
        ("web", {"modules": [GOOD], "stage": "later"}, "Unsupported value"),
        ("web", {"modules": [GOOD], "regoVersion": "2"}, "Unsupported value"),
        ("web", {"modules": [GOOD], "enforce": True}, "unknown field"),
        (
            "web",
            {"modules": [{"name": f"{n}.rego", "rego": FULL} for n in (11, 22)]},
            "all modules together may have 1000000 characters",
        ),
        ("a" * 201, {"modules": [GOOD]}, "the name of a PlacementPolicy may have 200 characters"),
    ],
)
def test_the_api_server_refuses_what_could_not_be_loaded(
    cluster: Cluster, name: str, spec: dict[str, Any], said: str
) -> None:
    cluster.install()
    with pytest.raises(ToolError, match=said):
        cluster.world.stack.api.create(manifest(spec, name), dry_run=True)


def test_a_policy_without_a_stage_is_active(cluster: Cluster) -> None:
    cluster.install()
    created = cluster.world.stack.api.create(manifest({"modules": [GOOD]}), dry_run=True)
    assert created["spec"]["stage"] == "active"
