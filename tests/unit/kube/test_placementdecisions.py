from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kube_sync.errors import Conflict, Retriable
from kube_sync.kube.meta import OwnerReference
from kube_sync.kube.placementdecisions import (
    DECISION_INDEX,
    DECISION_KEY,
    PLACEMENT_DECISIONS,
    PLACEMENT_KEY,
    SIG,
    published,
)
from kube_sync.kube.slices import Choice, Published, Slice, SliceApi
from kube_sync.objects import ObjectKey
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, patches
from tests.fakes.clients import REPLICASETS, key, kube_of
from tests.fakes.http import answer

KEY = ObjectKey("shop", "web-0")
FIRST, SECOND = ({"kube-sync.io/moves": text} for text in ("[1]", "[1,2]"))
WANTED = Slice(
    KEY,
    "replicasets.apps/web",
    {DECISION_KEY: "web", DECISION_INDEX: "0", PLACEMENT_KEY: "web"},
    OwnerReference("apps/v1", "ReplicaSet", "web", "u1"),
    (Choice("eu", "fleet", "near"),),
)
DOCUMENT: dict[str, Any] = {
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "p1",
        "labels": {"app.kubernetes.io/managed-by": "kube-sync-remediator"},
        "annotations": {"kube-sync.io/placed": "replicasets.apps/web"},
    },
    "schedulerName": "kube-sync",
    "decisions": [{"clusterProfileRef": {"name": "eu"}}],
}


@pytest.fixture
async def server() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as server:
        server.define(PLACEMENT_DECISIONS, "PlacementDecision", builtin=False)
        server.define(REPLICASETS, "ReplicaSet")
        yield server


@pytest.fixture
async def api(server: FakeApiServer, tmp_path: Path) -> AsyncGenerator[SliceApi]:
    async with kube_of(server, tmp_path) as client:
        yield SliceApi(client, "tester", SIG)


def held(server: FakeApiServer) -> Published:
    found = published(json.dumps(server.get(PLACEMENT_DECISIONS, KEY)).encode())
    assert found is not None
    return found


async def test_an_applied_slice_is_there_as_the_api_defines_it(
    server: FakeApiServer, api: SliceApi
) -> None:
    written = await api.apply(WANTED, None)
    assert written.is_as(WANTED)
    found = server.get(PLACEMENT_DECISIONS, KEY)
    assert found["apiVersion"] == "multicluster.x-k8s.io/v1alpha1"
    assert found["schedulerName"] == "kube-sync"
    reference = {"name": "eu", "namespace": "fleet"}
    assert found["decisions"] == [{"clusterProfileRef": reference, "reason": "near"}]
    assert found["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "kube-sync-remediator",
        "multicluster.x-k8s.io/decision-key": "web",
        "multicluster.x-k8s.io/decision-index": "0",
        "multicluster.x-k8s.io/placement-key": "web",
    }
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u1"}
    ]
    request = server.http.requests[-1]
    assert request.query == {"fieldManager": "tester", "force": "false"}
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"


async def test_a_slice_that_is_known_is_changed_at_the_state_that_was_read(
    server: FakeApiServer, api: SliceApi
) -> None:
    before = await api.apply(WANTED, None)
    wanted = replace(WANTED, choices=(Choice("us", "fleet", "cheap"),))
    after = await api.apply(wanted, before)
    assert after.is_as(wanted)
    assert not after.is_as(WANTED)
    assert server.http.requests[-1].query["force"] == "true"
    with pytest.raises(Conflict):
        await api.apply(WANTED, before)
    assert held(server) == after


async def test_the_history_of_moves_is_written_and_read(api: SliceApi) -> None:
    first = await api.apply(replace(WANTED, records=FIRST), None)
    second = await api.apply(replace(WANTED, records=SECOND), first)
    assert (first.records, second.records) == (FIRST, SECOND)
    assert not second.is_as(WANTED)


async def test_a_slice_of_ours_that_was_not_seen_yet_is_found_and_applied(
    server: FakeApiServer, api: SliceApi
) -> None:
    """The watch may be behind: it is the one that was just written."""
    await api.apply(WANTED, None)
    version = held(server).version
    assert (await api.apply(WANTED, None)).version == version


