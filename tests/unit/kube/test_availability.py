from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from kube_sync.errors import NotFound, Unconfirmed
from kube_sync.kube.availability import Availability, is_built_in
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection, ResourceVersion
from kube_sync.kube.definitions import DEFINITIONS
from kube_sync.objects import GroupVersionResource
from tests.fakes.apiserver import FakeApiServer, error_event, fake_apiserver, lists, watches
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, kube_of
from tests.fakes.definitions import definition, install, uninstall
from tests.fakes.http import Recorded, answer, failing, stream
from tests.fakes.listing import whole

KIND = "ClusterProfile"
DEFINED = definition(KIND, CLUSTERS.group, CLUSTERS.version)
GONE = NotFound("404 page not found")


def asks_definition(recorded: Recorded) -> bool:
    return recorded.path.startswith(f"{DEFINITIONS.path()}/")


def asks_discovery(recorded: Recorded) -> bool:
    return recorded.path == f"/apis/{CLUSTERS.group}/{CLUSTERS.version}"


class Bench:
    """What is known of ClusterProfiles, and a clock."""

    def __init__(self, api: FakeApiServer, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.now = 0.0
        self.availability = Availability(client, CLUSTERS, lambda: self.now)
        api.define(DEFINITIONS, "CustomResourceDefinition", namespaced=False)

    async def doubt(self) -> str:
        """Return why a 404 is not believed."""
        with pytest.raises(Unconfirmed) as raised:
            await self.availability.confirm(GONE)
        return str(raised.value)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench]:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        yield Bench(api, client)


@pytest.mark.parametrize(
    ("group", "version", "built_in"),
    [
        ("", "v1", True),
        ("apps", "v1", True),
        ("autoscaling", "v2", True),
        ("admissionregistration.k8s.io", "v1", True),
        ("resource.k8s.io", "v1beta1", False),
        ("federation", "v1beta1", False),
        ("gateway.networking.k8s.io", "v1", False),
        ("metrics.k8s.io", "v1", False),
        ("apiextensions.k8s.io", "v1", False),
    ],
)
def test_only_what_every_api_server_serves_is_built_in(
    group: str, version: str, *, built_in: bool
) -> None:
    assert is_built_in(GroupVersionResource(group, version, "things")) is built_in


@pytest.mark.parametrize("gvr", [CONFIGMAPS, REPLICASETS])
async def test_404_of_a_built_in_kind_is_never_believed(
    bench: Bench, gvr: GroupVersionResource
) -> None:
    """Neither the fake's discovery nor its LIST knows the kind."""
    with pytest.raises(Unconfirmed, match=r"404 .*the kind is built in"):
        await whole(KubeCollection(bench.client, gvr))


async def test_kind_without_discovery_and_definition_is_gone(bench: Bench) -> None:
    with pytest.raises(NotFound):
        await whole(KubeCollection(bench.client, CLUSTERS))
    assert await bench.availability.is_gone()


async def test_404_of_a_kind_that_discovery_has_is_not_believed(bench: Bench) -> None:
    bench.api.define(CLUSTERS, KIND, builtin=False)  # as an APIService would be: no definition
    assert "discovery has the kind" in await bench.doubt()


async def test_404_of_a_kind_whose_definition_is_stored_is_not_believed(bench: Bench) -> None:
    """Discovery lacks custom resources for some seconds after a start."""
    install(bench.api, DEFINED)
    bench.api.undefine(CLUSTERS)
    assert "its CustomResourceDefinition is there" in await bench.doubt()


async def test_version_that_the_definition_does_not_serve_is_gone(bench: Bench) -> None:
    old = CLUSTERS.version
    install(bench.api, definition(KIND, CLUSTERS.group, "v1", old, unserved=[old]))
    assert await bench.availability.is_gone()


