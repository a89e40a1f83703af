"""Moves that add first, on a real API server: a watch of its own is the witness of each state.

The servers of `test_all_three_…` have OPA, the webhook and a canary too.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bare import Bare
from kube_sync.decisions.decision import Decision
from tests.eventually import eventually
from tests.fakes.standin import stand_in
from tests.integration.add_first_witness import HEALTH, PLACEMENT, Witness, watched
from tests.integration.test_remediation import World
from tools.demo.components import GUARD_OFF, Components, start_components
from tools.demo.fleet import FLEET, POLICIES, SHOP, cluster, namespace, replica_set
from tools.demo.webhook import register_webhook
from tools.servers.processes import ProcessServer
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack

ADDITION = "kube-sync.io/addition"
_AT_ONCE = 32


def _place(*clusters: str) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in clusters}})


def _add_first(within: float, on_unhealthy: str = "revert") -> dict[str, Any]:
    terms = {"healthy_within_seconds": within, "on_unhealthy": on_unhealthy}
    return {"moves": "add-first", "add_first": terms}


@pytest.fixture
async def world(stack: RunningStack, namespace: str, tmp_path: Path) -> AsyncGenerator[World]:
    fleet = cluster("east", "europe-west1", "2")
    fleet["metadata"]["namespace"] = namespace
    stack.api.create(fleet)
    async with stand_in() as engine:
        yield World(stack, engine, namespace, tmp_path)


async def _create(world: World, bare: Bare, names: list[str]) -> None:
    """Create workloads that are on c1, and healthy there."""
    gate = asyncio.Semaphore(_AT_ONCE)
    path = f"/apis/apps/v1/namespaces/{world.namespace}/replicasets"

    async def create(name: str) -> None:
        manifest = replica_set(name)
        annotations = {PLACEMENT: _place("c1"), f"{HEALTH}c1": "healthy"}
        manifest["metadata"] |= {"namespace": world.namespace, "annotations": annotations}
        async with gate:
            found = json.loads(await bare.kube("POST", path, manifest))
        world.uids[name] = found["metadata"]["uid"]

    await asyncio.gather(*map(create, names))


async def _heal(world: World, bare: Bare, names: list[str], cluster: str) -> None:
    """Report that workloads are healthy in a cluster, as its agent would."""
    gate = asyncio.Semaphore(_AT_ONCE)
    path = f"/apis/apps/v1/namespaces/{world.namespace}/replicasets/"
    body = {"metadata": {"annotations": {f"{HEALTH}{cluster}": "healthy"}}}

    async def heal(name: str) -> None:
        async with gate:
            await bare.kube("PATCH", path + name, body, "merge-patch+json")

    await asyncio.gather(*map(heal, names))


async def _decide(world: World, names: list[str], *clusters: str) -> None:
    decision = Decision({PLACEMENT: _place(*clusters)})
    wanted = [(world.namespace, name, world.uids[name], decision) for name in names]
    await world.engine.decide(*wanted)


def _kinds(world: World) -> Counter[str]:
    return Counter(one["kind"] for one in world.waiting())


async def _end(server: ProcessServer, *, killed: bool) -> None:
    await asyncio.to_thread(server.kill if killed else server.stop)


async def _never_healthy(world: World, count: int, within: float, *, killed: bool) -> None:
    """Move to a cluster where nothing becomes healthy; restart in the middle of each step."""
    names = [f"app-{number:04}" for number in range(count)]
    start = partial(world.remediator, **_add_first(within))
    async with watched(world.stack, world.namespace) as (witness, bare):
        await _create(world, bare, names)
        async with start() as server:
            await _decide(world, names, "c2")
            await eventually(lambda: _added(witness) > count // 3)
            await _end(server, killed=killed)
        async with start() as server:  # all are added, and some are taken back by then
            await eventually(lambda: _added(witness) == count)
            await eventually(lambda: _reverted(witness) > count // 3)
            await _end(server, killed=killed)
        async with start():
            await eventually(lambda: _reverted(witness) == count, seconds=120)
            await eventually(lambda: _kinds(world), {"unhealthy": count})
        assert witness.at("c1", "c1,c2", "c1") == count, "it goes back and forth"
        assert witness.without == []
        assert witness.events >= 3 * count
    # Of a PATCH whose sender ended meanwhile the audit log may have another code than 200.
    written = Counter({name: n for (name, code), n in world.writes().items() if code == 200})
    assert max(written.values()) == 2


def _added(witness: Witness) -> int:
    return sum("c1,c2" in story for story in [*witness.stories.values()])


def _reverted(witness: Witness) -> int:
    return witness.at("c1", "c1,c2", "c1")


async def test_moves_to_a_cluster_that_never_becomes_healthy_leave_nobody_alone(
    world: World,
) -> None:
    await _never_healthy(world, count=30, within=3, killed=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_thousand_moves_to_a_cluster_that_never_becomes_healthy_leave_nobody_alone(
    world: World,
) -> None:
    await _never_healthy(world, count=1_000, within=25, killed=True)


async def test_moves_end_once_all_is_healthy_also_after_a_restart_between_the_steps(
    world: World,
) -> None:
    names = [f"app-{number:02}" for number in range(10)]
    start = partial(world.remediator, **_add_first(600))
    async with watched(world.stack, world.namespace) as (witness, bare):
        await _create(world, bare, names)
        async with start():
            await _decide(world, names, "c2")
            await eventually(lambda: _kinds(world), {"adding": 10})
        async with start():
            await eventually(lambda: _kinds(world), {"adding": 10})
            record = json.loads(world.annotations(names[0])[ADDITION])
            assert record["added"] == ["c2"]
            await _heal(world, bare, names, "c2")
            await eventually(lambda: witness.at("c1", "c1,c2", "c2"), 10)
            await eventually(world.waiting, [])
        assert witness.without == []
    assert ADDITION not in world.annotations(names[0])


@pytest.mark.slow
async def test_a_changed_spec_or_an_event_tells_and_tries_again(world: World) -> None:
    async with watched(world.stack, world.namespace) as (witness, bare):
        await _create(world, bare, ["web"])
        async with world.remediator(**_add_first(1)):
            await _decide(world, ["web"], "c2")
            await eventually(lambda: _kinds(world), {"unhealthy": 1})
            await eventually(lambda: _reasons(world), {"RemediationUnhealthy"})
            world.scale(7, "web")  # an autoscaler does this all day
            change = {"spec": {"minReadySeconds": 5}}
            await eventually(lambda: _kinds(world), {"unhealthy": 1})
            assert witness.at("c1", "c1,c2", "c1") == 1
            world.stack.api.merge("replicasets", "web", change, world.namespace)
            await eventually(lambda: witness.stories["web"], ["c1", "c1,c2", "c1", "c1,c2", "c1"])
        assert witness.without == []


def _reasons(world: World) -> set[str]:
    events = world.stack.api.get("events.events.k8s.io", namespace=world.namespace)["items"]
    return {one["reason"] for one in events}


@pytest.fixture(scope="module")
def three(
    launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningStack, Components]]:
    """Replicator, remediator and webhook on servers of their own, with sealed notes."""
    folder = tmp_path_factory.mktemp("add-first")
    with furnished_stack(launcher, folder / "stack", audit=True) as stack:
        for name in (FLEET, SHOP):
            stack.api.create(namespace(name))
        for name in ("c1", "c2"):
            stack.api.create(cluster(name, "europe-west1", "2"))
        remediate = {"guard": dict(GUARD_OFF), **_add_first(8)}
        components = start_components(stack, folder, remediate)
        try:
            register_webhook(stack, components.webhook_url, components.webhook_ca)
            yield stack, components
        finally:
            components.stop()


POLICY = """
package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {
	"clusters": {"CLUSTER": {"weight": 1}},
} if input.kind == "ReplicaSet"
"""


def _policy(cluster: str, name: str = "placement", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": POLICIES, **metadata},
        "data": {"placement.rego": POLICY.replace("CLUSTER", cluster)},
    }


def _status(stack: RunningStack, name: str) -> Any:
    found = stack.api.get("configmaps", name, POLICIES)["metadata"].get("annotations") or {}
    return json.loads(found.get("openpolicyagent.org/kube-mgmt-status", "{}"))


@asynccontextmanager
async def _placed_on_c1(stack: RunningStack) -> AsyncGenerator[tuple[Witness, list[str]]]:
    """Yield workloads that a policy in force has placed on c1, where they are healthy."""
    names = [f"app-{number}" for number in range(5)]
    stack.api.apply(_policy("c1"), manager="test", force=True)
    await eventually(lambda: _status(stack, "placement"), {"status": "ok"})
    async with watched(stack, SHOP) as (witness, _):
        for name in names:
            manifest = replica_set(name)
            manifest["metadata"]["annotations"] = {f"{HEALTH}c1": "healthy"}
            stack.api.create(manifest)
        try:
            await eventually(lambda: witness.at("c1"), 5)
            yield witness, names
        finally:
            for name in names:
                stack.api.delete("replicasets", name, SHOP)
            for name in ("placement", "placement-candidate"):
                stack.api.delete("configmaps", name, POLICIES)


@pytest.mark.slow
async def test_all_three_leave_a_move_to_its_second_step_whatever_is_updated(
    three: tuple[RunningStack, Components],
) -> None:
    """The webhook writes decisions with every update, and so would end every move at once."""
    stack, _ = three
    async with _placed_on_c1(stack) as (witness, names):
        stack.api.apply(_policy("c2"), manager="test", force=True)
        await eventually(lambda: witness.at("c1", "c1,c2"), 5)
        stack.api.annotate("replicasets", names[0], {f"{HEALTH}c1": "healthy", "x": "1"}, SHOP)
        stack.api.annotate("replicasets", names[1], {f"{HEALTH}c2": "healthy"}, SHOP)
        await eventually(lambda: witness.stories[names[1]], ["c1", "c1,c2", "c2"])
        await eventually(lambda: witness.at("c1", "c1,c2", "c1"), 4)
        # Nor does an update begin it again.
        stack.api.annotate("replicasets", names[0], {"x": "2"}, SHOP)
        assert witness.without == []
        await eventually(lambda: witness.stories[names[0]], ["c1", "c1,c2", "c1"])


@pytest.mark.slow
async def test_a_canary_halts_where_what_it_moved_is_not_healthy_in_time(
    three: tuple[RunningStack, Components],
) -> None:
    stack, _ = three
    async with _placed_on_c1(stack) as (witness, _):
        terms = {"kube-sync.io/canary-namespaces": SHOP, "kube-sync.io/max-moves": "1"}
        marks = {"labels": {"kube-sync.io/stage": "canary"}, "annotations": terms}
        stack.api.apply(_policy("c2", "placement-candidate", **marks), manager="test", force=True)
        halted = partial(_status, stack, "placement-candidate")
        await eventually(lambda: halted().get("status"), "halted", seconds=90)
        assert "were not healthy where they were added" in halted()["halted"]["why"][0]
        await eventually(lambda: witness.at("c1", "c1,c2", "c1"), 5)
        await eventually(lambda: _recorded(stack), [])
        assert witness.without == []


def _recorded(stack: RunningStack) -> list[str]:
    """Return the workloads with a record of an addition."""
    found = stack.api.get("replicasets", namespace=SHOP)["items"]
    return [one["metadata"]["name"] for one in found if ADDITION in one["metadata"]["annotations"]]
