from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from kube_sync.errors import Conflict, NotFound, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.kube.meta import Amend, Apply
from kube_sync.kube.patch import amend_metadata, annotate, apply_metadata
from kube_sync.objects import GroupVersionResource, ObjectKey
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CONFIGMAPS, REPLICASETS, key, kube_of
from tests.fakes.http import answer

NODES = GroupVersionResource("", "v1", "nodes")


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        api.define(REPLICASETS, "ReplicaSet")
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(NODES, "Node")
        yield api


@pytest.fixture
async def client(api: FakeApiServer, tmp_path: Path) -> AsyncGenerator[KubeClient]:
    async with kube_of(api, tmp_path) as client:
        yield client


async def test_applied_annotations_are_there_beside_others(
    api: FakeApiServer, client: KubeClient
) -> None:
    uid = api.put(REPLICASETS, key("web"), metadata={"annotations": {"mine": "1", "a": "old"}})
    wanted = Apply(uid["metadata"]["uid"], {"a": "new", "b": "ü"})
    await apply_metadata(client, REPLICASETS, "ReplicaSet", key("web"), wanted, "tester")
    found = api.get(REPLICASETS, key("web"))["metadata"]
    assert found["annotations"] == {"mine": "1", "a": "new", "b": "ü"}
    assert found["managedFields"][0]["manager"] == "tester"
    request = api.http.requests[-1]
    assert request.query == {"fieldManager": "tester", "force": "true"}
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert "PartialObjectMetadata" in request.headers["Accept"]
    assert request.json()["apiVersion"] == "apps/v1"


async def test_applied_to_a_core_kind_in_no_namespace_names_the_bare_version(
    api: FakeApiServer, client: KubeClient
) -> None:
    node = ObjectKey("", "n1")
    uid = api.put(NODES, node)["metadata"]["uid"]
    await apply_metadata(client, NODES, "Node", node, Apply(uid, {"a": "1"}), "tester")
    assert api.http.requests[-1].path == "/api/v1/nodes/n1"
    assert api.http.requests[-1].json()["apiVersion"] == "v1"


async def test_apply_to_an_object_that_is_gone_creates_nothing(
    api: FakeApiServer, client: KubeClient
) -> None:
    """Apply is create-or-update; only the uid keeps a deleted object from coming back empty."""
    with pytest.raises(NotFound):
        await apply_metadata(
            client, REPLICASETS, "ReplicaSet", key("web"), Apply("u", {}), "tester"
        )
    assert not api.objects(REPLICASETS)


