"""Candidates beside a replicator over a fake API server: compiled, and planned with by hand."""

from __future__ import annotations

import asyncio
import json
from argparse import ArgumentParser
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kube_sync.cli.plan import declare, requested
from kube_sync.config import Kubernetes, Opa, Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.inspect.plan import command
from kube_sync.kube.lease import LEASES
from kube_sync.kube.placementpolicies import KIND, PLACEMENT_POLICIES
from kube_sync.kube.policymaps import STATUS
from kube_sync.objects import ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaClient
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.bundle import digest
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.replicator.replicator import Replicator
from tests.eventually import eventually
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, kube_of
from tests.unit.async_tools import until
from tests.unit.inspect.plan.fleets import FLEET, NAMESPACE, POLICY, WORKLOADS, policy
from tools.servers.binaries import ensure_binary

BINARY = str(ensure_binary("opa"))
KINDS = {"ReplicaSet": REPLICASETS, "ClusterProfile": CLUSTERS, "ConfigMap": CONFIGMAPS}
NAME = "placement-candidate"
MOVING = POLICY.replace("_fit}", '_fit; name != "c1"}')
BROKEN = "package io.k8s.federation.admission\n\nx := y\n"
LABELS = {"kube-sync.io/stage": "candidate"}


@dataclass
class World:
    """A replicator between a fake API server and a real OPA."""

    api: FakeApiServer
    opa: OpaClient
    settings: Settings

    def stage(self, source: str, name: str = NAME) -> None:
        key = ObjectKey(NAMESPACE, name)
        self.api.put(CONFIGMAPS, key, metadata={"labels": LABELS}, data={"policy.rego": source})

    def stage_object(self, source: str) -> None:
        spec = {"stage": "candidate", "modules": [{"name": "policy.rego", "rego": source}]}
        metadata = {"generation": 1}
        self.api.put(PLACEMENT_POLICIES, ObjectKey(NAMESPACE, NAME), metadata=metadata, spec=spec)

    def said(self, name: str = NAME) -> Any:
        metadata = self.api.get(CONFIGMAPS, ObjectKey(NAMESPACE, name))["metadata"]
        return json.loads((metadata.get("annotations") or {}).get(STATUS, "{}"))

    def said_of_object(self) -> Any:
        return self.api.get(PLACEMENT_POLICIES, ObjectKey(NAMESPACE, NAME)).get("status") or {}

    async def planned(self, line: str) -> Any:
        """Return what this command line says, and its exit status."""
        name, command_name, *arguments = line.split()
        assert (name, command_name) == ("kube-sync", "plan")
        parser = ArgumentParser()
        declare(parser)
        request = requested(parser.parse_args([*arguments, "--output", "json"]))
        answer = await command.run(request, self.settings, print)
        return json.loads(answer.text), answer.status

    async def held(self) -> list[str]:
        return sorted(found.id for found in await self.opa.policies())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    scratch = ScratchOpa(BINARY)
    async with (
        fake_apiserver() as api,
        kube_of(api, tmp_path) as kube,
        scratch.serving({}, b"{}") as opa,
    ):
        for kind, gvr in {**KINDS, "Lease": LEASES, KIND: PLACEMENT_POLICIES}.items():
            api.define(gvr, kind)
        for found in (policy(), *FLEET, *WORKLOADS):
            metadata = found["metadata"]
            key = ObjectKey(metadata["namespace"], metadata["name"])
            content = {name: part for name, part in found.items() if name in ("metadata", "data")}
            api.put(KINDS[found["kind"]], key, **content)
        file = str(tmp_path / "kubeconfig")
        settings = Settings(kubernetes=Kubernetes(kubeconfig=file), opa=Opa(binary=BINARY))
        hub = DecisionHub("test")
        replicator = Replicator(
            settings, kube, opa, hub, Readiness(), scratch, shelf=BundleServer()
        )
        task = asyncio.create_task(replicator.run())
        await until(lambda: len(hub.records) == len(WORKLOADS) and not hub.held)
        yield World(api, opa, settings)
        task.cancel()
        await asyncio.wait([task])


async def test_candidate_names_the_command_that_plans_with_it_and_nothing_else_changes(
    world: World,
) -> None:
    before = await world.held()
    world.stage(MOVING)
    await eventually(lambda: world.said().get("status") == "ok")
    said = world.said()
    assert said == {
        "status": "ok",
        "stage": "candidate",
        "stands_for": f"{NAMESPACE}/placement",
        "modules": digest({f"{NAMESPACE}/{NAME}/policy.rego": MOVING}),
        "plan": f"kube-sync plan --staged --candidate {NAMESPACE}/{NAME}",
    }
    plan, _ = await world.planned(said["plan"])
    assert plan["summary"]["moves"] == 2
    assert plan["candidates"] == [
        {
            "name": f"{NAMESPACE}/{NAME}",
            "stands_for": said["stands_for"],
            "modules": said["modules"],
        }
    ]
    assert await world.held() == before
    assert world.said("placement") == {"status": "ok"}


async def test_candidate_that_does_not_compile_says_file_and_row(
    world: World,
) -> None:
    before = await world.held()
    world.stage(BROKEN)
    await eventually(lambda: world.said().get("status") == "error")
    (cause,) = world.said()["error"]["errors"]
    location = cause["location"]
    assert (location["file"], location["row"]) == (f"{NAMESPACE}/{NAME}/policy.rego", 3)
    assert (cause["code"], cause["message"]) == ("rego_unsafe_var_error", "var y is unsafe")
    assert await world.held() == before


async def test_placementpolicy_says_the_same_in_its_status(world: World) -> None:
    world.stage_object(MOVING)
    await eventually(lambda: "staged" in world.said_of_object())
    status = world.said_of_object()
    # It stands for a PlacementPolicy, and there is none: it would decide beside the ConfigMap.
    assert status["staged"]["standsFor"] == f"PlacementPolicy {NAMESPACE}/placement"
    found = {one["type"]: one["status"] for one in status["conditions"]}
    assert found == {
        "Compiled": "True",
        "Active": "False",
        "Conflicting": "Unknown",
        "Ready": "False",
        "Reconciling": "True",
        "Stalled": "False",
    }
    plan, _ = await world.planned(status["staged"]["plan"])
    (planned,) = plan["candidates"]
    assert planned["modules"] == status["staged"]["modules"]
