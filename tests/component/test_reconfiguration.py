"""The configuration changes under a running replicator, between two fake servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from kube_sync.config import Placement, Policies, Replicate, Resource, Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.objects import GroupVersionResource
from kube_sync.observability.readiness import Readiness
from kube_sync.replicator.replicator import Replicator
from kube_sync.replicator.writer import Writer
from kube_sync.runtime.backoff import Backoff
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, lists, watches
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, key
from tests.fakes.compiler import FakeCompiler
from tests.fakes.http import Handler, Proceed, answer, held, lose_answer
from tests.fakes.opa import FakeOpa, fake_opa, heartbeat, patched, puts
from tests.fakes.replicating import replicator_between
from tests.unit.async_tools import until

_PATIENCE = 30.0  # seconds
HOLDINGS = "/v1/data/kube_sync/collections"


def of(gvr: GroupVersionResource, name: str | None = None, **selection: Any) -> Resource:
    return Resource(gvr.group, gvr.version, gvr.resource, name, **selection)


RS = of(REPLICASETS)
CM = of(CONFIGMAPS)
CL = of(CLUSTERS, "clusters")


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let waits and heartbeats take a twentieth of their time; nothing else is changed."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 20)

    for made, name, value in ((Backoff, "sleep", sleep), (Writer, "heartbeat", 0.05)):
        defaults = made.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, name, value)


def configured(*resources: Resource, targets: tuple[str, ...] = (), **replicate: Any) -> Settings:
    return Settings(
        replicate=Replicate(resources=resources, **replicate),
        policies=Policies(namespaces=(), static=True),
        placement=Placement(resources=targets),
    )


class World:
    """What the replicator reads from and what it writes to."""

    def __init__(self, api: FakeApiServer, opa: FakeOpa, folder: Path) -> None:
        self.api = api
        self.opa = opa
        self.folder = folder
        self.hub = DecisionHub("test")
        self.readiness = Readiness()
        self.compiler = FakeCompiler()
        self.replicator: Replicator

    def held(self) -> dict[str, Any]:
        """Return the names that OPA holds, by collection and namespace."""
        return {
            name: {space: sorted(inside) for space, inside in found.items()}
            for name, found in self.opa.data.get("kubernetes", {}).items()
        }

    @property
    def settled(self) -> bool:
        state = list(self.opa.data.get("kube_sync", {}).get("epoch", {}).values())
        return state == ["loaded"] and not self.hub.held and not self.readiness.reasons

    async def until_held(self, *names: str) -> None:
        await until(lambda: set(self.held()) == set(names) and self.settled)
        assert set(self.opa.data["kube_sync"]["collections"]["kubernetes"]) == set(names)

    @property
    def epochs(self) -> int:
        return sum(map(puts("/v1/data/kube_sync/epoch"), self.opa.http.requests))

    def count(self, matches: Any, gvr: GroupVersionResource) -> int:
        return sum(map(matches(gvr), self.api.http.requests))

    def loads(self, name: str) -> int:
        return sum(map(puts(f"/v1/data/kubernetes/{name}"), self.opa.http.requests))

    def decision(self, name: str) -> Any:
        """Return what the hub says of an object's annotations, None for nothing."""
        for target, record in self.hub.records.items():
            if target.name == name and record.decision is not None:
                return dict(record.decision.annotations)
        return None

    @asynccontextmanager
    async def replicating(self, settings: Settings) -> AsyncGenerator[None]:
        async with replicator_between(
            self.api,
            self.opa,
            self.folder,
            settings,
            hub=self.hub,
            readiness=self.readiness,
            compiler=self.compiler,
            patience=_PATIENCE,
        ) as self.replicator:
            yield


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api, fake_opa() as opa:
        api.define(REPLICASETS, "ReplicaSet")
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(CLUSTERS, "ClusterProfile", builtin=False)
        opa.decide = lambda _object, data: {
            "annotations": {"known": sorted(data["kubernetes"])},
        }
        for space in ("n1", "n2"):
            api.put(REPLICASETS, key("a", space), metadata={"labels": {"team": "x"}})
            api.put(REPLICASETS, key("b", space))
            api.put(CONFIGMAPS, key("c", space))
        api.put(CLUSTERS, key("east", "fleet"))
        yield World(api, opa, tmp_path)