@pytest.mark.parametrize(
    "change",
    [
        {"schedulerName": "other"},
        {"metadata": {"labels": {}, "annotations": {"kube-sync.io/placed": WANTED.placed}}},
        {"metadata": {"labels": {"app.kubernetes.io/managed-by": "kube-sync-remediator"}}},
        {
            "metadata": {
                "labels": {"app.kubernetes.io/managed-by": "kube-sync-remediator"},
                "annotations": {"kube-sync.io/placed": "replicasets.apps/other"},
            }
        },
    ],
)
async def test_what_is_somebody_elses_is_not_taken_over(
    server: FakeApiServer, api: SliceApi, change: dict[str, Any]
) -> None:
    content = {"schedulerName": "kube-sync", "decisions": []} | change
    before = server.put(PLACEMENT_DECISIONS, KEY, **content)
    with pytest.raises(Conflict, match="somebody else's"):
        await api.apply(WANTED, None)
    assert server.get(PLACEMENT_DECISIONS, KEY) == before


async def test_what_was_somebody_elses_is_created_once_it_is_gone(
    server: FakeApiServer, api: SliceApi
) -> None:
    server.put(PLACEMENT_DECISIONS, KEY, schedulerName="other", decisions=[])
    with pytest.raises(Conflict):
        await api.apply(WANTED, None)
    server.delete(PLACEMENT_DECISIONS, KEY)
    assert (await api.apply(WANTED, None)).is_as(WANTED)


async def test_a_slice_that_is_there_by_the_time_it_is_created_is_read_again(
    server: FakeApiServer, api: SliceApi
) -> None:
    exists = answer(409, b'{"code":409,"reason":"AlreadyExists","message":"already exists"}')
    server.http.fault(patches(PLACEMENT_DECISIONS), exists)
    with pytest.raises(Conflict, match="already exists"):
        await api.apply(WANTED, None)
    assert (await api.apply(WANTED, None)).is_as(WANTED)
    assert [r.method for r in server.http.requests] == ["GET", "PATCH", "GET", "PATCH"]


async def test_an_answer_that_is_no_slice_is_an_error(server: FakeApiServer, api: SliceApi) -> None:
    server.http.fault(patches(PLACEMENT_DECISIONS), answer(200, b"{}"))
    with pytest.raises(Retriable, match="is not the PlacementDecision"):
        await api.apply(WANTED, None)


async def test_a_slice_is_deleted_as_it_was_read(server: FakeApiServer, api: SliceApi) -> None:
    before = await api.apply(WANTED, None)
    after = await api.apply(replace(WANTED, choices=()), before)
    with pytest.raises(Conflict):
        await api.delete(before)
    await api.delete(after)
    assert not server.objects(PLACEMENT_DECISIONS)
    await api.delete(after)


async def test_a_kind_is_asked_for_once(server: FakeApiServer, api: SliceApi) -> None:
    assert [await api.kind(REPLICASETS), await api.kind(REPLICASETS)] == ["ReplicaSet"] * 2
    assert len(server.http.requests) == 1
    assert key("web") not in server.objects(REPLICASETS)


def test_what_is_ours_is_read() -> None:
    found = published(json.dumps(DOCUMENT).encode())
    assert found is not None
    assert (found.key, found.uid, found.choices) == (KEY, "p1", (Choice("eu", "", ""),))
    assert (found.owners, found.labels) == ((), {})


def test_a_slice_without_decisions_has_no_clusters() -> None:
    found = published(json.dumps(DOCUMENT | {"decisions": None}).encode())
    assert found is not None
    assert found.choices == ()


@pytest.mark.parametrize(
    "document",
    [
        {},
        DOCUMENT | {"schedulerName": "other"},
        DOCUMENT | {"decisions": [{}]},
        DOCUMENT | {"metadata": DOCUMENT["metadata"] | {"labels": None}},
        DOCUMENT | {"metadata": DOCUMENT["metadata"] | {"annotations": None}},
    ],
)
def test_what_is_not_ours_is_nothing(document: dict[str, Any]) -> None:
    assert published(json.dumps(document).encode()) is None
