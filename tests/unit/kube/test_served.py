from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.errors import Refused, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.served import Resource, preference, served
from kube_sync.objects import GroupVersionResource
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CONFIGMAPS, kube_of
from tests.fakes.definitions import resource
from tests.fakes.http import answer

GROUP = "shop.example"


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        yield api


@pytest.fixture
async def client(api: FakeApiServer, tmp_path: Path) -> AsyncGenerator[KubeClient]:
    async with kube_of(api, tmp_path) as client:
        yield client


def shop(version: str) -> GroupVersionResource:
    return resource("Shop", GROUP, version)


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


async def test_the_core_is_a_group_too(api: FakeApiServer, client: KubeClient) -> None:
    api.define(CONFIGMAPS, "ConfigMap")
    (found,) = await served(client, "")
    assert (found.gvr, found.kind, found.namespaced) == (CONFIGMAPS, "ConfigMap", True)


async def test_a_group_that_is_not_there_serves_nothing(client: KubeClient) -> None:
    assert await served(client, GROUP) == ()


async def test_a_version_that_goes_between_two_requests_serves_nothing(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.define(shop("v1"), "Shop")
    api.define(shop("v1beta1"), "Shop")
    api.http.fault(lambda r: r.path == f"/apis/{GROUP}/v1", answer(404))
    assert [one.gvr for one in await served(client, GROUP)] == [shop("v1beta1")]


@pytest.mark.parametrize("path", [f"/apis/{GROUP}", f"/apis/{GROUP}/v1"])
async def test_what_is_no_discovery_is_retriable(
    api: FakeApiServer, client: KubeClient, path: str
) -> None:
    api.define(shop("v1"), "Shop")
    body = json.dumps({"versions": 3, "resources": {}}).encode()
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
