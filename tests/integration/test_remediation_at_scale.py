"""2,000 ReplicaSets on 20 clusters, and everything that may happen to a fleet.

After each: exactly the right ones were written, each at most once for a decision, and none was
emptied. What is expected is worked out here, and the API server's audit log is the witness.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bare import Bare, bare_client
from tests.faults.world import until
from tools.demo.components import GUARD_OFF, start_replicator, start_service
from tools.demo.fleet import (
    FLEET,
    POLICIES,
    POLICY,
    PREFERENCES,
    REGION,
    SHOP,
    cluster,
    namespace,
    policy_map,
    replica_set,
)
from tools.servers.running import Launcher, RunningServer
from tools.servers.stack import RunningStack, furnished_stack

pytestmark = pytest.mark.slow

_OBJECTS = int(os.environ.get("KUBE_SYNC_OBJECTS", "2000"))
_CLUSTERS = 20
_AT_ONCE = 32
_REPLICA_SETS = f"/apis/apps/v1/namespaces/{SHOP}/replicasets"
_PROFILES = f"/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{FLEET}/clusterprofiles"
_MAPS = f"/api/v1/namespaces/{POLICIES}/configmaps"
_IN, _OUT = "europe-west1", "us-east1"

Placement = tuple[str, ...] | None


@dataclass
class Fleet:
    """What is there, and so where each ReplicaSet has to be."""

    regions: dict[str, str] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    wishes: dict[str, tuple[bool, str | None]] = field(default_factory=dict)

    def expected(self) -> dict[str, Placement]:
        """Return each placement; None: no cluster fits, so nothing is written."""
        return {name: self._of(*wish) for name, wish in self.wishes.items()}

    def _of(self, eu: bool, pci: str | None) -> Placement:  # noqa: FBT001 - as a wish has it
        fitting = tuple(
            sorted(
                name
                for name, region in self.regions.items()
                if (not eu or region.startswith("europe-"))
                and (pci is None or self.levels[name] >= int(pci))
            )
        )
        return fitting or None


@dataclass
class World:
    """The servers, a replicator, remediators, and who wrote what."""

    stack: RunningStack
    bare: Bare
    folder: Path
    replicator: RunningServer
    fleet: Fleet = field(default_factory=Fleet)
    remediators: list[RunningServer] = field(default_factory=list)
    seen: int = 0  # bytes of the audit log
    writes: Counter[str] = field(default_factory=Counter)

    def remediate(self) -> RunningServer:
        """Start one more remediator."""
        number = len(self.remediators)
        server = start_service(
            "remediate",
            self.folder / f"remediator-{number}",
            {
                "kubernetes": {"kubeconfig": str(self.stack.kubeconfigs["remediator"])},
                "decisions": self.stack.endpoint.client(),
                "remediate": {
                    "guard": dict(GUARD_OFF),
                },
            },
        )
        self.remediators.append(server)
        return server

    async def register(self, name: str, region: str, level: int) -> None:
        await self.bare.kube("POST", _PROFILES, cluster(name, region, str(level)))
        self.fleet.regions[name], self.fleet.levels[name] = region, level

    async def leave(self, name: str) -> None:
        await self.bare.kube("DELETE", f"{_PROFILES}/{name}")
        del self.fleet.regions[name], self.fleet.levels[name]

    async def region(self, name: str, region: str) -> None:
        body = {"metadata": {"labels": {REGION: region}}}
        await self.bare.kube("PATCH", f"{_PROFILES}/{name}", body, "merge-patch+json")
        self.fleet.regions[name] = region

    async def create(self, index: int) -> str:
        eu, pci = index % 2 == 0, (None, "2", "3")[index % 3]
        name = f"app-{index:04}"
        manifest = replica_set(name, eu=eu, pci=pci)
        await self.bare.kube("POST", _REPLICA_SETS, manifest)
        self.fleet.wishes[name] = (eu, pci)
        return name

    async def placements(self) -> dict[str, Placement]:
        found = json.loads(await self.bare.kube("GET", _REPLICA_SETS))["items"]
        return {item["metadata"]["name"]: _placement(item) for item in found}

    async def settled(self) -> None:
        """Wait until every ReplicaSet that a cluster fits is where it should be."""

        async def right() -> bool:
            found, wanted = await self.placements(), self.fleet.expected()
            return all(found[name] == where for name, where in wanted.items() if where)

        await until("every ReplicaSet is where it should be", right)
        await self._quiet()

    async def _quiet(self) -> None:
        """Wait until nobody has written for a while; what is due too often would come now."""
        before = -1
        while sum(self.read_audit().values()) != before:
            before = sum(self.writes.values())
            await asyncio.sleep(1.0)

    def read_audit(self) -> Counter[str]:
        """Count the remediators' writes, by object, since `forget`."""
        log = self.stack.audit_log
        assert log is not None
        with log.open("rb") as lines:
            lines.seek(self.seen)
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self.seen += len(line)
                self._count(json.loads(line))
        return self.writes

    def _count(self, line: Any) -> None:
        about = line.get("objectRef", {})
        ours = line["user"]["username"].endswith("kube-sync-remediator")
        done = line.get("responseStatus", {}).get("code", 0) < 300
        if (
            ours
            and done
            and line["verb"] in ("patch", "update")
            and about.get("resource") == "replicasets"
        ):
            self.writes[about["name"]] += 1

    def forget(self) -> None:
        self.read_audit()
        self.writes.clear()


