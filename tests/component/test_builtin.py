"""The replicator with a policy system built in, between two fake servers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from kube_sync.config import (
    SYSTEMS,
    Allow,
    Placement,
    Policies,
    Replicate,
    Scheduling,
    Settings,
)
from kube_sync.decisions.hub import DecisionHub
from kube_sync.kube.configmaps import STATUS
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.system_modules import builtin_modules
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CONFIGMAPS, key
from tests.fakes.http import answer
from tests.fakes.opa import FakeOpa, fake_opa
from tests.fakes.replicating import replicator_between
from tests.unit.async_tools import until

NAMESPACE = "policies"
CONFIG = "kube_sync/config/scheduling.rego"
SYSTEM = SYSTEMS["scheduling"]
KINDS = {resource.name: resource.gvr for resource in SYSTEM.resources}
SETTINGS = Settings(
    replicate=Replicate(resources=()),
    policies=Policies((NAMESPACE,), allow=Allow(packages=("kube_sync",))),
    placement=Placement(resources=()),
    builtin=("scheduling",),
    scheduling=Scheduling(merge_option=4),
)


class World:
    """A replicator, and what it is between."""

    def __init__(self, api: FakeApiServer, opa: FakeOpa) -> None:
        self.api = api
        self.opa = opa
        self.readiness = Readiness()
        self.hub = DecisionHub("test")

    def put(self, name: str, where: ObjectKey, **content: Any) -> None:
        gvr = KINDS[name]
        self.api.put(gvr, where, apiVersion=f"{gvr.group}/{gvr.version}", kind="K", **content)

    def held(self, name: str) -> Any:
        """Return what OPA holds of a collection."""
        return self.opa.data["kubernetes"][name]

    def policy(self, source: str) -> None:
        self.api.put(CONFIGMAPS, key("p", NAMESPACE), data={"p.rego": source})

    def status(self) -> Any:
        annotations = self.api.get(CONFIGMAPS, key("p", NAMESPACE))["metadata"]["annotations"]
        return json.loads(annotations[STATUS])

    @property
    def modules(self) -> set[str]:
        return set(self.opa.policies)

    @property
    def settled(self) -> bool:
        return not self.readiness.reasons and CONFIG in self.opa.policies


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    """All kinds are there but that of the policies themselves."""
    async with fake_apiserver() as api, fake_opa() as opa:
        api.define(CONFIGMAPS, "ConfigMap")
        for name, gvr in KINDS.items():
            if name != "schedulingpolicies":
                _define(api, gvr)
        world = World(api, opa)
        world.put("roles", key("user", "shop"), rules=[{"verbs": ["use"]}])
        async with replicator_between(
            api, opa, tmp_path, SETTINGS, hub=world.hub, readiness=world.readiness
        ):
            await until(lambda: world.settled)
            yield world


def _define(api: FakeApiServer, gvr: GroupVersionResource) -> None:
    api.define(gvr, "K", namespaced=gvr.resource in ("roles", "rolebindings"))


async def test_its_modules_are_loaded_without_any_configmap(world: World) -> None:
    wanted = set(builtin_modules(["scheduling"]))
    assert wanted <= world.modules
    assert '\\"merge_option\\":4' in world.opa.policies[CONFIG]


async def test_what_it_reads_is_held_and_no_more(world: World) -> None:
    assert world.held("roles")["shop"]["user"].keys() == {
        "apiVersion",
        "kind",
        "metadata",
        "rules",
    }
    assert world.held("schedulingpolicies") == {}


async def test_a_kind_that_is_not_there_is_said_and_holds_nobody_up(world: World) -> None:
    told = world.readiness.conditions[str(SYSTEM.policies)]
    assert told.startswith("none: ")
    assert "is its CRD there?" in told
    # Decisions on placement go on: what they are about is all there.
    await until(lambda: world.hub.held == ())


async def test_a_kind_that_comes_is_found(world: World) -> None:
    _define(world.api, SYSTEM.policies)
    world.put("schedulingpolicies", key("restricted", ""), spec={"allowed": {}}, status={"a": 1})
    await until(lambda: "restricted" in world.held("schedulingpolicies"))
    assert "status" not in world.held("schedulingpolicies")["restricted"]
    await until(lambda: world.readiness.conditions[str(SYSTEM.policies)] == "ok")


async def test_a_kind_that_goes_while_it_cannot_be_followed_is_waited_for_by_nobody(
    world: World,
) -> None:
    """Moves are held for what is not current; of what there is no kind everything is."""
    name, path = "schedulingpolicies", SYSTEM.policies.path()
    _define(world.api, SYSTEM.policies)
    world.put(name, key("restricted", ""), spec={})
    await until(lambda: "restricted" in world.held(name))
    failing = world.api.http.fault(lambda r: r.path == path, answer(503), times=1000)
    world.api.http.cut()
    await until(lambda: name in {one.source for one in world.hub.freshness.sources})
    world.api.undefine(SYSTEM.policies)
    world.api.http.faults.remove(failing)
    await until(lambda: name not in {one.source for one in world.hub.freshness.sources})


async def test_a_configmap_that_is_broken_takes_nothing_of_it_with_it(world: World) -> None:
    before = world.modules
    world.policy("package a\ndoes not compile\n")
    await until(lambda: STATUS in str(world.api.get(CONFIGMAPS, key("p", NAMESPACE))))
    assert world.status()["status"] == "error"
    assert before <= world.modules


@pytest.mark.parametrize("package", ["kube_sync.scheduling", "kube_sync.scheduling.use"])
async def test_no_configmap_adds_to_it_whatever_is_allowed(world: World, package: str) -> None:
    world.policy(f"package {package}\n\nx := 1\n")
    await until(lambda: STATUS in str(world.api.get(CONFIGMAPS, key("p", NAMESPACE))))
    assert f"package {package} is built in" in str(world.status())
    assert f"{NAMESPACE}/p/p.rego" not in world.modules


async def test_an_opa_that_lost_all_gets_it_again(world: World) -> None:
    before = world.modules
    world.opa.restart()
    await until(lambda: before <= world.modules and world.settled)
    await until(lambda: "user" in world.held("roles").get("shop", {}))


async def test_it_is_nobodys_placement_policy(world: World) -> None:
    """Where no ConfigMap is policy none is in force, whatever is built in."""
    assert REGISTRY.get_sample_value("kube_sync_policies_in_force") == 0
    world.policy("package a\n")
    await until(lambda: REGISTRY.get_sample_value("kube_sync_policies_in_force") == 1)
