"""The replicator told to replicate a part of what is there, between two fake servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from kube_sync.config import Placement, Policies, Replicate, Resource, Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.objects import GroupVersionResource
from kube_sync.observability.readiness import Readiness
from tests.fakes.apiserver import (
    FakeApiServer,
    continues,
    error_event,
    fake_apiserver,
    lists,
    watches,
)
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, key
from tests.fakes.http import Recorded, answer, held, stream
from tests.fakes.opa import FakeOpa, fake_opa, puts
from tests.fakes.replicating import replicator_between
from tests.unit.async_tools import until

NODES = GroupVersionResource("", "v1", "nodes")
_PATIENCE = 30.0  # seconds


class World:
    """What the replicator reads from and what it writes to."""

    def __init__(self, api: FakeApiServer, opa: FakeOpa, folder: Path) -> None:
        self.api = api
        self.opa = opa
        self.folder = folder
        self.hub = DecisionHub("test")
        self.readiness = Readiness()

    def held(self, name: str) -> Any:
        """Return the names that OPA holds, by namespace; None before the load."""
        if "loaded" not in self.opa.data.get("kube_sync", {}).get("epoch", {}).values():
            return None
        found = self.opa.data["kubernetes"][name]
        return {space: sorted(inside) for space, inside in found.items()}

    def objects(self, name: str) -> Any:
        """Return the names that OPA holds now, by namespace; an object without one by itself."""
        found = self.opa.data.get("kubernetes", {}).get(name, {})
        return {
            space: "object" if "metadata" in inside else sorted(inside)
            for space, inside in found.items()
        }

    @property
    def stale(self) -> list[str]:
        return [late.source for late in self.hub.freshness.sources]

    @property
    def epochs(self) -> int:
        return sum(map(puts("/v1/data/kube_sync/epoch"), self.opa.http.requests))

    def asked(self) -> set[str]:
        """Return the paths of all LISTs and WATCHes."""
        return {r.path for r in self.api.http.requests if "limit" in r.query or "watch" in r.query}

    @asynccontextmanager
    async def replicating(self, *resources: Resource, **replicate: Any) -> AsyncGenerator[None]:
        settings = Settings(
            replicate=Replicate(resources=resources, **replicate),
            policies=Policies(namespaces=()),
            placement=Placement(resources=()),
        )
        async with replicator_between(
            self.api,
            self.opa,
            self.folder,
            settings,
            hub=self.hub,
            readiness=self.readiness,
            patience=_PATIENCE,
        ):
            yield


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api, fake_opa() as opa:
        api.define(REPLICASETS, "ReplicaSet")
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(NODES, "Node", namespaced=False)
        for space in ("n1", "n2", "n3"):
            api.put(REPLICASETS, key("a", space), metadata={"labels": {"team": "x"}})
            api.put(REPLICASETS, key("b", space))
        api.put(NODES, key("node", ""))
        yield World(api, opa, tmp_path)


def of(gvr: GroupVersionResource, **selection: Any) -> Resource:
    return Resource(gvr.group, gvr.version, gvr.resource, **selection)


def inside(space: str, what: Any) -> Any:
    def matches(recorded: Recorded) -> bool:
        return what(REPLICASETS)(recorded) and f"/namespaces/{space}/" in recorded.path

    return matches


async def test_label_selector_selects_what_is_loaded_and_what_is_followed(world: World) -> None:
    async with world.replicating(of(REPLICASETS, label_selector="team=x")):
        await until(lambda: world.held("replicasets") == {s: ["a"] for s in ("n1", "n2", "n3")})
        world.api.put(REPLICASETS, key("b", "n1"), metadata={"labels": {"team": "x"}})
        world.api.put(REPLICASETS, key("a", "n2"), metadata={"labels": {"team": "y"}})
        await until(lambda: world.held("replicasets") == {"n1": ["a", "b"], "n3": ["a"]})


async def test_object_that_left_its_selector_during_a_gap_is_removed(world: World) -> None:
    async with world.replicating(of(REPLICASETS, label_selector="team=x")):
        await until(lambda: world.held("replicasets") is not None)
        await world.api.watched(REPLICASETS)
        world.api.http.fault(watches(REPLICASETS), answer(503))
        world.api.http.cut()
        world.api.put(REPLICASETS, key("a", "n2"))
        world.api.compact()
        await until(lambda: world.held("replicasets") == {"n1": ["a"], "n3": ["a"]})


async def test_namespaces_are_listed_and_watched_one_by_one(world: World) -> None:
    """An account that may read these alone must be enough."""
    everywhere = REPLICASETS.path()
    async with world.replicating(of(REPLICASETS), namespaces=("n1", "n3")):
        await until(lambda: world.held("replicasets") == {"n1": ["a", "b"], "n3": ["a", "b"]})
        await world.api.watched(REPLICASETS)
        world.api.put(REPLICASETS, key("c", "n2"))
        world.api.put(REPLICASETS, key("c", "n3"))
        await until(lambda: world.held("replicasets") == {"n1": ["a", "b"], "n3": ["a", "b", "c"]})
        assert world.asked() == {REPLICASETS.path("n1"), REPLICASETS.path("n3")}
        assert everywhere not in world.asked()


async def test_relist_of_one_namespace_keeps_the_other(world: World) -> None:
    async with world.replicating(of(REPLICASETS, namespaces=("n1", "n2"))):
        await until(lambda: world.held("replicasets") is not None)
        world.api.http.fault(inside("n1", watches), stream(error_event(410)))
        world.api.http.cut()
        await world.api.http.until_next(inside("n1", lists))
        world.api.delete(REPLICASETS, key("b", "n1"))
        await until(lambda: world.held("replicasets") == {"n1": ["a"], "n2": ["a", "b"]})
    assert sum(map(inside("n2", lists), world.api.http.requests)) == 1


async def test_namespace_that_cannot_be_followed_is_stale_by_itself(world: World) -> None:
    async with world.replicating(of(REPLICASETS, namespaces=("n1", "n2"))):
        await until(lambda: world.held("replicasets") is not None)
        await world.api.watched(REPLICASETS)
        fault = world.api.http.fault(inside("n1", watches), answer(503), times=1000)
        world.api.http.cut()
        await until(lambda: world.stale == ["replicasets in n1"])
        fault.times = 0
        await until(lambda: world.stale == [])


@pytest.mark.parametrize("late", ["n1", "n2"])
async def test_namespaces_that_arrive_in_either_order_are_loaded_whole(
    world: World, late: str
) -> None:
    world.api.page_size = 1
    fault = world.api.http.fault(inside(late, lists), answer(503))
    async with world.replicating(of(REPLICASETS, namespaces=("n1", "n2"))):
        await until(lambda: world.held("replicasets") == {"n1": ["a", "b"], "n2": ["a", "b"]})
    assert fault.times == 0


async def test_first_list_of_one_namespace_that_breaks_off_is_begun_again_alone(
    world: World,
) -> None:
    world.api.page_size = 1
    expired = answer(410, b'{"code":410,"message":"too old"}')
    fault = world.api.http.fault(inside("n2", continues), expired)
    async with world.replicating(of(REPLICASETS, namespaces=("n1", "n2"))):
        await until(lambda: world.held("replicasets") == {"n1": ["a", "b"], "n2": ["a", "b"]})
    assert fault.times == 0
    assert sum(map(inside("n1", lists), world.api.http.requests)) == 1


async def test_one_namespace_that_cannot_be_listed_withholds_the_load(world: World) -> None:
    fault = world.api.http.fault(inside("n2", lists), answer(503), times=2)
    async with world.replicating(of(REPLICASETS, namespaces=("n1", "n2"))):
        await until(lambda: f"{REPLICASETS} in n2" in world.readiness.reasons)
        assert world.held("replicasets") is None
        await until(lambda: world.held("replicasets") == {"n1": ["a", "b"], "n2": ["a", "b"]})
    assert fault.times == 0


async def test_ignored_namespaces_are_left_out_by_a_field_selector(world: World) -> None:
    resource = of(REPLICASETS, field_selector="metadata.name!=b")
    async with world.replicating(resource, ignore_namespaces=("n1", "n2")):
        await until(lambda: world.held("replicasets") == {"n3": ["a"]})
        world.api.put(REPLICASETS, key("c", "n1"))
        world.api.put(REPLICASETS, key("c", "n3"))
        await until(lambda: world.held("replicasets") == {"n3": ["a", "c"]})
    asked = {r.query.get("fieldSelector") for r in world.api.http.requests if "limit" in r.query}
    assert asked == {"metadata.name!=b,metadata.namespace!=n1,metadata.namespace!=n2"}


@pytest.mark.parametrize("where", [{"namespaces": ("n1",)}, {"ignore_namespaces": ("n1",)}])
async def test_cluster_scoped_resource_ignores_namespaces(
    world: World, where: dict[str, tuple[str, ...]]
) -> None:
    async with world.replicating(of(NODES), **where):
        await until(lambda: world.held("nodes") is not None)
        assert set(world.opa.data["kubernetes"]["nodes"]) == {"node"}
        await until(lambda: world.readiness.reasons == {})


async def test_resource_without_namespaces_asks_no_discovery(world: World) -> None:
    async with world.replicating(of(REPLICASETS)):
        await until(lambda: world.held("replicasets") is not None)
    assert world.asked() == {REPLICASETS.path()}
    others = {r.path for r in world.api.http.requests} - world.asked()
    assert all("/leases" in path for path in others)


async def test_missing_kind_of_named_namespaces_holds_until_it_is_listed_in_all(
    world: World,
) -> None:
    clusters = of(CLUSTERS, as_="clusters", namespaces=("n1", "n2"))
    async with world.replicating(clusters):
        await until(lambda: world.held("clusters") == {})
        await until(lambda: len(world.hub.held) == 1 and "clusters: " in world.hub.held[0])
        assert "CRD" in world.readiness.reasons[str(CLUSTERS)]
        world.api.define(CLUSTERS, "ClusterProfile", builtin=False)
        world.api.put(CLUSTERS, key("east", "n2"))
        await until(lambda: world.hub.held == ())
        assert world.held("clusters") == {"n2": ["east"]}
        assert world.readiness.reasons == {}


async def test_discovery_that_fails_is_said_and_asked_again(world: World) -> None:
    world.api.http.fault(lambda r: r.path == "/apis/apps/v1", answer(503), times=3)
    async with world.replicating(of(REPLICASETS, namespaces=("n1",))):
        await until(lambda: "503" in world.readiness.reasons.get(str(REPLICASETS), ""))
        await until(lambda: world.held("replicasets") == {"n1": ["a", "b"]})
        await until(lambda: world.readiness.reasons == {})


async def test_two_parts_of_one_kind_are_told_apart(world: World) -> None:
    one = of(REPLICASETS, as_="one", label_selector="team=x", namespaces=("n1",))
    two = of(REPLICASETS, as_="two", label_selector="team!=x", ignore_namespaces=("n1",))
    async with world.replicating(one, two):
        await until(lambda: world.held("one") == {"n1": ["a"]})
        assert world.held("two") == {"n2": ["b"], "n3": ["b"]}
        names = set(world.readiness.conditions)
        assert {f"{REPLICASETS} as one in n1", f"{REPLICASETS} as two"} <= names


async def test_only_named_fields_reach_opa_in_the_load_and_afterwards(world: World) -> None:
    resource = of(REPLICASETS, fields=("spec.replicas", ("metadata", "labels")), namespaces=("n1",))
    world.api.put(REPLICASETS, key("a", "n1"), spec={"replicas": 1, "template": {}})
    async with world.replicating(resource):
        await until(lambda: world.held("replicasets") == {"n1": ["a", "b"]})
        inside = world.opa.data["kubernetes"]["replicasets"]["n1"]
        assert inside["a"]["spec"] == {"replicas": 1}
        new = world.api.put(
            REPLICASETS,
            key("c", "n1"),
            metadata={"labels": {"team": "x"}, "annotations": {"a": "b"}},
            spec={"replicas": 2, "template": {}},
        )
        await until(lambda: world.held("replicasets") == {"n1": ["a", "b", "c"]})
    assert world.opa.data["kubernetes"]["replicasets"]["n1"]["c"] == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": "c",
            "namespace": "n1",
            "uid": new["metadata"]["uid"],
            "labels": {"team": "x"},
        },
        "spec": {"replicas": 2},
    }


async def recreated(world: World, *, namespaced: bool, at_once: bool) -> None:
    """Delete the CRD and create it with this scope; nobody sees it missing when it is `at_once`."""
    await world.api.watched(CLUSTERS)
    world.api.undefine(CLUSTERS)
    if at_once:
        world.api.compact()
    else:
        await until(lambda: "CRD" in str(world.readiness.reasons))
    world.api.define(CLUSTERS, "ClusterProfile", builtin=False, namespaced=namespaced)
    for space in ("n1", "n2") if namespaced else ("",):
        for name in ("new", "n1") if namespaced else ("n1", "n2", "new"):
            world.api.put(CLUSTERS, key(name, space))


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({}, {"n1": ["n1", "new"], "n2": ["n1", "new"]}),
        ({"namespaces": ("n1",)}, {"n1": ["n1", "new"]}),
        ({"namespaces": ("n1", "n2")}, {"n1": ["n1", "new"], "n2": ["n1", "new"]}),
        ({"ignore_namespaces": ("n2",)}, {"n1": ["n1", "new"]}),
    ],
)
async def test_kind_that_comes_back_in_namespaces_is_selected_by_them(
    world: World, where: Any, wanted: Any, *, at_once: bool
) -> None:
    world.api.define(CLUSTERS, "ClusterProfile", builtin=False, namespaced=False)
    for name in ("n1", "old"):
        world.api.put(CLUSTERS, key(name, ""))
    async with world.replicating(of(CLUSTERS, as_="clusters", **where)):
        await until(lambda: world.held("clusters") is not None)
        epochs = world.epochs
        await recreated(world, namespaced=True, at_once=at_once)
        await until(lambda: world.objects("clusters") == wanted)
        await until(lambda: not world.hub.held and not world.readiness.reasons)
        assert world.epochs == epochs == 1
        world.api.delete(CLUSTERS, key("new", "n1"))
        world.api.put(CLUSTERS, key("elsewhere", "n3"))
        world.api.put(CLUSTERS, key("later", "n1"))
        await until(lambda: world.objects("clusters").get("n1") == ["later", "n1"])
        assert ("n3" in world.objects("clusters")) == (where.get("namespaces") is None)
        metric = "kube_sync_resource_known"
        assert REGISTRY.get_sample_value(metric, {"resource": "clusters"}) == 1


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    "where", [{}, {"namespaces": ("n1", "n2")}, {"ignore_namespaces": ("n2",)}]
)
async def test_kind_that_comes_back_without_namespaces_is_replicated_whole(
    world: World, where: Any, *, at_once: bool
) -> None:
    world.api.define(CLUSTERS, "ClusterProfile", builtin=False)
    for space in ("n1", "n2"):
        world.api.put(CLUSTERS, key("old", space))
    async with world.replicating(of(CLUSTERS, as_="clusters", **where)):
        await until(lambda: world.held("clusters") is not None)
        await recreated(world, namespaced=False, at_once=at_once)
        await until(lambda: set(world.opa.data["kubernetes"]["clusters"]) == {"n1", "n2", "new"})
        found = world.opa.data["kubernetes"]["clusters"]
        assert {body["metadata"]["name"] for body in found.values()} == {"n1", "n2", "new"}
        await until(lambda: not world.hub.held and not world.readiness.reasons)
        assert world.epochs == 1
        assert all("n1" not in condition for condition in world.readiness.conditions)


async def test_objects_of_another_scope_are_no_small_collection_but_an_unknown_one(
    world: World,
) -> None:
    """Discovery is behind for a while; to decide on what fits would move everything away."""
    world.api.define(CLUSTERS, "ClusterProfile", builtin=False, namespaced=False)
    world.api.put(CLUSTERS, key("old", ""))
    async with world.replicating(of(CLUSTERS, as_="clusters", namespaces=("n1",))):
        await until(lambda: world.held("clusters") is not None)
        resources = [{"name": CLUSTERS.resource, "kind": "ClusterProfile", "namespaced": False}]
        late = answer(200, json.dumps({"kind": "APIResourceList", "resources": resources}).encode())
        group = f"/apis/{CLUSTERS.group}/{CLUSTERS.version}"
        fault = world.api.http.fault(lambda r: r.path == group, late, times=1000)
        await recreated(world, namespaced=True, at_once=True)
        asked = fault.times
        await until(lambda: fault.times < asked - 3)
        await until(lambda: world.objects("clusters") == {})
        assert len(world.hub.held) == 1
        assert "clusters" in world.hub.held[0]
        fault.times = 0
        await until(lambda: world.objects("clusters") == {"n1": ["n1", "new"]})
        await until(lambda: not world.hub.held)


async def test_kind_that_comes_back_as_it_was_is_listed_again_by_the_same_parts(
    world: World,
) -> None:
    world.api.define(CLUSTERS, "ClusterProfile", builtin=False)
    async with world.replicating(of(CLUSTERS, as_="clusters", namespaces=("n1",))):
        await until(lambda: world.held("clusters") is not None)
        await recreated(world, namespaced=True, at_once=False)
        await until(lambda: world.objects("clusters") == {"n1": ["n1", "new"]})
        await until(lambda: not world.hub.held and not world.readiness.reasons)


async def test_scope_that_is_another_one_in_the_first_list_already_is_noticed(
    world: World,
) -> None:
    world.api.define(CLUSTERS, "ClusterProfile", builtin=False, namespaced=False)
    world.api.put(CLUSTERS, key("old", ""))
    gate = asyncio.Event()
    world.api.http.fault(lists(CLUSTERS), held(gate))
    async with world.replicating(of(CLUSTERS, as_="clusters", namespaces=("n1", "n2"))):
        await until(lambda: any(map(lists(CLUSTERS), world.api.http.requests)))
        world.api.http.fault(lists(CLUSTERS), answer(503), times=3)
        world.api.http.cut()
        world.api.undefine(CLUSTERS)
        world.api.define(CLUSTERS, "ClusterProfile", builtin=False, namespaced=True)
        for space in ("n1", "n2", "n3"):
            world.api.put(CLUSTERS, key("new", space))
        await until(lambda: world.objects("clusters") == {"n1": ["new"], "n2": ["new"]})
        await until(lambda: not world.hub.held and not world.readiness.reasons)
