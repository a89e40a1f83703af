"""Policies and data from labelled ConfigMaps, between two fake servers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Labelled, Placement, Policies, Replicate, Resource, Settings
from kube_sync.kube.configmaps import STATUS
from kube_sync.observability.readiness import Readiness
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, lists
from tests.fakes.clients import CONFIGMAPS, REPLICASETS, key
from tests.fakes.http import Recorded, answer
from tests.fakes.opa import FakeOpa, fake_opa
from tests.fakes.replicating import replicator_between
from tests.unit.async_tools import until

_PATIENCE = 30.0  # seconds
POLICY = {"openpolicyagent.org/policy": "rego"}
DATA = {"openpolicyagent.org/data": "opa"}
CA = "kube-root-ca.crt"


class World:
    def __init__(self, api: FakeApiServer, opa: FakeOpa, folder: Path) -> None:
        self.api = api
        self.opa = opa
        self.folder = folder
        self.readiness = Readiness()

    def put(self, where: str, labels: dict[str, str], **data: str) -> None:
        namespace, name = where.split("/")
        metadata = {"labels": labels}
        self.api.put(CONFIGMAPS, key(name, namespace), metadata=metadata, data=data)

    def delete(self, where: str) -> None:
        namespace, name = where.split("/")
        self.api.delete(CONFIGMAPS, key(name, namespace))

    def status(self, where: str) -> Any:
        namespace, name = where.split("/")
        metadata = self.api.get(CONFIGMAPS, key(name, namespace))["metadata"]
        text = (metadata.get("annotations") or {}).get(STATUS)
        return json.loads(text)["status"] if text else None

    @property
    def modules(self) -> set[str]:
        return {i for i in self.opa.policies if not i.startswith("kube_sync/")}

    @property
    def ready(self) -> bool:
        return self.readiness.conditions.get("policies") == "ok" and not self.readiness.reasons

    @asynccontextmanager
    async def replicating(self, *namespaces: str) -> AsyncGenerator[None]:
        settings = Settings(
            replicate=Replicate(resources=(Resource("apps", "v1", "replicasets"),)),
            policies=Policies(namespaces=("policies",), labelled=Labelled(namespaces=namespaces)),
            placement=Placement(resources=()),
        )
        self.readiness = Readiness()
        async with replicator_between(
            self.api, self.opa, self.folder, settings, readiness=self.readiness, patience=_PATIENCE
        ):
            yield


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api, fake_opa() as opa:
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(REPLICASETS, "ReplicaSet")
        world = World(api, opa, tmp_path)
        for namespace in ("policies", "shop", "apps"):
            world.put(f"{namespace}/{CA}", {}, **{"ca.crt": "-----BEGIN CERTIFICATE-----"})
        yield world


async def test_labelled_configmaps_of_all_namespaces_are_loaded(world: World) -> None:
    world.put("policies/own", {}, **{"a.rego": "package own", "readme": "words"})
    world.put("policies/both", POLICY, main="package both")
    world.put("shop/rules", POLICY, main="package rules", **{"b.rego": "package b"})
    world.put("shop/limits", DATA, cpu='{"max": 4}')
    world.put("policies/more", DATA, **{"x.rego": "1"})
    async with world.replicating("*"):
        await until(lambda: world.ready)
        await until(lambda: world.status("policies/both") == "ok")
        await until(lambda: world.status("shop/limits") == "ok")
        assert world.modules == {
            "policies/own/a.rego",
            "policies/both/main",
            "shop/rules/main",
            "shop/rules/b.rego",
        }
        assert world.opa.data["shop"] == {"limits": {"cpu": {"max": 4}}}
        assert world.opa.data["policies"] == {"more": {"x.rego": 1}}
        assert "apps" not in world.opa.data
        assert {world.status(f"{n}/{CA}") for n in ("policies", "shop", "apps")} == {None}


async def test_labels_count_only_in_the_namespaces_that_are_named(world: World) -> None:
    world.put("shop/rules", POLICY, main="package rules")
    world.put("apps/rules", POLICY, main="package rules")
    world.put("apps/limits", DATA, cpu="1")
    async with world.replicating("shop"):
        await until(lambda: world.ready)
        assert world.modules == {"shop/rules/main"}
        assert "apps" not in world.opa.data
    before = len(world.api.http.requests)
    async with world.replicating():
        await until(lambda: world.ready)
        assert not any("labelSelector" in r.query for r in world.api.http.requests[before:])


async def test_policies_wait_for_labelled_data(world: World) -> None:
    """Data before policies."""
    forbidden = world.api.http.fault(
        lambda r: lists(CONFIGMAPS)(r) and "data" in r.query.get("labelSelector", ""),
        answer(403, b"no"),
        times=10**6,
    )
    world.put("shop/limits", DATA, cpu="1")
    world.put("policies/own", {}, **{"a.rego": "package own"})
    async with world.replicating("*"):
        await forbidden.met.wait()
        await until(lambda: "data ConfigMaps in all namespaces" in world.readiness.reasons)
        assert world.modules == set()
        world.api.http.faults.clear()
        await until(lambda: world.ready)
        assert world.modules == {"policies/own/a.rego"}
        assert world.opa.data["shop"] == {"limits": {"cpu": 1}}


async def test_data_deleted_while_nobody_looked_is_gone_after_the_restart(world: World) -> None:
    world.opa.data = {"shop": {"theirs": 1}}
    world.put("shop/limits", DATA, cpu="1", memory="2")
    world.put("shop/kept", DATA, cpu="1")
    async with world.replicating("*"):
        await until(lambda: world.ready)
    world.delete("shop/limits")
    async with world.replicating("*"):
        await until(lambda: world.ready)
        assert world.opa.data["shop"] == {"theirs": 1, "kept": {"cpu": 1}}
    async with world.replicating():  # switched off
        await until(lambda: world.ready)
        assert world.opa.data["shop"] == {"theirs": 1}


async def test_configmap_that_loses_its_label_is_unloaded(world: World) -> None:
    world.put("shop/limits", DATA, cpu="1")
    world.put("shop/rules", POLICY, main="package rules")
    async with world.replicating("shop"):
        await until(lambda: world.ready)
        world.put("shop/limits", {}, cpu="1")
        world.put("shop/rules", {}, main="package rules")
        await until(lambda: world.opa.data["shop"] == {})
        await until(lambda: world.modules == set())


async def test_data_reaches_an_opa_that_was_restarted(world: World) -> None:
    world.put("shop/limits", DATA, cpu="1")
    async with world.replicating("shop"):
        await until(lambda: world.ready)
        world.opa.restart()
        world.put("shop/limits", DATA, cpu="2")
        await until(lambda: world.opa.data.get("shop") == {"limits": {"cpu": 2}})


async def test_refused_data_delays_neither_objects_nor_other_data(world: World) -> None:
    world.opa.owned = [("shop",)]
    world.put("shop/limits", DATA, cpu="1")
    world.put("apps/limits", DATA, cpu="{")
    world.put("policies/more", DATA, cpu="3")

    def is_write_to_shop(recorded: Recorded) -> bool:
        return recorded.path.startswith("/v1/data/shop")

    async with world.replicating("*"):
        await until(lambda: world.ready)
        await until(lambda: world.status("shop/limits") == world.status("apps/limits") == "error")
        assert world.opa.data["policies"] == {"more": {"cpu": 3}}
        world.api.put(REPLICASETS, key("new"))
        await until(lambda: "new" in world.opa.data["kubernetes"]["replicasets"].get("default", {}))
        # Not asked again and again.
        assert sum(map(is_write_to_shop, world.opa.http.requests)) <= 2