async def test_apply_to_another_object_of_the_same_name_finds_none(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.put(REPLICASETS, key("web"))
    wanted = Apply("other", {"a": "1"})
    with pytest.raises(NotFound, match=r"metadata\.uid"):
        await apply_metadata(client, REPLICASETS, "ReplicaSet", key("web"), wanted, "tester")
    assert "annotations" not in api.get(REPLICASETS, key("web"))["metadata"]


async def test_applied_labels_are_there_beside_others(
    api: FakeApiServer, client: KubeClient
) -> None:
    uid = api.put(REPLICASETS, key("web"), metadata={"labels": {"app": "web"}})["metadata"]["uid"]
    wanted = Apply(uid, {}, {"tier": "gold"})
    await apply_metadata(client, REPLICASETS, "ReplicaSet", key("web"), wanted, "tester")
    found = api.get(REPLICASETS, key("web"))["metadata"]
    assert found["labels"] == {"app": "web", "tier": "gold"}


async def test_apply_to_what_changed_since_it_was_read_is_a_conflict_and_writes_nothing(
    api: FakeApiServer, client: KubeClient
) -> None:
    """What its owner asked for meanwhile would be lost."""
    read = api.put(REPLICASETS, key("web"), metadata={"annotations": {"a": "1"}})["metadata"]
    changed = api.put(REPLICASETS, key("web"), metadata={"annotations": {"a": "2"}})
    wanted = Apply(read["uid"], {"a": "3"}, version=read["resourceVersion"])
    with pytest.raises(Conflict, match="modified"):
        await apply_metadata(client, REPLICASETS, "ReplicaSet", key("web"), wanted, "tester")
    assert api.get(REPLICASETS, key("web")) == changed
    wanted = Apply(read["uid"], {"a": "3"}, version=changed["metadata"]["resourceVersion"])
    await apply_metadata(client, REPLICASETS, "ReplicaSet", key("web"), wanted, "tester")
    assert api.get(REPLICASETS, key("web"))["metadata"]["annotations"] == {"a": "3"}


async def test_annotate_with_nothing_removes_the_annotation(
    api: FakeApiServer, client: KubeClient
) -> None:
    """No field manager owns what a webhook wrote, so no apply takes it away."""
    read = api.put(CONFIGMAPS, key("p"), metadata={"annotations": {"a": "1", "b": "2"}})["metadata"]
    await annotate(client, CONFIGMAPS, key("p"), read["resourceVersion"], {"a": None}, "tester")
    assert api.get(CONFIGMAPS, key("p"))["metadata"]["annotations"] == {"b": "2"}


async def test_annotate_at_the_version_that_was_read_writes(
    api: FakeApiServer, client: KubeClient
) -> None:
    read = api.put(CONFIGMAPS, key("p"), data={"a.rego": "package a"})
    version = read["metadata"]["resourceVersion"]
    await annotate(client, CONFIGMAPS, key("p"), version, {"status": "ok"}, "tester")
    found = api.get(CONFIGMAPS, key("p"))
    assert found["metadata"]["annotations"] == {"status": "ok"}
    assert found["data"] == {"a.rego": "package a"}
    assert api.http.requests[-1].query == {"fieldManager": "tester"}


async def test_annotate_what_changed_since_is_a_conflict_and_writes_nothing(
    api: FakeApiServer, client: KubeClient
) -> None:
    """The status would be about a text that nobody sees any more."""
    version = api.put(CONFIGMAPS, key("p"))["metadata"]["resourceVersion"]
    changed = api.put(CONFIGMAPS, key("p"), data={"a": "b"})
    with pytest.raises(Conflict, match="modified"):
        await annotate(client, CONFIGMAPS, key("p"), version, {"status": "ok"}, "tester")
    assert api.get(CONFIGMAPS, key("p")) == changed


async def test_annotate_what_is_gone_is_not_found(client: KubeClient) -> None:
    with pytest.raises(NotFound):
        await annotate(client, CONFIGMAPS, key("p"), "1", {"status": "ok"}, "tester")


async def test_amend_sets_and_removes_and_leaves_everything_else(
    api: FakeApiServer, client: KubeClient
) -> None:
    has = {"a/b~c": "1", "b": "2", "c": "3"}
    read = api.put(REPLICASETS, key("web"), metadata={"annotations": has})["metadata"]
    wanted = Amend(
        read["uid"],
        {"a/b~c": None, "b": "new"},
        {"l": "1"},
        read["resourceVersion"],
        frozenset(["labels"]),
    )
    await amend_metadata(client, REPLICASETS, key("web"), wanted, "tester")
    found = api.get(REPLICASETS, key("web"))["metadata"]
    assert (found["annotations"], found["labels"]) == ({"b": "new", "c": "3"}, {"l": "1"})
    assert api.http.requests[-1].query == {"fieldManager": "tester"}


@pytest.mark.parametrize("stale", ["uid", "version"])
async def test_amend_of_what_is_not_as_it_was_read_is_a_conflict_and_writes_nothing(
    api: FakeApiServer, client: KubeClient, stale: str
) -> None:
    stored = api.put(REPLICASETS, key("web"), metadata={"annotations": {"a": "1"}})
    read = stored["metadata"]
    of = {"uid": read["uid"], "version": read["resourceVersion"], stale: "other"}
    wanted = Amend(of["uid"], {"a": None}, {}, of["version"])
    with pytest.raises(Conflict):
        await amend_metadata(client, REPLICASETS, key("web"), wanted, "tester")
    assert api.get(REPLICASETS, key("web")) == stored


async def test_amend_of_what_is_gone_is_not_found(client: KubeClient) -> None:
    with pytest.raises(NotFound):
        await amend_metadata(client, REPLICASETS, key("web"), Amend("u", {"a": None}), "tester")


@pytest.mark.parametrize("amended", [True, False])
async def test_a_value_that_is_refused_is_terminal(
    api: FakeApiServer, client: KubeClient, *, amended: bool
) -> None:
    read = api.put(REPLICASETS, key("web"))["metadata"]
    refused = '{"message": "metadata.annotations: Too long"}'
    api.http.fault(lambda r: r.method == "PATCH", answer(422, refused.encode()))
    step = Amend(read["uid"], {"a": "1"}, {}, read["resourceVersion"])
    wanted = Apply(read["uid"], {"a": "1"})
    with pytest.raises(Terminal, match="Too long"):
        await (
            amend_metadata(client, REPLICASETS, key("web"), step, "tester")
            if amended
            else apply_metadata(client, REPLICASETS, "ReplicaSet", key("web"), wanted, "tester")
        )
