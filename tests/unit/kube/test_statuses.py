"""Statuses that several controllers write, on a fake API server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from kube_sync.errors import Conflict, NotFound, Retriable, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.kube.patch import ObjectReference
from kube_sync.kube.statuses import apply_shared, remove_at, replace_lists
from kube_sync.objects import ObjectKey
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, patches
from tests.fakes.clients import CLUSTERS, REPLICASETS, SECRETS, key, kube_of
from tests.fakes.http import answer

WEB = key("web")


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        api.define(REPLICASETS, "ReplicaSet")
        yield api


@pytest.fixture
async def client(api: FakeApiServer, tmp_path: Path) -> AsyncGenerator[KubeClient]:
    async with kube_of(api, tmp_path) as client:
        yield client


def put(api: FakeApiServer, **status: object) -> tuple[str, str]:
    """Create the object; returns its uid and resourceVersion."""
    metadata = api.put(REPLICASETS, WEB, status=status)["metadata"]
    return metadata["uid"], metadata["resourceVersion"]


def _web(uid: str) -> ObjectReference:
    return ObjectReference(REPLICASETS, "ReplicaSet", WEB, uid)


async def test_fields_are_applied_by_their_manager_alone(
    api: FakeApiServer, client: KubeClient
) -> None:
    uid, _ = put(api, other=1)
    found = await apply_shared(client, _web(uid), {"mine": 2}, "me")
    assert found == api.get(REPLICASETS, WEB)
    assert found["status"] == {"other": 1, "mine": 2}
    request = api.http.requests[-1]
    assert request.path == REPLICASETS.path("default", "web") + "/status"
    assert request.query == {"fieldManager": "me", "force": "true"}
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert request.json()["apiVersion"] == "apps/v1"


async def test_a_status_of_another_object_of_the_name_is_not_applied(
    api: FakeApiServer, client: KubeClient
) -> None:
    put(api)
    with pytest.raises(NotFound):
        await apply_shared(client, _web("another"), {"a": 1}, "me")


async def test_a_core_kind_has_a_bare_version(api: FakeApiServer, client: KubeClient) -> None:
    api.define(SECRETS, "Secret")
    uid = api.put(SECRETS, WEB)["metadata"]["uid"]
    await apply_shared(client, ObjectReference(SECRETS, "Secret", WEB, uid), {}, "me")
    assert api.http.requests[-1].json()["apiVersion"] == "v1"


async def test_lists_are_replaced_in_the_state_that_was_read(
    api: FakeApiServer, client: KubeClient
) -> None:
    _, version = put(api, entries=[1, 2], other=1)
    found = await replace_lists(client, REPLICASETS, WEB, version, {"entries": [3]}, "me")
    assert found["status"] == api.get(REPLICASETS, WEB)["status"] == {"entries": [3], "other": 1}
    with pytest.raises(Conflict):
        await replace_lists(client, REPLICASETS, WEB, version, {"entries": [4]}, "me")
    assert api.http.requests[-1].query == {"fieldManager": "me"}


async def test_what_is_pointed_to_is_removed_in_the_state_that_was_read(
    api: FakeApiServer, client: KubeClient
) -> None:
    _, version = put(api, a=1, b=2, c=3)
    pointers = ["/status/b", "/status/a"]
    found = await remove_at(client, REPLICASETS, WEB, version, pointers, "me")
    assert found["status"] == {"c": 3}
    with pytest.raises(Conflict):
        await remove_at(client, REPLICASETS, WEB, version, ["/status/c"], "me")


async def test_an_answer_that_is_no_object_is_asked_for_again(
    api: FakeApiServer, client: KubeClient
) -> None:
    _, version = put(api)
    api.http.fault(patches(REPLICASETS), answer(200, b"[]"))
    with pytest.raises(Retriable, match="no object"):
        await replace_lists(client, REPLICASETS, WEB, version, {}, "me")


async def test_a_status_that_is_refused_is_no_conflict(
    api: FakeApiServer, client: KubeClient
) -> None:
    _, version = put(api)
    refused = answer(422, b'{"message":"status.x: Invalid value"}', kind="application/json")
    api.http.fault(patches(REPLICASETS), refused)
    with pytest.raises(Terminal, match="Invalid value"):
        await remove_at(client, REPLICASETS, WEB, version, ["/status/x"], "me")


async def test_an_object_in_no_namespace_is_found(api: FakeApiServer, client: KubeClient) -> None:
    api.define(CLUSTERS, "ClusterProfile", builtin=False, namespaced=False)
    name = ObjectKey("", "c")
    version = api.put(CLUSTERS, name)["metadata"]["resourceVersion"]
    await replace_lists(client, CLUSTERS, name, version, {"a": []}, "me")
    assert api.get(CLUSTERS, name)["status"] == {"a": []}