def stubborn(gate: asyncio.Event) -> Handler:
    """Do what was asked when `gate` is set, even if nobody waits for it any more."""

    async def handle(_request: web.Request, proceed: Proceed) -> web.StreamResponse:
        async def later() -> web.StreamResponse:
            await gate.wait()
            return await proceed()

        return await asyncio.shield(asyncio.create_task(later()))

    return handle


def sample(metric: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(metric, labels)


async def test_resource_that_is_withdrawn_makes_nothing_stale_any_more(world: World) -> None:
    async with world.replicating(configured(RS, CM)):
        await world.until_held("replicasets", "configmaps")
        await world.api.watched(REPLICASETS, CONFIGMAPS)
        world.api.http.fault(watches(CONFIGMAPS), answer(503), times=1000)
        world.api.http.cut()
        await until(lambda: [late.source for late in world.hub.freshness.sources] == ["configmaps"])
        world.replicator.configure(configured(RS))
        await until(lambda: not world.hub.freshness.sources)
        await world.until_held("replicasets")


async def test_resource_that_is_added_is_loaded_and_followed_beside_the_others(
    world: World,
) -> None:
    async with world.replicating(configured(RS)):
        await world.until_held("replicasets")
        await world.api.watched(REPLICASETS)
        world.replicator.configure(configured(RS, CM))
        await world.until_held("replicasets", "configmaps")
        world.api.put(CONFIGMAPS, key("new", "n1"))
        world.api.put(REPLICASETS, key("new", "n1"))
        await until(lambda: world.held()["configmaps"]["n1"] == ["c", "new"])
        await until(lambda: world.held()["replicasets"]["n1"] == ["a", "b", "new"])
        assert world.count(lists, REPLICASETS) == world.count(watches, REPLICASETS) == 1
        assert (world.loads("replicasets"), world.epochs) == (1, 1)


async def test_resource_that_went_is_withdrawn_and_no_longer_asked_for(world: World) -> None:
    async with world.replicating(configured(RS, CM)):
        await world.until_held("replicasets", "configmaps")
        await world.api.watched(REPLICASETS, CONFIGMAPS)
        # It is told once OPA's answer has come, and may be that of an earlier test until then.
        await until(lambda: sample("kube_sync_replicated_objects", resource="configmaps") == 2)
        world.replicator.configure(configured(RS))
        await world.until_held("replicasets")
        await until(lambda: not world.api.watchers(CONFIGMAPS))
        await until(lambda: sample("kube_sync_replicated_objects", resource="configmaps") is None)
        assert sample("kube_sync_resource_known", resource="configmaps") is None
        assert str(CONFIGMAPS) not in world.readiness.conditions
        assert world.count(lists, REPLICASETS) == world.count(watches, REPLICASETS) == 1
        assert (world.loads("replicasets"), world.epochs) == (1, 1)


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        (of(REPLICASETS, label_selector="team=x"), {"n1": ["a"], "n2": ["a"]}),
        (of(REPLICASETS, field_selector="metadata.name=b"), {"n1": ["b"], "n2": ["b"]}),
        (of(REPLICASETS, namespaces=("n2",)), {"n2": ["a", "b"]}),
        (of(REPLICASETS, ignore_namespaces=("n2",)), {"n1": ["a", "b"]}),
        (of(CONFIGMAPS, "replicasets", namespaces=("n1", "n2")), {"n1": ["c"], "n2": ["c"]}),
    ],
)
async def test_changed_resource_is_exchanged_without_a_moment_of_being_empty(
    world: World, changed: Resource, wanted: Any
) -> None:
    before = {"n1": ["a", "b"], "n2": ["a", "b"]}
    async with world.replicating(configured(RS, CL)):
        await world.until_held("replicasets", "clusters")
        world.replicator.configure(configured(changed, CL))
        seen = []

        def exchanged() -> bool:
            seen.append(world.held()["replicasets"])
            return bool(seen[-1] == wanted)

        await until(exchanged)
        assert all(found in (before, wanted) for found in seen)
        await until(lambda: world.settled)
        world.api.put(REPLICASETS, key("a", "n1"), metadata={"labels": {"team": "y"}})
        assert world.count(lists, CLUSTERS) == world.loads("clusters") == world.epochs == 1


