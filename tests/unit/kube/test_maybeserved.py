from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from kube_sync.errors import Expired, Refused, Retriable, SyncError
from kube_sync.kube import availability
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import ResourceVersion
from kube_sync.kube.definitions import DEFINITIONS
from kube_sync.kube.maybeserved import MaybeServed
from kube_sync.kube.placementpolicies import KIND, PLACEMENT_POLICIES, PlacementPolicies
from kube_sync.kube.reflector import Reflector
from kube_sync.objects import ObjectKey
from tests.fakes.apiserver import FakeApiServer, continues, fake_apiserver, lists
from tests.fakes.clients import key, kube_of
from tests.fakes.http import Recorded, answer, failing
from tests.fakes.listing import whole
from tests.unit.async_tools import Waits, running, until

DEFINED = ObjectKey("", "placementpolicies.policy.kube-sync.io")
SPEC = {"modules": [{"name": "a.rego", "rego": "package a"}]}
LISTS = lists(PLACEMENT_POLICIES)


def definition(recorded: Recorded) -> bool:
    return recorded.path == DEFINITIONS.path(name=DEFINED.name)


def discovery(recorded: Recorded) -> bool:
    return recorded.path == "/apis/policy.kube-sync.io/v1alpha1"


class Bench:
    """A Reflector of a kind that need not be there; `looks` are waits between two looks for it."""

    def __init__(self, api: FakeApiServer, client: KubeClient) -> None:
        self.api = api
        self.waits = Waits()
        self.looks = asyncio.Semaphore(0)
        self.store = PlacementPolicies("policies", lambda: None)
        self.source = MaybeServed(client, PLACEMENT_POLICIES, "policies", sleep=self._look)
        self.reports: list[str | None] = []
        self.reflector = Reflector(
            "test", self.source, self.store, self.reports.append, backoff=self.waits.backoff()
        )

    async def _look(self, _seconds: float) -> None:
        await self.looks.acquire()

    def install(self) -> None:
        self.api.define(DEFINITIONS, "CustomResourceDefinition", namespaced=False)
        served = {"name": PLACEMENT_POLICIES.version, "served": True}
        self.api.put(DEFINITIONS, DEFINED, spec={"versions": [served]})
        self.api.define(PLACEMENT_POLICIES, KIND, builtin=False)

    def uninstall(self) -> None:
        self.api.delete(DEFINITIONS, DEFINED)
        self.api.undefine(PLACEMENT_POLICIES)

    def policy(self, name: str) -> None:
        self.api.put(PLACEMENT_POLICIES, key(name, "policies"), spec=SPEC)

    @property
    def held(self) -> int:
        return len(self.store)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench]:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        yield Bench(api, client)


async def test_a_kind_that_is_not_installed_is_an_empty_collection(bench: Bench) -> None:
    bench.api.define(DEFINITIONS, "CustomResourceDefinition", namespaced=False)
    async with running(bench.reflector.run()):
        await until(lambda: bench.reports)
        assert (bench.store.listed, bench.held) == (True, 0)
        await until(lambda: any(map(discovery, bench.api.http.requests)))
    assert set(bench.reports) == {None}


async def test_a_kind_that_is_installed_later_is_picked_up(bench: Bench) -> None:
    async with running(bench.reflector.run()):
        await until(lambda: bench.store.listed)
        bench.install()
        bench.policy("a")
        bench.looks.release()
        await until(lambda: bench.held == 1)
        await bench.api.watched(PLACEMENT_POLICIES)
        bench.policy("b")
        await until(lambda: bench.held == 2)


async def test_deleting_the_kind_takes_its_objects_away(bench: Bench) -> None:
    bench.install()
    bench.policy("a")
    async with running(bench.reflector.run()):
        await bench.api.watched(PLACEMENT_POLICIES)
        assert bench.held == 1
        bench.uninstall()
        await until(lambda: bench.held == 0)
        assert bench.store.listed
        bench.install()
        bench.policy("b")
        bench.looks.release()
        await until(lambda: bench.held == 1)


