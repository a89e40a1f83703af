"""One evaluation a class, on the real servers: decisions equal those of one query an object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.bare import REPLICA_SETS, Bare, bare_client
from benchmarks.decisions import (
    Stream,
    create_clusters,
    decision_stream,
    evaluations,
    flip,
    load_policy,
    metric,
)
from benchmarks.world import NAMESPACE, replicator
from tests.faults.world import until
from tools.demo.fleet import replica_set
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack

_OBJECTS = 100
_KINDS = 3


async def _create(bare: Bare) -> None:
    for index in range(_OBJECTS):
        manifest = replica_set(f"app-{index:03}", eu=index % _KINDS > 0, pci=str(index % _KINDS))
        manifest["metadata"]["namespace"] = NAMESPACE
        await bare.kube("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets", manifest)


async def _one_by_one(bare: Bare) -> dict[str, object]:
    listed = json.loads(await bare.kube("GET", REPLICA_SETS))["items"]
    return {
        found["metadata"]["name"]: await bare.query(
            "io/k8s/federation/admission",
            json.dumps({"input": {"kind": "ReplicaSet", **found}}).encode(),
        )
        for found in listed
    }


async def _equal(bare: Bare, stream: Stream) -> bool:
    wanted = await _one_by_one(bare)
    told = {
        name: {"annotations": _parsed(found["annotations"]), "errors": found.get("errors") or []}
        for name, found in stream.decisions.items()
        if found is not None
    }
    return bool(wanted) and told == {
        name: {"annotations": found["annotations"], "errors": found["errors"]}
        for name, found in wanted.items()
        if isinstance(found, dict)
    }


def _parsed(annotations: dict[str, str]) -> dict[str, object]:
    return {name: json.loads(text) for name, text in annotations.items()}


@pytest.fixture
def own_stack(launcher: Launcher, tmp_path: Path) -> Iterator[RunningStack]:
    with furnished_stack(launcher, tmp_path / "stack") as running:
        yield running


@pytest.mark.slow
async def test_change_of_a_cluster_evaluates_each_distinct_input_once(
    own_stack: RunningStack,
) -> None:
    async with bare_client(own_stack) as bare:
        await load_policy(bare)
        await create_clusters(bare, 0, 2)
        async with replicator(own_stack) as server, decision_stream(own_stack) as stream:
            await _create(bare)
            await until("each decision is that of a query of its own", lambda: _equal(bare, stream))
            assert await metric(server, "kube_sync_decision_classes") == _KINDS
            before = await evaluations(server)
            await flip(bare, inside=False)
            await until("each decision is that of a query of its own", lambda: _equal(bare, stream))
            assert await evaluations(server) - before == _KINDS
            assert await metric(server, "kube_sync_decision_unshared") == 0