async def test_changed_fields_are_those_of_every_object(world: World) -> None:
    async with world.replicating(configured(RS)):
        await world.until_held("replicasets")
        world.replicator.configure(configured(of(REPLICASETS, fields=("spec",))))

        def labels() -> Any:
            found = world.opa.data["kubernetes"]["replicasets"]["n1"]["a"]
            return found["metadata"].get("labels")

        assert labels()
        await until(lambda: not labels())


async def test_namespaces_of_all_resources_change_those_that_say_nothing(world: World) -> None:
    own = of(CONFIGMAPS, namespaces=("n1",))
    async with world.replicating(configured(RS, own)):
        await world.until_held("replicasets", "configmaps")
        world.replicator.configure(configured(RS, own, namespaces=("n2",)))
        await until(lambda: world.held()["replicasets"] == {"n2": ["a", "b"]})
        assert world.held()["configmaps"] == {"n1": ["c"]}
        assert world.loads("configmaps") == 1


async def test_resource_is_held_for_until_it_is_in_and_decided_on(world: World) -> None:
    async with world.replicating(configured(RS, targets=("replicasets",))):
        await until(lambda: world.decision("a") == {"known": '["replicasets"]'})
        await until(lambda: world.settled)
        fault = asyncio.Event()
        world.api.http.fault(lists(CLUSTERS), held(fault))
        world.replicator.configure(configured(RS, CL, targets=("replicasets",)))
        await until(lambda: world.hub.held == ("clusters: is being loaded",))
        assert world.readiness.reasons == {"data": "clusters: is being loaded"}
        world.api.put(REPLICASETS, key("meanwhile", "n1"))
        await until(lambda: world.decision("meanwhile") is not None)
        assert world.hub.held == ("clusters: is being loaded",)
        fault.set()
        await until(lambda: world.settled)
        for name in ("a", "b", "meanwhile"):
            assert world.decision(name) == {"known": '["clusters","replicasets"]'}


async def test_unknown_resource_that_is_added_holds_and_comes_in_with_its_crd(
    world: World,
) -> None:
    world.api.undefine(CLUSTERS)
    async with world.replicating(configured(RS)):
        await world.until_held("replicasets")
        world.replicator.configure(configured(RS, CL))
        await until(lambda: any("does not know" in reason for reason in world.hub.held))
        assert sample("kube_sync_resource_known", resource="clusters") == 0
        assert sample("kube_sync_resource_known", resource="replicasets") == 1
        assert "CRD" in world.readiness.reasons[str(CLUSTERS)]
        world.api.define(CLUSTERS, "ClusterProfile", builtin=False)
        world.api.put(CLUSTERS, key("west", "fleet"))
        await until(lambda: world.settled)
        assert world.held()["clusters"] == {"fleet": ["west"]}
        assert sample("kube_sync_resource_known", resource="clusters") == 1


async def test_unknown_resource_that_is_withdrawn_leaves_no_hold_and_no_reason(
    world: World,
) -> None:
    world.api.undefine(CLUSTERS)
    async with world.replicating(configured(RS, CL)):
        await until(lambda: "CRD" in world.readiness.reasons.get(str(CLUSTERS), ""))
        await until(lambda: len(world.hub.held) == 1)
        world.replicator.configure(configured(RS))
        await world.until_held("replicasets")


async def test_target_that_went_is_not_decided_on_any_more(world: World) -> None:
    both = configured(RS, CM, targets=("replicasets", "configmaps"))
    async with world.replicating(both):
        await until(lambda: world.decision("c") and world.decision("a") and world.settled)
        world.replicator.configure(configured(RS, targets=("replicasets",)))
        await world.until_held("replicasets")
        assert world.decision("c") is None
        await until(lambda: world.decision("a") == {"known": '["replicasets"]'})


