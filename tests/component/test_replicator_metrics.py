"""What the /metrics page of a running replicator says, between two fake servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kube_sync.config import Placement, Policies, Replicate, Resource, Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.observability.readiness import Readiness
from kube_sync.observability.server import observability_app
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.replicator.replicator import Replicator
from kube_sync.runtime.httpserver import serving
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CONFIGMAPS, REPLICASETS, key, kube_of, opa_of
from tests.fakes.compiler import FakeCompiler
from tests.fakes.http import held
from tests.fakes.opa import FakeOpa, fake_opa, patched
from tests.unit.async_tools import until

NAME = "measured"  # a resource of no other test: the counters are the process's own
Samples = dict[str, float]
Read = Callable[[], Awaitable[Samples]]


class World:
    def __init__(self, api: FakeApiServer, opa: FakeOpa, read: Read) -> None:
        self.api = api
        self.opa = opa
        self.read = read

    async def grown(self, name: str, before: Samples) -> float:
        """Return how much a sample is more than it was."""
        return (await self.read()).get(name, 0.0) - before.get(name, 0.0)

    async def until_held(self, *names: str) -> None:
        def there() -> set[str]:
            found = self.opa.data.get("kubernetes", {}).get(NAME, {}).get("default", {})
            return set(found) if self._loaded else set()

        await until(lambda: there() == set(names))

    @property
    def _loaded(self) -> bool:
        return "loaded" in self.opa.data.get("kube_sync", {}).get("epoch", {}).values()


@pytest.fixture
async def read() -> AsyncGenerator[Read]:
    """Read the page of this process as Prometheus does: value by name and sorted labels."""
    async with (
        serving(observability_app(Readiness()), ("127.0.0.1", 0), grace=0.05) as port,
        aiohttp.ClientSession() as session,
    ):

        async def samples() -> Samples:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                text = await response.text()
            found: Samples = {}
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    labels = [f"{n}={v}" for n, v in sorted(sample.labels.items())]
                    found[" ".join([sample.name, *labels])] = sample.value
            return found

        yield samples


@pytest.fixture
async def world(read: Read, tmp_path: Path) -> AsyncGenerator[World]:
    """A replicator that has loaded two objects."""
    settings = Settings(
        replicate=Replicate(resources=(Resource("apps", "v1", "replicasets", NAME),)),
        policies=Policies(namespaces=("policies",)),
        placement=Placement(resources=()),
    )
    async with fake_apiserver() as api, fake_opa() as fake:
        api.define(REPLICASETS, "ReplicaSet")
        api.define(CONFIGMAPS, "ConfigMap")
        for name in "ab":
            api.put(REPLICASETS, key(name))
        async with kube_of(api, tmp_path) as kube, opa_of(fake) as opa:
            replicator = Replicator(
                settings,
                kube,
                opa,
                DecisionHub("test"),
                Readiness(),
                FakeCompiler(),
                shelf=BundleServer(),
            )
            task = asyncio.create_task(replicator.run())
            world = World(api, fake, read)
            await world.until_held("a", "b")
            await api.watched(REPLICASETS, CONFIGMAPS)
            yield world
            task.cancel()
            await asyncio.wait([task])


async def test_lag_is_observed_once_for_each_object_that_a_watch_brought(world: World) -> None:
    before = await world.read()
    lag = f"kube_sync_replication_lag_seconds_count resource={NAME}"
    world.api.put(REPLICASETS, key("c"))
    await world.until_held("a", "b", "c")
    world.api.delete(REPLICASETS, key("a"))
    await world.until_held("b", "c")
    assert await world.grown(lag, before) == 2
    seconds = await world.grown(f"kube_sync_replication_lag_seconds_sum resource={NAME}", before)
    assert 0 < seconds < 5


async def test_lag_lasts_until_opa_answers(world: World) -> None:
    before = await world.read()
    gate = asyncio.Event()
    fault = world.opa.http.fault(patched, held(gate))
    world.api.put(REPLICASETS, key("c"))
    await fault.met.wait()
    assert await world.grown(f"kube_sync_pending_changes resource={NAME}", before) == 1
    assert 0 < (await world.read())[f"kube_sync_pending_seconds resource={NAME}"] < 5
    assert (
        await world.grown(f"kube_sync_replication_lag_seconds_count resource={NAME}", before) == 0
    )
    gate.set()
    await world.until_held("a", "b", "c")
    assert await world.grown(f"kube_sync_pending_changes resource={NAME}", before) == 0
    assert (await world.read())[f"kube_sync_pending_seconds resource={NAME}"] == 0


async def test_events_objects_and_bytes_are_counted_by_resource(world: World) -> None:
    before = await world.read()
    world.api.put(REPLICASETS, key("c"), spec={"padding": "x" * 1000})
    await world.until_held("a", "b", "c")
    event = f"kube_sync_reflector_events_total resource={REPLICASETS} type=ADDED"
    assert await world.grown(event, before) == 1
    received = await world.grown(f"kube_sync_reflector_bytes_total resource={REPLICASETS}", before)
    written = await world.grown(f"kube_sync_replicated_bytes_total resource={NAME}", before)
    assert 1000 < written <= received < 2000
    assert (await world.read())[f"kube_sync_replicated_objects resource={NAME}"] == 3
    assert (await world.read())[f"kube_sync_replicated_bytes_total resource={NAME}"] > written


async def test_writes_batches_and_policy_outcomes_are_counted(world: World) -> None:
    before = await world.read()
    for name, source in (("good", "package good"), ("bad", "does not compile")):
        world.api.put(CONFIGMAPS, key(name, "policies"), data={"a.rego": source})
    await until(lambda: "policies/good/a.rego" in world.opa.policies)
    world.api.put(REPLICASETS, key("c"))
    await world.until_held("a", "b", "c")
    await until(
        lambda: "annotations" in world.api.get(CONFIGMAPS, key("bad", "policies"))["metadata"]
    )
    assert await world.grown("kube_sync_policy_loads_total outcome=loaded", before) >= 1
    assert await world.grown("kube_sync_policy_loads_total outcome=rejected", before) >= 1
    assert (await world.read())["kube_sync_policies_rejected"] == 1
    world.api.delete(CONFIGMAPS, key("bad", "policies"))
    world.api.put(CONFIGMAPS, key("good", "policies"), data={"b.rego": "package better"})
    await until(lambda: "policies/good/b.rego" in world.opa.policies)
    assert (await world.read())["kube_sync_policies_rejected"] == 0
    assert await world.grown("kube_sync_opa_write_seconds_count operation=patch", before) >= 1
    assert await world.grown("kube_sync_opa_batch_operations_count", before) >= 1


async def test_restart_of_opa_is_counted_and_what_it_cost(world: World) -> None:
    before = await world.read()
    world.opa.restart()
    await world.until_held("a", "b")
    assert await world.grown("kube_sync_opa_restarts_total", before) == 1
    assert await world.grown("kube_sync_opa_loads_total reason=lost", before) == 1


async def test_relists_are_counted_by_reason(world: World) -> None:
    before = await world.read()
    world.api.compact()
    world.api.http.cut()
    world.api.put(REPLICASETS, key("c"))
    world.api.compact()
    await world.until_held("a", "b", "c")
    lists = f"kube_sync_reflector_lists_total reason=expired resource={REPLICASETS}"
    assert await world.grown(lists, before) == 1
