"""Every way in which an object is written, through the real API server, webhook and OPA."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import aiohttp
import pytest

from benchmarks.bare import Bare, bare_client
from kube_sync.decisions.decision import REQUESTED
from tests.eventually import eventually
from tests.integration.webhook_world import World, webhook_world
from tools.demo.fleet import replica_set
from tools.servers.binaries import ensure_binary
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack

PLACED = "team.io/placed"
POLICY = f"""
package io.k8s.federation.admission

annotations["{PLACED}"] := {{"on": [input.metadata.labels.zone], "a": 1}}

errors contains sprintf("zone %v is closed", [input.metadata.labels.zone]) if {{
	input.metadata.labels.zone == "moon"
}}

errors contains "nobody may run more than 100" if input.spec.replicas > 100

warnings contains "zone mars is far" if input.metadata.labels.zone == "mars"
"""
DECIDED = '{{"a":1,"on":["{}"]}}'
_BULK = 200


@pytest.fixture(scope="module")
def world(
    launcher: Launcher, stack: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with webhook_world(launcher, stack, tmp_path_factory.mktemp("requests")) as running:
        running.policy()
        running.opa("PUT", POLICY)
        running.register()
        yield running


@pytest.fixture
async def bare(world: World) -> AsyncGenerator[Bare]:
    async with bare_client(world.stack) as client:
        await eventually(world.failure_policy, "Fail")
        yield client


def _path(namespace: str, name: str = "") -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/replicasets" + (f"/{name}" if name else "")


def _workload(namespace: str, zone: str, **metadata: Any) -> dict[str, Any]:
    manifest = replica_set("web")
    manifest["metadata"] |= {"namespace": namespace} | metadata
    del manifest["metadata"]["annotations"]
    manifest["metadata"]["labels"] = {"app": "web", "zone": zone}
    return manifest


async def _annotations(bare: Bare, namespace: str, name: str = "web") -> dict[str, str]:
    found = json.loads(await bare.kube("GET", _path(namespace, name)))
    annotations: dict[str, str] = found["metadata"].get("annotations") or {}
    return annotations


async def test_a_create_without_annotations_is_stored_with_the_decided_ones(
    bare: Bare, namespace: str
) -> None:
    await bare.kube("POST", _path(namespace), _workload(namespace, "eu"))
    assert await _annotations(bare, namespace) == {
        PLACED: DECIDED.format("eu"),
        REQUESTED: f'{{"{PLACED}":null}}',
    }


async def test_an_update_is_decided_anew(bare: Bare, namespace: str) -> None:
    created = json.loads(await bare.kube("POST", _path(namespace), _workload(namespace, "eu")))
    created["metadata"]["labels"]["zone"] = "us"
    await bare.kube("PUT", _path(namespace, "web"), created)
    assert (await _annotations(bare, namespace))[PLACED] == DECIDED.format("us")
    status, said = await bare.answer("PUT", _path(namespace, "web"), _workload(namespace, "moon"))
    assert (status, "zone moon is closed" in said) == (403, True)


async def test_all_reasons_are_told(bare: Bare, namespace: str) -> None:
    manifest = _workload(namespace, "moon")
    manifest["spec"]["replicas"] = 101
    status, said = await bare.answer("POST", _path(namespace), manifest)
    assert status == 403
    assert "nobody may run more than 100; zone moon is closed" in json.loads(said)["message"]


async def test_a_generated_name_is_decided_on_before_there_is_one(
    bare: Bare, namespace: str
) -> None:
    manifest = _workload(namespace, "eu", generateName="web-")
    del manifest["metadata"]["name"]
    made = json.loads(await bare.kube("POST", _path(namespace), manifest))
    assert made["metadata"]["name"].startswith("web-")
    assert made["metadata"]["annotations"][PLACED] == DECIDED.format("eu")
    manifest["metadata"]["labels"]["zone"] = "moon"
    assert (await bare.answer("POST", _path(namespace), manifest))[0] == 403


async def test_a_dry_run_is_answered_alike_and_stores_nothing(bare: Bare, namespace: str) -> None:
    path = _path(namespace) + "?dryRun=All"
    made = json.loads(await bare.kube("POST", path, _workload(namespace, "eu")))
    assert made["metadata"]["annotations"][PLACED] == DECIDED.format("eu")
    assert (await bare.answer("POST", path, _workload(namespace, "moon")))[0] == 403
    assert (await bare.answer("GET", _path(namespace, "web")))[0] == 404


async def test_server_side_apply_creates_and_repeats_without_a_write(
    bare: Bare, namespace: str
) -> None:
    path = _path(namespace, "web") + "?fieldManager=test"
    manifest = _workload(namespace, "eu")
    first = json.loads(await bare.kube("PATCH", path, manifest, "apply-patch+yaml"))
    assert first["metadata"]["annotations"][PLACED] == DECIDED.format("eu")
    again = json.loads(await bare.kube("PATCH", path, manifest, "apply-patch+yaml"))
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_warning_reaches_whoever_sent_the_object(world: World, namespace: str) -> None:
    command = ("create", "-f", "-", f"--kubeconfig={world.stack.kubeconfigs['admin']}")
    done = subprocess.run(
        (ensure_binary("kubectl"), *command),
        input=json.dumps(_workload(namespace, "mars")),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Warning: zone mars is far" in done.stderr


async def test_many_creates_at_once_are_each_decided(bare: Bare, namespace: str) -> None:
    zones = ["eu", "us", "moon"]

    async def create(number: int) -> tuple[int, str]:
        name = f"web-{number}"
        manifest = _workload(namespace, zones[number % 3], name=name)
        return await bare.answer("POST", _path(namespace), manifest)

    answers = await asyncio.gather(*(create(number) for number in range(_BULK)))
    assert [status for status, _ in answers] == [
        403 if number % 3 == 2 else 201 for number in range(_BULK)
    ]
    found = json.loads(await bare.kube("GET", _path(namespace)))["items"]
    assert {
        item["metadata"]["name"]: item["metadata"]["annotations"][PLACED] for item in found
    } == {f"web-{n}": DECIDED.format(zones[n % 3]) for n in range(_BULK) if n % 3 < 2}


async def test_scale_and_status_pass_untouched_where_an_update_would_not(
    world: World, bare: Bare, namespace: str
) -> None:
    await bare.kube("POST", _path(namespace), _workload(namespace, "eu"))
    before = await _annotations(bare, namespace)
    world.opa("PUT", "package elsewhere")  # from here on every decision is undefined
    try:
        denied = {"metadata": {"labels": {"zone": "us"}}}
        with pytest.raises(aiohttp.ClientResponseError, match="503"):
            await bare.kube("PATCH", _path(namespace, "web"), denied, "merge-patch+json")
        for part, change in (
            ("scale", {"spec": {"replicas": 7}}),
            ("status", {"status": {"replicas": 3}}),
        ):
            path = f"{_path(namespace, 'web')}/{part}"
            await bare.kube("PATCH", path, change, "merge-patch+json")
    finally:
        world.opa("PUT", POLICY)
    found = json.loads(await bare.kube("GET", _path(namespace, "web")))
    assert (found["spec"]["replicas"], found["status"]["replicas"]) == (7, 3)
    assert found["metadata"]["annotations"] == before
    await bare.kube("DELETE", _path(namespace, "web"))