async def test_target_that_came_is_decided_on(world: World) -> None:
    async with world.replicating(configured(RS, CM, targets=("replicasets",))):
        await until(lambda: world.decision("a") and world.settled)
        assert world.decision("c") is None
        world.replicator.configure(configured(RS, CM, targets=("replicasets", "configmaps")))
        await until(lambda: world.decision("c"))
        world.replicator.configure(configured(RS, CM, targets=("configmaps",)))
        await until(lambda: world.decision("a") is None)
        assert world.decision("c")
        assert world.count(lists, CONFIGMAPS) == world.count(lists, REPLICASETS) == 1


async def test_target_that_is_called_otherwise_keeps_its_decisions(world: World) -> None:
    async with world.replicating(configured(RS, targets=("replicasets",))):
        await until(lambda: world.decision("a") and world.settled)
        with world.hub.subscribe() as reader:
            await reader.read(100, 1.0)
            world.replicator.configure(configured(of(REPLICASETS, "rs"), targets=("rs",)))
            await world.until_held("rs")
            told = {type(record).__name__ for record in await reader.read(100, 1.0)}
        assert "DeletedRecord" not in told
        assert world.decision("a") == {"known": '["rs"]'}


async def test_objects_that_a_changed_target_leaves_out_lose_their_decisions(
    world: World,
) -> None:
    async with world.replicating(configured(RS, targets=("replicasets",))):
        await until(lambda: world.decision("b") and world.settled)
        some = of(REPLICASETS, label_selector="team=x")
        world.replicator.configure(configured(some, targets=("replicasets",)))
        await until(lambda: world.decision("b") is None)
        await until(lambda: world.settled)
        assert world.decision("a")


@pytest.mark.parametrize("lost", [answer(503), lose_answer()])
async def test_withdrawal_whose_writes_fail_is_made_again_in_the_same_epoch(
    world: World, lost: Any
) -> None:
    async with world.replicating(configured(RS, CM)):
        await world.until_held("replicasets", "configmaps")
        removing = lambda r: patched(r) and b"/kubernetes/configmaps" in r.body  # noqa: E731
        fault = world.opa.http.fault(removing, lost)
        world.replicator.configure(configured(RS))
        await world.until_held("replicasets")
        assert (fault.times, world.epochs) == (0, 1)


async def test_load_of_an_added_resource_that_opa_refuses_is_begun_again_alone(
    world: World,
) -> None:
    async with world.replicating(configured(RS)):
        await world.until_held("replicasets")
        world.opa.http.fault(puts("/v1/data/kubernetes/configmaps"), answer(503), times=2)
        world.replicator.configure(configured(RS, CM))
        await until(lambda: "503" in world.readiness.reasons.get("data", ""))
        assert world.hub.held
        await world.until_held("replicasets", "configmaps")
        assert world.count(lists, REPLICASETS) == world.epochs == 1


async def test_opa_lost_in_the_middle_of_a_change_is_loaded_as_configured_now(
    world: World,
) -> None:
    async with world.replicating(configured(RS, CM)):
        await world.until_held("replicasets", "configmaps")
        stuck = asyncio.Event()
        world.api.http.fault(lists(CLUSTERS), held(stuck))
        world.replicator.configure(configured(RS, CL))
        await until(lambda: "configmaps" not in world.held())
        world.opa.restart()
        await until(lambda: world.epochs == 2)
        stuck.set()
        await world.until_held("replicasets", "clusters")


async def test_change_during_the_first_load_begins_it_again(world: World) -> None:
    """The load may wait for the very resource that is taken out."""
    world.api.http.fault(lists(CONFIGMAPS), answer(403), times=100)
    async with world.replicating(configured(RS, CM)):
        await until(lambda: str(CONFIGMAPS) in world.readiness.reasons)
        await until(lambda: "replicasets" in world.held())  # all loads have begun
        world.replicator.configure(configured(RS))
        await world.until_held("replicasets")
        assert str(CONFIGMAPS) not in world.readiness.conditions


async def test_change_back_while_a_resource_is_loading_leaves_nothing_of_it(
    world: World,
) -> None:
    async with world.replicating(configured(RS)):
        await world.until_held("replicasets")
        stuck = asyncio.Event()
        sending = puts("/v1/data/kubernetes/configmaps")
        world.opa.http.fault(sending, stubborn(stuck))
        world.replicator.configure(configured(RS, CM))
        await world.opa.http.until_next(sending)
        world.replicator.configure(configured(RS))
        for _ in range(20):
            await asyncio.sleep(0)
        stuck.set()
        await world.until_held("replicasets")
        assert world.epochs == 1