async def test_a_kind_that_is_defined_and_not_served_takes_nothing_away(bench: Bench) -> None:
    """As an API server that starts says, or one that is replaced."""
    bench.install()
    bench.policy("a")
    async with running(bench.reflector.run()):
        await bench.api.watched(PLACEMENT_POLICIES)
        bench.api.undefine(PLACEMENT_POLICIES)
        await until(lambda: "its CustomResourceDefinition is there" in (bench.reports[-1] or ""))
        assert bench.held == 1
        bench.api.define(PLACEMENT_POLICIES, KIND, builtin=False)
        bench.policy("a")
        bench.policy("b")
        await until(lambda: bench.held == 2)


async def test_a_404_of_somebody_else_takes_nothing_away(bench: Bench) -> None:
    """A proxy without a backend says it of everything."""
    bench.install()
    bench.policy("a")
    async with running(bench.reflector.run()):
        await bench.api.watched(PLACEMENT_POLICIES)
        fault = bench.api.http.fault(lambda _: True, answer(404, b"404 page not found"), times=9)
        bench.api.http.cut()
        await fault.met.wait()
        await until(lambda: bench.reports[-1] is not None)
        assert bench.held == 1


async def test_a_404_of_everything_but_discovery_is_not_believed_at_a_start(bench: Bench) -> None:
    bench.install()
    for matches in (LISTS, definition):
        bench.api.http.fault(matches, answer(404, b"404 page not found"), times=1)
    with pytest.raises(Retriable, match="discovery has the kind"):
        await whole(bench.source)


async def test_whoever_may_not_ask_for_definitions_is_told_by_discovery(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "SURE_SECONDS", 0.0)
    bench.api.http.fault(definition, failing(403, "no"), times=9)
    bench.api.http.fault(LISTS, failing(403, "no"), times=9)
    assert (await whole(bench.source)).items == []
    bench.install()
    with pytest.raises(Refused, match="no"):
        await whole(bench.source)


async def test_whoever_may_not_ask_believes_discovery_no_more_once_it_was_seen(
    bench: Bench,
) -> None:
    bench.install()
    await whole(bench.source)
    bench.uninstall()
    bench.api.http.fault(definition, failing(403, "no"), times=9)
    with pytest.raises(Retriable):
        await whole(bench.source)


async def test_a_refused_list_of_a_kind_that_is_there_is_refused(bench: Bench) -> None:
    bench.install()
    bench.api.http.fault(LISTS, failing(403, "no"), times=1)
    with pytest.raises(Refused, match="no"):
        await whole(bench.source)


async def test_a_failure_is_no_absence(bench: Bench) -> None:
    bench.api.http.fault(definition, failing(503, "starting"), times=1)
    with pytest.raises(SyncError, match="starting"):
        await whole(bench.source)


async def test_a_kind_that_goes_while_it_is_listed_is_not_half_there(bench: Bench) -> None:
    bench.install()
    bench.api.page_size = 1
    bench.policy("a")
    bench.policy("b")

    def goes(recorded: Recorded) -> bool:
        if found := continues(PLACEMENT_POLICIES)(recorded):
            bench.uninstall()
        return found

    bench.api.http.fault(goes, answer(404, b"404 page not found"))
    with pytest.raises(Retriable, match="broke off"):
        await whole(bench.source)


async def test_a_look_that_failed_is_over_when_the_next_one_succeeds(bench: Bench) -> None:
    """What is not current for long counts as a policy: it has to be told when it is again."""
    async with running(bench.reflector.run()):
        await until(lambda: bench.store.listed)
        bench.api.http.fault(discovery, failing(503, "away"), times=1)
        bench.looks.release()
        await until(lambda: any(bench.reports))
        await until(lambda: bench.reports[-1] is None)


async def test_watching_what_is_there_now_says_to_list_it_again(bench: Bench) -> None:
    bench.install()
    with pytest.raises(Expired, match="is served now"):
        _ = [event async for event in bench.source.watch(ResourceVersion(""))]
