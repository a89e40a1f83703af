from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from kube_sync.errors import NotFound, Retriable, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.kube.discovery import is_namespaced, kind_of
from kube_sync.objects import GroupVersionResource
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CONFIGMAPS, REPLICASETS, kube_of
from tests.fakes.http import answer

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


async def test_namespaces_are_asked_of_discovery(client: KubeClient) -> None:
    assert await is_namespaced(client, REPLICASETS)
    assert not await is_namespaced(client, NODES)


@pytest.mark.parametrize("group", ["apps", "example.org"])
async def test_namespaces_of_an_unknown_resource_are_not_found_and_named(
    client: KubeClient, group: str
) -> None:
    with pytest.raises(NotFound, match=r"^things\.v1\..*CRD"):
        await is_namespaced(client, GroupVersionResource(group, "v1", "things"))
