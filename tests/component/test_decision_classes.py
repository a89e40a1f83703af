"""One evaluation a class, from the API server to the hub, between two fake servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from kube_sync.config import Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.observability.readiness import Readiness
from kube_sync.policies import reading
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.replicator.class_backfill import FEW
from kube_sync.replicator.replicator import Replicator
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, lists
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, key, kube_of, opa_of
from tests.fakes.compiler import FakeCompiler
from tests.fakes.fleet import reads
from tests.fakes.http import answer
from tests.fakes.opa import FakeOpa, fake_opa
from tests.unit.async_tools import until

_KINDS = 3


class World:
    """A replicator with many objects of three classes."""

    def __init__(self, api: FakeApiServer, opa: FakeOpa, hub: DecisionHub) -> None:
        self.api = api
        self.opa = opa
        self.hub = hub
        self.evaluated = 0
        opa.decide = self._decide

    def _decide(self, found: Any, data: Any) -> Any:
        self.evaluated += 1
        clusters = len(data["kubernetes"]["clusters"].get("default", {}))
        return {"annotations": {"place": f"{found['spec']['n']} of {clusters}"}}

    def right(self) -> bool:
        clusters = len(self.api.objects(CLUSTERS))
        wanted = {
            found.name: f"{body['spec']['n']} of {clusters}"
            for found, body in self.api.objects(REPLICASETS).items()
        }
        told = {
            target.name: record.decision.annotations["place"]
            for target, record in self.hub.records.items()
            if record.decision is not None
        }
        return not self.hub.held and told == wanted


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[World]:
    """A running replicator whose policies read `spec.n` and the clusters."""
    found = reads(("spec", "n"))
    monkeypatch.setattr(reading, "_analysed", lambda *_given: found)
    async with fake_apiserver() as api, fake_opa() as fake:
        for gvr, kind in (
            (CLUSTERS, "ClusterProfile"),
            (REPLICASETS, "ReplicaSet"),
            (CONFIGMAPS, "ConfigMap"),
        ):
            api.define(gvr, kind)
        for index in range(FEW):
            api.put(REPLICASETS, key(f"n{index:03}"), spec={"n": index % _KINDS, "m": index})
        hub = DecisionHub("test")
        world = World(api, fake, hub)
        async with kube_of(api, tmp_path) as kube, opa_of(fake) as opa:
            readiness = Readiness()
            replicator = Replicator(
                Settings(), kube, opa, hub, readiness, FakeCompiler(), shelf=BundleServer()
            )
            task = asyncio.create_task(replicator.run())
            await api.watched(REPLICASETS, CLUSTERS, CONFIGMAPS)
            yield world
            task.cancel()
            await asyncio.wait([task])


def _policy(world: World) -> None:
    where = key("placement", Settings().policies.namespaces[0])
    world.api.put(CONFIGMAPS, where, data={"a.rego": "package good"})


async def test_policy_that_arrives_costs_one_list_and_one_evaluation_a_class(
    world: World,
) -> None:
    _policy(world)
    await until(world.right)
    assert world.evaluated == _KINDS
    lists_made = REGISTRY.get_sample_value(
        "kube_sync_reflector_lists_total", {"resource": str(REPLICASETS), "reason": "classify"}
    )
    assert lists_made is not None
    world.api.put(CLUSTERS, key("c1"))
    await until(world.right)
    assert world.evaluated == 2 * _KINDS
    world.api.put(REPLICASETS, key("n001"), spec={"n": 2, "m": 0})
    await until(world.right)
    assert world.evaluated == 2 * _KINDS


async def test_list_that_fails_delays_no_decision(world: World) -> None:
    world.api.http.fault(lists(REPLICASETS), answer(500, b"{}"))
    _policy(world)
    await until(world.right)
    assert world.evaluated >= _KINDS
