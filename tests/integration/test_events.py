"""Denials as Events on a real API server, written by the webhook with exactly its role."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from kube_sync.admission.denials import CONTROLLER
from kube_sync.config import Kubernetes
from kube_sync.errors import Refused
from kube_sync.kube.client import kube_client
from kube_sync.kube.events import Occurrence, Reference, Reporter, create_event, event_name
from tests.eventually import eventually
from tests.integration.webhook_world import World, webhook_world, workload
from tools.servers.errors import ToolError
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack

REFUSED = "no cluster is certified"


@pytest.fixture(scope="module")
def world(
    launcher: Launcher, stack: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """The webhook in front of every ReplicaSet, and a policy."""
    with webhook_world(launcher, stack, tmp_path_factory.mktemp("events")) as world:
        world.register()
        world.policy()
        asyncio.run(eventually(world.failure_policy, "Fail"))
        yield world


def fresh() -> str:
    return f"app-{secrets.token_hex(4)}"


def deny(world: World, manifest: dict[str, Any], *options: str) -> None:
    with pytest.raises(ToolError, match=REFUSED):
        world.apply(manifest, *options)


async def the_event(world: World, where: str, name: str) -> Any:
    """Return the only Event that speaks of `name`, once it is there."""
    seen: list[Any] = []

    def count() -> int:
        seen[:] = [
            event
            for event in world.events(where)
            if name in (event["regarding"]["name"], event.get("related", {}).get("name"))
        ]
        return len(seen)

    await eventually(count, 1)
    return seen[0]


async def test_a_refused_create_is_told_about_its_namespace_in_default(
    world: World, namespace: str
) -> None:
    """The API server refuses an Event about a Namespace anywhere else."""
    name = fresh()
    deny(world, workload(name, namespace))
    event = await the_event(world, "default", name)
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Namespace", "name": namespace}
    assert event["related"] == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": name,
        "namespace": namespace,
    }
    assert event["metadata"]["name"].startswith(f"{namespace}.")
    assert (event["type"], event["reason"], event["action"]) == (
        "Warning",
        "PlacementDenied",
        "Create",
    )
    assert event["note"] == f"ReplicaSet {namespace}/{name}: {REFUSED}"


async def test_a_refused_create_is_told_about_its_owner(world: World, namespace: str) -> None:
    name = fresh()
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop", "uid": "u1"}
    references = [owner | {"controller": True}]
    deny(world, workload(name, namespace, ownerReferences=references))
    event = await the_event(world, namespace, name)
    assert event["regarding"] == owner | {"namespace": namespace}
    described = world.stack.kubectl(
        "get",
        "events",
        f"--namespace={namespace}",
        "--field-selector=involvedObject.kind=Deployment,involvedObject.name=shop",
        "--output=name",
    )
    assert described.strip() == f"event/{event['metadata']['name']}"


async def test_a_refused_update_is_told_about_the_object(world: World, namespace: str) -> None:
    name = fresh()
    manifest = workload(name, namespace)
    manifest["metadata"]["labels"]["certified"] = "yes"
    world.apply(manifest)
    deny(world, workload(name, namespace))
    event = await the_event(world, namespace, name)
    regarding = event["regarding"]
    assert (regarding["kind"], regarding["name"]) == ("ReplicaSet", name)
    shown = world.stack.kubectl("describe", "replicaset", name, f"--namespace={namespace}")
    assert REFUSED in shown
    assert event["action"] == "Update"


async def test_the_same_again_is_counted(world: World, namespace: str) -> None:
    name = fresh()
    for _ in range(4):
        deny(world, workload(name, namespace))
    event = await the_event(world, "default", name)
    path = f"/apis/events.k8s.io/v1/namespaces/default/events/{event['metadata']['name']}"

    def count() -> Any:
        return world.stack.api.ask("GET", path).get("series", {}).get("count")

    await eventually(count, 4)


async def test_an_event_about_a_namespace_is_refused_in_it(world: World, namespace: str) -> None:
    """What the one in `default` is there for; should this ever pass, it can move."""
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": fresh(), "namespace": namespace},
        "eventTime": "2026-11-21T12:00:00.000000Z",
        "reportingController": CONTROLLER,
        "reportingInstance": "test",
        "type": "Warning",
        "reason": "Test",
        "action": "Test",
        "regarding": {"apiVersion": "v1", "kind": "Namespace", "name": namespace},
    }
    with pytest.raises(ToolError, match=r"does not match event\.namespace"):
        world.stack.api.create(event)
    event["metadata"] = {"name": fresh(), "namespace": "default"}
    world.stack.kubectl("create", "-f", "-", stdin=json.dumps(event), role="admission")


async def test_a_namespace_on_its_way_out_is_told_apart(stack: RunningStack) -> None:
    name = fresh()
    stack.api.create_namespace(name)
    kept = {"apiVersion": "v1", "kind": "ConfigMap"}
    stack.api.create(kept | {"metadata": {"name": "keeps-it", "namespace": name}})
    stack.api.delete("namespaces", name)
    about = Occurrence(Reference("apps/v1", "ReplicaSet", name, "web"), None, "Test", "Test", "x")
    name, reporter, now = event_name(about, 1), Reporter(CONTROLLER, "test"), datetime.now(UTC)
    async with kube_client(Kubernetes(str(stack.kubeconfigs["admission"]))) as client:
        with pytest.raises(Refused, match="being terminated"):
            await create_event(client, name, about, reporter, first=now, last=now, count=1)


async def test_a_dry_run_is_not_told(world: World, namespace: str) -> None:
    dry, wet = fresh(), fresh()
    deny(world, workload(dry, namespace), "--dry-run=server")
    deny(world, workload(wet, namespace))
    await the_event(world, "default", wet)
    told = [event.get("related", {}).get("name") for event in world.events("default")]
    assert dry not in told