@pytest.mark.parametrize("handler", [failing(403, "no"), answer(404, b"404 page not found")])
async def test_where_nobody_reads_definitions_discovery_has_to_lack_the_kind_for_a_while(
    bench: Bench, handler: object
) -> None:
    bench.api.http.fault(asks_definition, handler, times=10**6)  # type: ignore[arg-type] # a Handler
    assert "for 10 s" in await bench.doubt()
    bench.now = 9.9
    assert "for 10 s" in await bench.doubt()
    bench.now = 10.0
    await bench.availability.confirm(GONE)
    assert await bench.availability.is_gone()


async def test_kind_that_was_served_meanwhile_has_to_be_lacking_anew(bench: Bench) -> None:
    bench.api.http.fault(asks_definition, failing(403, "no"), times=10**6)
    await bench.doubt()
    bench.now = 60.0
    bench.availability.seen()
    assert "for 10 s" in await bench.doubt()
    bench.now = 120.0
    bench.api.http.fault(asks_discovery, failing(503, "starting"))
    assert "starting" in await bench.doubt()
    assert "for 10 s" in await bench.doubt()


async def test_list_and_watch_that_are_served_count_as_seen(bench: Bench) -> None:
    bench.api.http.fault(asks_definition, failing(403, "no"), times=10**6)
    source = KubeCollection(bench.client, CLUSTERS, clock=lambda: bench.now)
    for step in ("list", "watch"):
        with pytest.raises(Unconfirmed):
            await whole(source)
        bench.api.define(CLUSTERS, KIND, builtin=False)
        bench.now += 60.0
        if step == "list":
            await whole(source)
        else:
            bench.api.http.fault(watches(CLUSTERS), stream(b""))
            _ = [event async for event in source.watch(ResourceVersion("1"))]
        bench.api.undefine(CLUSTERS)
    with pytest.raises(Unconfirmed):
        await whole(source)


@pytest.mark.parametrize(
    ("asked", "handler"),
    [
        (lambda _r: True, answer(404, b"404 page not found")),  # a proxy without a backend
        (asks_discovery, failing(503, "starting")),
        (asks_discovery, answer(200, b"{}")),
        (asks_discovery, answer(200, b'{"kind":"Status","resources":[]}')),
        (lambda r: r.path == "/apis", answer(200, b'{"kind":"Status"}')),
        (lambda r: r.path == "/apis", answer(404, b"404 page not found")),
        (asks_definition, answer(200, b"{}")),
        (asks_definition, failing(500, "etcd")),
    ],
)
async def test_404_is_not_believed_where_nobody_answers_properly(
    bench: Bench, asked: object, handler: object
) -> None:
    bench.api.http.fault(asked, handler, times=10**6)  # type: ignore[arg-type] # as lambdas
    assert "not believed" in await bench.doubt()


async def test_404_of_a_discovery_that_lists_the_version_is_not_believed(bench: Bench) -> None:
    bench.api.define(CLUSTERS, KIND, builtin=False)
    bench.api.http.fault(asks_discovery, answer(404, b"404 page not found"))
    assert "is there, but not served now" in await bench.doubt()


async def test_watch_that_says_404_is_judged_as_a_list_is(bench: Bench) -> None:
    install(bench.api, DEFINED)
    source = KubeCollection(bench.client, CLUSTERS)
    bench.api.http.fault(watches(CLUSTERS), answer(404, b"404 page not found"))
    bench.api.http.fault(watches(CLUSTERS), stream(error_event(404, "NotFound")))
    for _ in range(2):
        with pytest.raises(Unconfirmed):
            _ = [event async for event in source.watch(ResourceVersion("1"))]
    uninstall(bench.api, DEFINED)
    with pytest.raises(NotFound):
        _ = [event async for event in source.watch(ResourceVersion("1"))]


async def test_list_that_is_served_asks_nothing_else(bench: Bench) -> None:
    bench.api.define(CLUSTERS, KIND, builtin=False)
    await whole(KubeCollection(bench.client, CLUSTERS))
    assert all(map(lists(CLUSTERS), bench.api.http.requests))
