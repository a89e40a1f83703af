from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from kube_sync.errors import Misconfigured, NotFound, Refused
from kube_sync.inspect.installation.finding import find_pods, find_running
from kube_sync.kube.client import KubeClient
from kube_sync.kube.lease import LEASES
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import key, kube_of
from tests.fakes.http import failing
from tests.fakes.installations import HOME, define, put_pod

EVERYWHERE = "/api/v1/pods"


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        define(api)
        yield api


@pytest.fixture
async def client(api: FakeApiServer, tmp_path: Path) -> AsyncGenerator[KubeClient]:
    async with kube_of(api, tmp_path) as client:
        yield client


async def test_the_only_installation_is_found_wherever_it_is(
    api: FakeApiServer, client: KubeClient
) -> None:
    put_pod(api, "a", "replicate", namespace="elsewhere")
    (pod,) = await find_pods(client, None, {})
    assert str(pod.key) == "elsewhere/a"


@pytest.mark.parametrize("environment", [{}, {"KUBE_SYNC_COORDINATION_NAMESPACE": HOME}])
async def test_who_sees_one_namespace_finds_the_installation_there(
    api: FakeApiServer, client: KubeClient, environment: dict[str, str]
) -> None:
    put_pod(api, "a", "replicate")
    api.http.fault(lambda one: one.path == EVERYWHERE, failing(403, "no"))
    (pod,) = await find_pods(client, None, environment)
    assert str(pod.key) == "kube-sync/a"


async def test_of_several_installations_one_has_to_be_named(
    api: FakeApiServer, client: KubeClient
) -> None:
    for namespace in ("one", "two"):
        put_pod(api, "a", "replicate", namespace=namespace)
    with pytest.raises(Misconfigured, match=r"^--installation: .* in one and in two; say which$"):
        await find_pods(client, None, {})
    (pod,) = await find_pods(client, "two", {})
    assert pod.key.namespace == "two"


async def test_no_installation_is_an_error_that_says_what_to_name(client: KubeClient) -> None:
    with pytest.raises(NotFound, match=r"in this cluster: install kube-sync .* by --installation"):
        await find_pods(client, None, {})
    with pytest.raises(NotFound, match="in namespace mine"):
        await find_pods(client, "mine", {})


async def test_a_named_namespace_that_may_not_be_seen_is_refused(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.http.fault(lambda _: True, failing(403, "no"))
    with pytest.raises(Refused):
        await find_pods(client, "mine", {})


async def test_a_pod_that_is_ready_is_asked_first(api: FakeApiServer, client: KubeClient) -> None:
    put_pod(api, "a", "replicate", status={})
    put_pod(api, "b", "admit", "replicate")
    found = await find_running(client, await find_pods(client, None, {}), "replicate")
    assert (str(found), found.container.name) == ("pod kube-sync/b", "replicate")


async def test_of_remediators_the_leader_is_asked(api: FakeApiServer, client: KubeClient) -> None:
    for name in ("a", "b"):
        put_pod(api, name, "remediate")
    pods = await find_pods(client, None, {})
    assert (await find_running(client, pods, "remediate")).pod.key.name == "a"
    lease = key("kube-sync-remediator", HOME)
    api.put(LEASES, lease, spec={"holderIdentity": "b_0123456789abcdef"})
    assert (await find_running(client, pods, "remediate")).pod.key.name == "b"


async def test_one_process_that_runs_everything_runs_each_of_it(
    api: FakeApiServer, client: KubeClient
) -> None:
    put_pod(api, "a", "run")
    pods = await find_pods(client, None, {})
    assert (await find_running(client, pods, "remediate")).container.name == "run"


async def test_what_nothing_runs_is_named(api: FakeApiServer, client: KubeClient) -> None:
    put_pod(api, "a", "admit")
    pods = await find_pods(client, None, {})
    with pytest.raises(NotFound, match="in kube-sync runs `remediate`"):
        await find_running(client, pods, "remediate")