async def test_several_changes_in_a_row_end_in_the_last(world: World) -> None:
    async with world.replicating(configured(RS)):
        await world.until_held("replicasets")
        for settings in (configured(CM), configured(RS, CM, CL), configured(CL), configured(RS)):
            world.replicator.configure(settings)
            await asyncio.sleep(0.01)
        await world.until_held("replicasets")
        await until(lambda: world.held()["replicasets"] == {"n1": ["a", "b"], "n2": ["a", "b"]})


async def test_what_an_earlier_configuration_left_is_removed_at_the_load(world: World) -> None:
    async with world.replicating(configured(RS, CM)):
        await world.until_held("replicasets", "configmaps")
    world.opa.data["kubernetes"]["of another"] = {"x": {}}
    world.opa.data["kube_sync"]["collections"]["other root"] = {"configmaps": True}
    async with world.replicating(configured(RS)):
        await until(lambda: "configmaps" not in world.held() and world.settled)
        assert world.opa.data["kubernetes"]["of another"] == {"x": {}}
        assert world.opa.data["kube_sync"]["collections"] == {
            "kubernetes": {"replicasets": True},
            "other root": {"configmaps": True},
        }
    read = [r.path for r in world.opa.http.requests if r.method == "GET" and "/data" in r.path]
    ours = "/v1/data/kube_sync"
    assert set(read) == {f"{HOLDINGS}/kubernetes", f"{ours}/modules", f"{ours}/datamaps"}


async def test_leftovers_are_removed_before_the_load_counts_as_done(world: World) -> None:
    world.opa.data = {
        "kubernetes": {"old": {"n": {}}},
        "kube_sync": {"collections": {"kubernetes": {"old": True}}},
    }
    async with world.replicating(configured(RS)):
        await world.opa.http.until_next(patched)
        await until(lambda: world.settled)
        assert set(world.held()) == {"replicasets"}
    states = [r.body for r in world.opa.http.requests if patched(r) and b"kubernetes/old" in r.body]
    assert states
    assert all(b'"loading"' in body for body in states)


async def test_no_resources_at_all_is_a_configuration_too(world: World) -> None:
    async with world.replicating(configured(RS)):
        await world.until_held("replicasets")
        world.replicator.configure(configured())
        await world.until_held()
        world.replicator.configure(configured(CM))
        await world.until_held("configmaps")


async def test_policies_are_inspected_for_the_resources_of_now(world: World) -> None:
    """A policy below a collection would hide it."""
    policies = Policies(namespaces=("policies",))
    before, after = (
        msgspec.structs.replace(settings, policies=policies)
        for settings in (configured(RS), configured(RS, CM))
    )

    def in_force() -> bool:
        return "policies/p/a.rego" in world.opa.policies

    source = "package kubernetes.configmaps"
    world.api.put(CONFIGMAPS, key("p", "policies"), data={"a.rego": source})
    async with world.replicating(before):
        await until(in_force)
        world.replicator.configure(after)
        await until(lambda: not in_force())
        await until(lambda: "configmaps" in world.held() and world.settled)


async def test_resource_that_opa_refuses_says_nothing_more_once_it_is_to_go(
    world: World,
) -> None:
    """It tries again and again, while another one that goes too is waited for."""
    async with world.replicating(configured(RS)):
        await world.until_held("replicasets")
        world.opa.http.fault(puts("/v1/data/kubernetes/configmaps"), answer(503), times=1000)
        world.replicator.configure(configured(RS, CM))
        await until(lambda: "503" in world.readiness.reasons.get("data", ""))
        gate = asyncio.Event()
        beat = world.opa.http.fault(heartbeat, held(gate))
        await beat.met.wait()
        world.replicator.configure(configured())
        tried = world.loads("configmaps")
        await asyncio.sleep(0.1)  # twenty of its waits
        assert world.loads("configmaps") - tried <= 1
        world.opa.http.faults[0].times = 0
        gate.set()
        await world.until_held()