def _placement(item: Any) -> Placement:
    text = (item["metadata"].get("annotations") or {}).get(PREFERENCES)
    return tuple(sorted(json.loads(text)["clusters"])) if text else None


@asynccontextmanager
async def _world(launcher: Launcher, folder: Path) -> AsyncGenerator[World]:
    with furnished_stack(launcher, folder / "stack", audit=True) as stack:
        replicator = await asyncio.to_thread(start_replicator, stack, folder / "replicator")
        async with bare_client(stack) as bare:
            for name in (FLEET, SHOP):
                await bare.kube("POST", "/api/v1/namespaces", namespace(name))
            world = World(stack, bare, folder, replicator)
            for index in range(_CLUSTERS):
                await world.register(f"c{index:02}", (_IN, _OUT)[index % 2], 1 + index % 3)
            gate = asyncio.Semaphore(_AT_ONCE)

            async def create(index: int) -> None:
                async with gate:
                    await world.create(index)

            await asyncio.gather(*(create(index) for index in range(_OBJECTS)))
            await bare.kube("POST", _MAPS, policy_map(POLICY.read_text(encoding="utf-8")))
            await asyncio.to_thread(world.remediate)
            try:
                yield world
            finally:
                for server in world.remediators:
                    server.stop()
                replicator.stop()


Story = Callable[[World], Awaitable[None]]


@asynccontextmanager
async def _exactly_what_moves(world: World, at_most: int = 1) -> AsyncIterator[None]:
    """Check that what happens inside writes what it has to, each so often at most, and no other."""
    await asyncio.to_thread(world.forget)
    before = await world.placements()
    yield
    await world.settled()
    after = await world.placements()
    moved = {name for name, where in after.items() if name in before and where != before[name]}
    assert {name for name in world.writes if name in before} == moved
    assert not moved or max(world.writes.values()) <= at_most
    _none_emptied(before, after)


def _none_emptied(before: dict[str, Placement], after: dict[str, Placement]) -> None:
    assert not [name for name, where in after.items() if before.get(name) and not where]


async def _first_placements(world: World) -> None:
    await world.settled()
    wanted = world.fleet.expected()
    assert world.writes == {name: 1 for name, where in wanted.items() if where}


