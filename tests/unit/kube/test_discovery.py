from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.errors import NotFound, Refused, Retriable, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.kube.discovery import (
    Resource,
    is_namespaced,
    kind_of,
    names_of,
    preference,
    served,
)
from kube_sync.objects import GroupVersionResource
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CONFIGMAPS, REPLICASETS, kube_of
from tests.fakes.definitions import resource
from tests.fakes.http import answer

GROUP = "shop.example"
NODES = GroupVersionResource("", "v1", "nodes")


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        api.define(REPLICASETS, "ReplicaSet")
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(NODES, "Node", namespaced=False)
        yield api


@pytest.fixture
async def client(api: FakeApiServer, tmp_path: Path) -> AsyncGenerator[KubeClient]:
    async with kube_of(api, tmp_path) as client:
        yield client


async def test_kind_is_asked_of_discovery(client: KubeClient) -> None:
    assert await kind_of(client, REPLICASETS) == "ReplicaSet"
    assert await kind_of(client, CONFIGMAPS) == "ConfigMap"


async def test_kind_of_an_unknown_group_is_not_found(client: KubeClient) -> None:
    with pytest.raises(NotFound):
        await kind_of(client, GroupVersionResource("example.org", "v1", "things"))


async def test_kind_of_an_unknown_resource_is_terminal_and_named(client: KubeClient) -> None:
    with pytest.raises(Terminal, match=r"things\.v1\.apps: .*CRD"):
        await kind_of(client, GroupVersionResource("apps", "v1", "things"))


async def test_discovery_that_is_no_list_of_resources_is_retriable(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.http.fault(lambda _r: True, answer(200, b"<html>"))
    with pytest.raises(Retriable, match="/apis/apps/v1 of the API server"):
        await kind_of(client, REPLICASETS)


async def test_names_of_a_kind_are_asked_of_discovery(
    api: FakeApiServer, client: KubeClient
) -> None:
    listed = {
        "name": "replicasets",
        "singularName": "replicaset",
        "shortNames": ["rs"],
        "namespaced": True,
        "kind": "ReplicaSet",
    }
    body = json.dumps({"kind": "APIResourceList", "resources": [listed]}).encode()
    api.http.fault(lambda request: request.path.endswith("/apis/apps/v1"), answer(200, body))
    assert {"rs", "replicaset", "replicasets"} <= await names_of(client, REPLICASETS)


@pytest.mark.parametrize("group", ["apps", "example.org"])
async def test_an_unknown_kind_has_no_names(client: KubeClient, group: str) -> None:
    assert await names_of(client, GroupVersionResource(group, "v1", "things")) == frozenset()


async def test_namespaces_are_asked_of_discovery(client: KubeClient) -> None:
    assert await is_namespaced(client, REPLICASETS)
    assert not await is_namespaced(client, NODES)


@pytest.mark.parametrize("group", ["apps", "example.org"])
async def test_namespaces_of_an_unknown_resource_are_not_found_and_named(
    client: KubeClient, group: str
) -> None:
    with pytest.raises(NotFound, match=r"^things\.v1\..*CRD"):
        await is_namespaced(client, GroupVersionResource(group, "v1", "things"))


def shop(version: str) -> GroupVersionResource:
    return resource("Shop", GROUP, version)


def _group(*versions: str) -> dict[str, object]:
    return {"name": GROUP, "versions": [{"version": version} for version in versions]}


async def test_resources_come_by_preference_of_their_versions(
    api: FakeApiServer, client: KubeClient
) -> None:
    for version in ("v1", "v1beta1", "v2"):
        api.define(shop(version), "Shop", namespaced=False)
    found = await served(client, GROUP)
    assert [one.gvr for one in found] == [shop("v2"), shop("v1"), shop("v1beta1")]
    assert {(one.kind, one.namespaced, one.can_be_followed) for one in found} == {
        ("Shop", False, True)
    }


async def test_the_core_is_a_group_too(client: KubeClient) -> None:
    found = {one.gvr: (one.kind, one.namespaced) for one in await served(client, "")}
    assert found == {CONFIGMAPS: ("ConfigMap", True), NODES: ("Node", False)}


async def test_a_group_that_is_not_there_serves_nothing(client: KubeClient) -> None:
    assert await served(client, GROUP) == ()


async def test_a_version_that_goes_between_two_requests_serves_nothing(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.define(shop("v1"), "Shop")
    api.define(shop("v1beta1"), "Shop")
    listed = {"kind": "APIGroupList", "groups": [_group("v1beta1")]}
    api.http.fault(lambda r: r.path == f"/apis/{GROUP}/v1", answer(404))
    api.http.fault(lambda r: r.path == "/apis", answer(200, json.dumps(listed).encode()))
    assert [one.gvr for one in await served(client, GROUP)] == [shop("v1beta1")]


@pytest.mark.parametrize("path", [f"/apis/{GROUP}", f"/apis/{GROUP}/v1"])
async def test_404_of_a_group_that_is_listed_is_no_absence(
    api: FakeApiServer, client: KubeClient, path: str
) -> None:
    """A proxy may answer it while the API server starts."""
    api.define(shop("v1"), "Shop")
    api.http.fault(lambda r: r.path == path, answer(404))
    with pytest.raises(Retriable, match=f"^{path} of the API server is there"):
        await served(client, GROUP)


@pytest.mark.parametrize(("group", "path"), [(GROUP, "/apis"), ("", "/api")])
async def test_404_of_everything_is_no_absence(
    api: FakeApiServer, client: KubeClient, group: str, path: str
) -> None:
    api.http.fault(lambda _r: True, answer(404), times=2)
    with pytest.raises(Retriable, match=f"^{path} of the API server is there"):
        await served(client, group)


async def test_404_of_a_version_of_the_core_is_no_absence(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.http.fault(lambda r: r.path == "/api/v1", answer(404))
    with pytest.raises(Retriable, match=r"^/api/v1 of the API server is there"):
        await is_namespaced(client, CONFIGMAPS)


@pytest.mark.parametrize("path", [f"/apis/{GROUP}", f"/apis/{GROUP}/v1"])
async def test_what_is_no_discovery_is_retriable(
    api: FakeApiServer, client: KubeClient, path: str
) -> None:
    api.define(shop("v1"), "Shop")
    body = json.dumps({"kind": "APIResourceList", "versions": 3, "resources": {}}).encode()
    api.http.fault(lambda r: r.path == path, answer(200, body))
    with pytest.raises(Retriable, match=f"{path} of the API server"):
        await served(client, GROUP)


async def test_a_refusal_is_no_absence(api: FakeApiServer, client: KubeClient) -> None:
    api.define(shop("v1"), "Shop")
    api.http.fault(lambda _r: True, answer(403))
    with pytest.raises(Refused):
        await served(client, GROUP)


@pytest.mark.parametrize("verbs", [{"list"}, {"watch", "get"}, set()])
def test_a_resource_without_list_and_watch_cannot_be_followed(verbs: set[str]) -> None:
    assert not Resource(shop("v1"), "Shop", namespaced=True, verbs=frozenset(verbs)).can_be_followed


def test_versions_are_preferred_as_kubernetes_does() -> None:
    # The example of its documentation, "Version priority".
    wanted = (
        *("v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2"),
        *("foo1", "foo10"),
    )
    assert tuple(sorted(set(wanted), key=preference)) == wanted


@given(st.lists(st.text("v0123456789alphbet", max_size=8), unique=True))
def test_no_two_versions_are_preferred_alike(names: list[str]) -> None:
    assert len({preference(name) for name in names}) == len(names)
