"""The topology as data of OPA, between two fake servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.config import (
    Placement,
    Policies,
    PolicyTopology,
    Replicate,
    Resource,
    Settings,
)
from kube_sync.decisions.hub import DecisionHub
from kube_sync.errors import Broken
from kube_sync.inspect.plan import topology as planned
from kube_sync.inspect.plan.snapshot import document
from kube_sync.inspect.survey.exported import read_objects
from kube_sync.kube.definitions import DEFINITIONS
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.analysis.result import Collection
from kube_sync.replicator.replicator import Replicator
from kube_sync.replicator.writer import Writer
from kube_sync.runtime.backoff import Backoff
from kube_sync.topology.nodes import Locator
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, lists, watches
from tests.fakes.clients import CONFIGMAPS, key, kube_of
from tests.fakes.http import answer
from tests.fakes.opa import FakeOpa, fake_opa, patched
from tests.fakes.replicating import replicator_between
from tests.fakes.topologies import (
    CLASS,
    GATEWAY,
    GROUP,
    NS,
    Object,
    color,
    defaults,
    gateway,
    gateway_class,
    listener,
    route,
    rules,
    target,
)
from tests.unit.async_tools import until

COLORS = GroupVersionResource("examples.kube-sync.io", "v1alpha1", "colorpolicies")
CLASSES = GroupVersionResource(GROUP, "v1", "gatewayclasses")
GATEWAYS = GroupVersionResource(GROUP, "v1", "gateways")
ROUTES = GroupVersionResource(GROUP, "v1", "httproutes")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
SERVICES = GroupVersionResource("", "v1", "services")
COLOR = "ColorPolicy.examples.kube-sync.io"
ROUTE = Locator(f"httproute.{GROUP}:{NS}/route")
RULE = f"{ROUTE}#rule-1"
_CRD = Path(__file__).parents[2] / "manifests/examples/colorpolicy/colorpolicies.yaml"
_ROOT = "/kubernetes/topology/"
_CONDITIONS = {"conditions": [{"type": "Established", "status": "True"}]}


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let waits and heartbeats take a twentieth of their time; nothing else is changed."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 20)

    for made, name, value in ((Backoff, "sleep", sleep), (Writer, "heartbeat", 0.05)):
        defaults_ = made.__init__.__kwdefaults__
        assert defaults_ is not None
        monkeypatch.setitem(defaults_, name, value)


class World:
    """What the replicator reads from and what it writes to."""

    def __init__(self, api: FakeApiServer, opa: FakeOpa, folder: Path) -> None:
        self.api, self.opa, self.folder = api, opa, folder
        self.hub = DecisionHub("test")
        self.readiness = Readiness()
        api.define(DEFINITIONS, "CustomResourceDefinition", builtin=False, namespaced=False)
        api.define(NAMESPACES, "Namespace", namespaced=False)
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(SERVICES, "Service")
        self.install(CLASSES, "GatewayClass", namespaced=False)
        self.install(GATEWAYS, "Gateway")
        self.install(ROUTES, "HTTPRoute")
        crd = yaml.safe_load(_CRD.read_text(encoding="utf-8"))
        api.define(COLORS, "ColorPolicy", builtin=False)
        self.define(crd["metadata"], crd["spec"])

    def install(self, gvr: GroupVersionResource, kind: str, *, namespaced: bool = True) -> None:
        """Define a resource as a CustomResourceDefinition does."""
        self.api.define(gvr, kind, builtin=False, namespaced=namespaced)
        spec = {
            "group": gvr.group,
            "names": {"kind": kind, "plural": gvr.resource},
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [{"name": gvr.version, "served": True}],
        }
        self.define({"name": f"{gvr.resource}.{gvr.group}"}, spec)

    def define(self, metadata: Object, spec: Object) -> None:
        place = ObjectKey("", metadata["name"])
        self.api.put(DEFINITIONS, place, metadata=metadata, spec=spec, status=_CONDITIONS)

    def put(self, *objects: Object) -> None:
        """Write objects as tests of topologies say them."""
        of = {"GatewayClass": CLASSES, "Gateway": GATEWAYS, "HTTPRoute": ROUTES}
        for one in objects:
            metadata = one["metadata"]
            where = ObjectKey(metadata.get("namespace", ""), metadata["name"])
            gvr = of.get(one["kind"], COLORS)
            self.api.put(gvr, where, metadata=metadata, spec=one["spec"])

    @property
    def loaded(self) -> bool:
        return "loaded" in self.opa.data.get("kube_sync", {}).get("epoch", {}).values()

    @property
    def topology(self) -> Any:
        """Return what OPA holds; None before the load."""
        return self.opa.data["kubernetes"].get("topology") if self.loaded else None

    def patches(self) -> list[list[Object]]:
        """Return the operations on the topology of every PATCH."""
        found = [r.json() for r in self.opa.http.requests if patched(r)]
        ours = [[o for o in one if o["path"].startswith(_ROOT)] for one in found]
        return [one for one in ours if one]

    def applied(self, rule: str = RULE) -> list[Any]:
        """Return the merged colours of each path to a rule."""
        held = self.topology or {}
        found = held.get("targetables", {}).get(rule, {}).get(COLOR, [])
        return [
            held["merged"][a["merged"]]["spec"]["rules"] if a["merged"] else None for a in found
        ]

    @asynccontextmanager
    async def replicating(self, settings: Settings) -> AsyncGenerator[Replicator]:
        async with replicator_between(
            self.api, self.opa, self.folder, settings, hub=self.hub, readiness=self.readiness
        ) as replicator:
            yield replicator


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api, fake_opa() as opa:
        found = World(api, opa, tmp_path)
        found.put(
            gateway_class(), gateway(), route(), color("gw", target(), rules=rules(sky="blue"))
        )
        yield found


def configured(*resources: Resource, topology: bool = True) -> Settings:
    return Settings(
        replicate=Replicate(resources=resources, topology=topology),
        policies=Policies(namespaces=(), static=True),
        placement=Placement(resources=()),
    )


async def test_the_topology_is_loaded_beside_what_is_replicated(world: World) -> None:
    world.api.put(CONFIGMAPS, key("app"))
    async with world.replicating(configured(Resource("", "v1", "configmaps"))):
        await until(lambda: world.applied() == [{"sky": {"color": "blue"}}])
        assert world.topology["nodes"][GATEWAY]["parents"] == [CLASS]
        assert list(world.opa.data["kubernetes"]) == ["configmaps", "topology"]
        await until(lambda: not world.readiness.reasons)
        assert world.readiness.conditions["topology"] == "ok"


async def test_one_change_is_one_small_patch(world: World) -> None:
    world.put(*(route(f"route-{number}") for number in range(50)))
    async with world.replicating(configured()):
        await until(lambda: world.applied() == [{"sky": {"color": "blue"}}])
        before = len(world.patches())
        world.put(color("gw", target(), rules=rules(sky="red")))
        await until(lambda: world.applied() == [{"sky": {"color": "red"}}])
        (written,) = world.patches()[before:]
        assert [o["path"].rpartition("/")[0] for o in written] == [f"{_ROOT}merged"]


async def test_no_policy_may_lie_where_it_does_and_decisions_may_read_it(world: World) -> None:
    async with world.replicating(configured()) as replicator:
        places = await replicator._collections()  # noqa: SLF001 - what policies are analysed with
        assert places["topology"] == Collection(("kubernetes", "topology"), namespaced=True)
        assert replicator._roots == [("kubernetes", "topology")]  # noqa: SLF001 - what policies are guarded from
        replicator.configure(configured(topology=False))
        assert replicator._roots == []  # noqa: SLF001 - what policies are guarded from
        assert "topology" not in await replicator._collections()  # noqa: SLF001 - what policies are analysed with


async def test_what_changes_only_a_status_is_not_written(world: World) -> None:
    async with world.replicating(configured()):
        await until(lambda: bool(world.applied()))
        before = len(world.patches())
        gw = gateway()
        world.api.put(GATEWAYS, key("my-gateway", NS), spec=gw["spec"], status={"addresses": []})
        world.put(route("late"))
        await until(lambda: bool(world.applied(f"httproute.{GROUP}:{NS}/late#rule-1")))
        written = {o["path"] for one in world.patches()[before:] for o in one}
        assert written
        assert f"{_ROOT}nodes/{GATEWAY.replace('/', '~1')}" not in written


async def test_what_goes_leaves_nothing(world: World) -> None:
    async with world.replicating(configured()):
        await until(lambda: bool(world.applied()))
        world.api.delete(ROUTES, key("route", NS))
        # By more than one PATCH, where OPA takes the first before the last is due.
        await until(lambda: not world.topology.keys() & {"targetables", "effective", "merged"})
        assert ROUTE not in world.topology["nodes"]


async def test_an_opa_that_was_restarted_gets_it_again(world: World) -> None:
    async with world.replicating(configured()):
        await until(lambda: bool(world.applied()))
        world.opa.data.clear()
        await until(lambda: world.applied() == [{"sky": {"color": "blue"}}])


async def test_an_opa_that_was_changed_by_hand_gets_it_again(world: World) -> None:
    async with world.replicating(configured()):
        await until(lambda: bool(world.applied()))
        del world.opa.data["kubernetes"]["topology"]["merged"]
        await until(lambda: world.topology is not None and "merged" in world.topology)


async def test_a_kind_that_may_not_be_listed_withholds_it_and_is_named(world: World) -> None:
    refused = world.api.http.fault(lists(ROUTES), answer(403, b""), times=10_000)
    async with world.replicating(configured()):
        await until(lambda: "HTTPRoute" in world.readiness.reasons.get("topology", ""))
        await until(lambda: "403" in world.readiness.reasons["topology"])
        assert not world.loaded
        refused.times = 0
        await until(lambda: world.applied() == [{"sky": {"color": "blue"}}])
        await until(lambda: not world.readiness.reasons)


async def test_kinds_that_are_not_there_are_empty(world: World) -> None:
    """Neither the other routes nor ReferenceGrants were ever installed."""
    async with world.replicating(configured()):
        await until(lambda: bool(world.applied()))
        assert "not there" in world.readiness.conditions[f"topology of TLSRoute.{GROUP}"]


async def test_a_kind_of_policies_that_comes_is_told_at_every_rule(world: World) -> None:
    kind = GroupVersionResource("shop.example", "v1", "pricepolicies")
    async with world.replicating(configured()):
        await until(lambda: bool(world.applied()))
        world.api.define(kind, "PricePolicy", builtin=False)
        metadata = {
            "name": "pricepolicies.shop.example",
            "labels": {"gateway.networking.k8s.io/policy": "Inherited"},
        }
        names = {"kind": "PricePolicy", "plural": "pricepolicies"}
        versions = [{"name": "v1", "served": True}]
        spec = {"group": "shop.example", "names": names, "scope": "Namespaced"}
        world.define(metadata, spec | {"versions": versions})
        await until(lambda: "PricePolicy.shop.example" in world.topology["targetables"][RULE])
        assert world.applied() == [{"sky": {"color": "blue"}}]


async def test_a_kind_that_cannot_be_followed_any_more_is_told_and_nothing_goes(
    world: World,
) -> None:
    async with world.replicating(configured()):
        await until(lambda: bool(world.applied()))
        refused = world.api.http.fault(watches(ROUTES), answer(403, b""), times=10_000)
        world.api.http.cut()
        await until(lambda: "403" in world.readiness.reasons.get("topology", ""))
        assert any(late.source == "topology" for late in world.hub.freshness.sources)
        assert world.applied() == [{"sky": {"color": "blue"}}]
        refused.times = 0
        await until(lambda: not world.readiness.reasons)
        assert not world.hub.freshness.sources


async def test_it_comes_and_goes_with_the_configuration(world: World) -> None:
    world.api.put(CONFIGMAPS, key("app"))
    also = Resource("", "v1", "configmaps")
    async with world.replicating(configured(also, topology=False)) as replicator:
        await until(lambda: world.loaded)
        assert world.topology is None
        replicator.configure(configured(also))
        await until(lambda: world.applied() == [{"sky": {"color": "blue"}}])
        replicator.configure(configured(also, topology=False))
        await until(lambda: world.topology is None)
        await until(lambda: not any("topology" in one for one in world.readiness.conditions))
        assert not world.hub.freshness.sources


async def test_what_replicate_says_of_namespaces_is_not_for_it(world: World) -> None:
    settings = configured()
    replicate = Replicate(resources=(), topology=True, namespaces=("elsewhere",), fields="auto")
    narrow = Settings(replicate=replicate, policies=settings.policies, placement=settings.placement)
    async with world.replicating(narrow):
        await until(lambda: world.applied() == [{"sky": {"color": "blue"}}])


async def test_many_changes_at_once_end_in_the_last_state(world: World) -> None:
    async with world.replicating(configured()):
        await until(lambda: bool(world.applied()))
        for number in range(200):
            world.put(route("route", hostnames=[f"h{number}.example.com"]))
            world.put(color("gw", target(), **defaults("merge", sky=str(number))))
        world.put(gateway("my-gateway", listener("a"), listener("b")))
        await until(lambda: world.applied() == [{"sky": {"color": "199"}}] * 2)
        names = {tuple(one["hostnames"]) for one in world.topology["effective"].values()}
        assert names == {("h199.example.com",)}
        assert f"{GATEWAY}#http" not in world.topology["nodes"]


async def test_a_plan_stands_on_the_topology_that_opa_holds_and_so_does_its_export(
    world: World,
) -> None:
    async with world.replicating(configured()):
        await until(lambda: world.applied() == [{"sky": {"color": "blue"}}])
        held = world.topology
    async with kube_of(world.api, world.folder) as client:
        found = await planned.of_cluster(client, PolicyTopology())
    exported = world.folder / "fleet.jsonl"
    exported.write_text("\n".join(planned.lines(found)))
    for records in (found, planned.of_export(read_objects(str(exported)))):
        whole = json.loads(document("kubernetes", {"topology": _bodies(records)}))
        assert whole["kubernetes"]["topology"] == held


async def test_no_plan_stands_on_half_a_topology(world: World) -> None:
    world.api.http.fault(lists(ROUTES), answer(403, b""), times=10_000)
    async with kube_of(world.api, world.folder) as client:
        with pytest.raises(Broken, match=r"topology: not known within .*HTTPRoute"):
            await planned.of_cluster(client, PolicyTopology(), seconds=2.0)


def _bodies(records: planned.Records) -> dict[ObjectKey, bytes]:
    return {where: item.body for where, item in records.items()}
