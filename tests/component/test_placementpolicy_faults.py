"""PlacementPolicies between servers that fail: what is gone is unloaded, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Placement, Policies, Replicate, Settings
from kube_sync.kube.definitions import DEFINITIONS
from kube_sync.kube.lease import LEASES
from kube_sync.kube.maybeserved import MaybeServed
from kube_sync.kube.placementpolicies import KIND, PLACEMENT_POLICIES
from kube_sync.objects import ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.runtime.backoff import Backoff
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, lists, patches
from tests.fakes.clients import CONFIGMAPS, key
from tests.fakes.http import Recorded, answer, failing
from tests.fakes.opa import FakeOpa, fake_opa
from tests.fakes.replicating import replicator_between
from tests.unit.async_tools import until

NAMESPACE = "policies"
DEFINED = ObjectKey("", "placementpolicies.policy.kube-sync.io")
WEB = f"{NAMESPACE}/web.PlacementPolicy/a.rego"
MAP = f"{NAMESPACE}/map/a.rego"
LISTS = lists(PLACEMENT_POLICIES)


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 50)

    for made in (Backoff, MaybeServed):
        defaults = made.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "sleep", sleep)


class World:
    """An API server with a policy ConfigMap, an OPA, and replicators between them."""

    def __init__(self, api: FakeApiServer, opa: FakeOpa, folder: Path) -> None:
        self.api = api
        self.opa = opa
        self.folder = folder
        self.readiness = Readiness()

    @asynccontextmanager
    async def replicating(self) -> AsyncGenerator[None]:
        settings = Settings(
            replicate=Replicate(resources=()),
            policies=Policies(namespaces=(NAMESPACE,)),
            placement=Placement(resources=()),
        )
        self.readiness = Readiness()
        async with replicator_between(
            self.api, self.opa, self.folder, settings, readiness=self.readiness
        ):
            yield

    def install(self) -> None:
        self.api.define(DEFINITIONS, "CustomResourceDefinition", namespaced=False)
        self.api.put(DEFINITIONS, DEFINED, spec={})
        self.api.define(PLACEMENT_POLICIES, KIND, builtin=False)

    def policy(self, source: str = "package web", name: str = "web", **more: Any) -> None:
        spec = {"modules": [{"name": "a.rego", "rego": source}]} | more
        self.api.put(PLACEMENT_POLICIES, key(name, NAMESPACE), spec=spec)

    def conditions(self, name: str = "web") -> dict[str, str]:
        found = self.api.get(PLACEMENT_POLICIES, key(name, NAMESPACE)).get("status", {})
        return {one["type"]: one["reason"] for one in found.get("conditions", ())}

    @property
    def versions(self) -> list[str]:
        """How new each PlacementPolicy is."""
        found = self.api.objects(PLACEMENT_POLICIES).values()
        return [one["metadata"]["resourceVersion"] for one in found]

    @property
    def held(self) -> set[str]:
        return {i for i in self.opa.policies if i.startswith(f"{NAMESPACE}/")}

    def not_ready(self) -> str:
        return self.readiness.reasons.get(f"PlacementPolicies in {NAMESPACE}", "")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api, fake_opa() as opa:
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(LEASES, "Lease")
        api.put(CONFIGMAPS, key("map", NAMESPACE), data={"a.rego": "package map"})
        yield World(api, opa, tmp_path)


def definition(recorded: Recorded) -> bool:
    return recorded.path == DEFINITIONS.path(name=DEFINED.name)


async def test_the_kind_that_is_installed_later_is_loaded_and_told(world: World) -> None:
    async with world.replicating():
        await until(lambda: world.held == {MAP})
        await until(lambda: not world.readiness.reasons)
        world.install()
        world.policy()
        await until(lambda: world.held == {MAP, WEB})
        good = {"Compiled": "Compiled", "Active": "InForce", "Conflicting": "Clear"}
        good |= dict.fromkeys(("Ready", "Reconciling", "Stalled"), "InForce")
        await until(lambda: world.conditions() == good)


async def test_one_that_does_not_compile_says_where_and_keeps_what_was_good(world: World) -> None:
    world.install()
    world.policy()
    async with world.replicating():
        await until(lambda: world.conditions().get("Active") == "InForce")
        world.policy("package web\ndoes not compile")
        await until(lambda: world.conditions().get("Active") == "LastGood")
        found = world.api.get(PLACEMENT_POLICIES, key("web", NAMESPACE))["status"]["conditions"]
        (compiled,) = [one for one in found if one["type"] == "Compiled"]
        said = "a.rego:2: rego_parse_error: unexpected identifier token"
        assert compiled["message"] == said
        assert world.opa.policies[WEB] == "package web"
        assert MAP in world.held


async def test_what_is_right_is_written_once(world: World) -> None:
    world.install()
    world.policy()
    world.policy(name="staged", stage="candidate")
    async with world.replicating():
        await until(lambda: world.conditions().get("Active") == "InForce")
        await until(lambda: world.conditions("staged").get("Compiled") == "Compiled")
        before = world.versions
        world.api.put(CONFIGMAPS, key("map", NAMESPACE), data={"a.rego": "package other"})
        await until(lambda: world.opa.policies.get(MAP) == "package other")
        assert world.held == {MAP, WEB}
    assert world.versions == before


async def test_another_process_writes_nothing_that_is_right(world: World) -> None:
    world.install()
    world.policy()
    async with world.replicating():
        await until(lambda: world.conditions().get("Active") == "InForce")
    world.opa.policies.clear()
    async with world.replicating():
        await until(lambda: world.held == {MAP, WEB})
        await until(lambda: not world.readiness.reasons)
    assert sum(map(patches(PLACEMENT_POLICIES), world.api.http.requests)) == 1


@pytest.mark.parametrize("code", [403, 404, 500])
async def test_a_start_that_cannot_list_them_unloads_nothing(world: World, code: int) -> None:
    """The kind is defined: a 404 of it is not true."""
    world.install()
    world.policy()
    async with world.replicating():
        await until(lambda: world.held == {MAP, WEB})
    fault = world.api.http.fault(LISTS, failing(code, "not now"), times=10**6)
    async with world.replicating():
        await until(world.not_ready)
        assert "policies" in world.readiness.reasons
        assert world.held == {MAP, WEB}
        fault.times = 0
        await until(lambda: not world.readiness.reasons)
        assert world.held == {MAP, WEB}


async def test_a_relist_that_fails_unloads_nothing(world: World) -> None:
    world.install()
    world.policy()
    async with world.replicating():
        await until(lambda: world.held == {MAP, WEB})
        await world.api.watched(PLACEMENT_POLICIES)
        for matches in (LISTS, definition):
            world.api.http.fault(matches, answer(404, b"404 page not found"), times=3)
        world.api.compact()
        world.api.http.cut()
        await until(world.not_ready)
        world.api.put(CONFIGMAPS, key("map", NAMESPACE), data={"a.rego": "package other"})
        await until(lambda: world.opa.policies.get(MAP) == "package other")
        assert WEB in world.held
        await until(lambda: not world.readiness.reasons)
        assert WEB in world.held


async def test_deleting_the_kind_unloads_its_policies(world: World) -> None:
    world.install()
    world.policy()
    async with world.replicating():
        await until(lambda: world.held == {MAP, WEB})
        world.api.delete(DEFINITIONS, DEFINED)
        world.api.undefine(PLACEMENT_POLICIES)
        await until(lambda: world.held == {MAP})
        await until(lambda: not world.readiness.reasons)


async def test_a_kind_deleted_while_nobody_looked_is_gone_at_the_next_start(world: World) -> None:
    world.install()
    world.policy()
    async with world.replicating():
        await until(lambda: world.held == {MAP, WEB})
    world.api.delete(DEFINITIONS, DEFINED)
    world.api.undefine(PLACEMENT_POLICIES)
    async with world.replicating():
        await until(lambda: world.held == {MAP})