async def _a_cluster_flips(world: World) -> None:
    async with _exactly_what_moves(world):
        await world.region("c00", _OUT)
    assert len(world.writes) == sum(eu and pci is None for eu, pci in world.fleet.wishes.values())


async def _a_cluster_flaps(world: World) -> None:
    flips = (_IN, _OUT, _IN, _OUT, _IN)
    async with _exactly_what_moves(world, at_most=len(flips)):
        for region in flips:
            await world.region("c00", region)
            await asyncio.sleep(0.05)


async def _a_cluster_leaves_and_returns(world: World) -> None:
    async with _exactly_what_moves(world):
        await world.leave("c02")
    async with _exactly_what_moves(world):
        await world.register("c02", _IN, 3)


async def _the_policy_is_swapped(world: World) -> None:
    await asyncio.to_thread(world.forget)
    before = await world.placements()
    source = POLICY.read_text(encoding="utf-8").replace('"rebalance": true', '"rebalance": false')
    path = f"{_MAPS}/placement?fieldManager=test&force=true"
    await world.bare.kube("PATCH", path, policy_map(source), "apply-patch+yaml")
    placed = {name for name, where in world.fleet.expected().items() if where}

    async def written() -> bool:
        return world.read_audit().keys() >= placed

    await until("every ReplicaSet follows the policy", written)
    await world.settled()
    assert world.writes == dict.fromkeys(placed, 1)
    assert await world.placements() == before


async def _all_clusters_go_and_come_back(world: World) -> None:
    """An empty fleet is no order. On its way there some may move, and go back once it is whole."""
    await asyncio.to_thread(world.forget)
    before = await world.placements()
    regions, levels = dict(world.fleet.regions), dict(world.fleet.levels)
    await world.bare.kube("DELETE", _PROFILES)
    await asyncio.sleep(2)  # what is decided on an empty fleet is decided by now
    _none_emptied(before, await world.placements())
    for name, region in regions.items():
        await world.register(name, region, levels[name])
    await world.settled()
    assert await world.placements() == before


async def _opa_comes_back_empty_in_mid_move(world: World) -> None:
    async with _exactly_what_moves(world):
        await world.region("c04", _OUT)
        await asyncio.sleep(0.1)
        await asyncio.to_thread(world.stack.opa.kill)
        await asyncio.to_thread(world.stack.opa.start)


async def _one_is_deleted_and_created_anew(world: World) -> None:
    name = "app-0000"
    # It may be moved, and created before the move is decided, and then moved: no other is.
    async with _exactly_what_moves(world, at_most=3):
        await world.region("c06", _OUT)
        await world.bare.kube("DELETE", f"{_REPLICA_SETS}/{name}")
        await world.create(0)
    assert {moved for moved, times in world.writes.items() if times > 1} <= {name}
    assert (await world.placements())[name] == world.fleet.expected()[name]


async def _the_leader_is_killed_in_mid_move(world: World) -> None:
    await asyncio.to_thread(world.remediate)
    async with _exactly_what_moves(world):
        await world.region("c08", _OUT)
        await asyncio.sleep(0.1)
        world.remediators[0].kill()


_STORIES: tuple[Story, ...] = (
    _first_placements,
    _a_cluster_flips,
    _a_cluster_flaps,
    _a_cluster_leaves_and_returns,
    _the_policy_is_swapped,
    _all_clusters_go_and_come_back,
    _opa_comes_back_empty_in_mid_move,
    _one_is_deleted_and_created_anew,
    _the_leader_is_killed_in_mid_move,
)


@pytest.mark.timeout(590)
async def test_exactly_the_right_objects_change_whatever_happens_to_the_fleet(
    launcher: Launcher, tmp_path: Path
) -> None:
    """One story after the other on one fleet, as on a real one."""
    async with _world(launcher, tmp_path) as world:
        for story in _STORIES:
            try:
                await story(world)
            except AssertionError as error:
                error.add_note(f"in the story {story.__name__.strip('_')}")
                raise
