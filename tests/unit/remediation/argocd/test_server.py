"""The endpoint as Argo CD's controller asks it: by HTTP, and it reads status and message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube_sync.decisions.records import BookmarkRecord, DecisionRecord, StatusRecord, Target
from kube_sync.errors import NotFound, Retriable, SyncError, Unconfirmed
from kube_sync.guard import Placements
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.argocd import server as module
from kube_sync.remediation.argocd.clusters import ArgoClusters
from kube_sync.remediation.argocd.generator import Generator
from kube_sync.remediation.argocd.let_through import Carried
from kube_sync.remediation.argocd.server import PATH, generator_app
from kube_sync.remediation.decision_cache import DecisionCache
from kube_sync.remediation.events import Notice
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tokenfile import TokenFile
from tests.unit.remediation.argocd.test_clusters import secret
from tests.unit.remediation.argocd.test_let_through import by_hand, decided, guarded

DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
WEB = {"resource": "deployments.apps", "namespace": "shop", "name": "web"}
TOKEN = "s3cr3t"


@dataclass
class World:
    """Objects of an API server, decisions, and a generator that answers about them."""

    clusters: ArgoClusters = field(default_factory=ArgoClusters)
    objects: dict[ObjectKey, Carried] = field(default_factory=dict)
    failure: SyncError | None = None
    hangs: asyncio.Event | None = None
    notices: list[Notice] = field(default_factory=list)
    now: float = 1_000.0
    url: str = ""

    def __post_init__(self) -> None:
        self.decisions = DecisionCache(lambda: self.now)

    async def read(self, gvr: GroupVersionResource, key: ObjectKey) -> Carried | None:
        assert gvr == DEPLOYMENTS
        if self.hangs is not None:
            await self.hangs.wait()
        if self.failure is not None:
            raise self.failure
        return self.objects.get(key)

    async def know(self, *names: str) -> None:
        """List the clusters of Argo CD; a name that is there twice has two Secrets."""
        items = [
            secret(f"s{n}", {"name": name, "server": f"https://{name}"}, {"tier": "gold"})
            for n, name in enumerate(names)
        ]
        await self.clusters.page(items)
        self.clusters.finish(known=True)

    def carry(self, carried: Carried) -> None:
        self.objects[ObjectKey("shop", "web")] = carried

    def decide(self, clusters: str) -> None:
        wanted = decided(clusters)
        target = Target("apps", "v1", "deployments", "web", "shop")
        self.decisions.apply_record(DecisionRecord(target, "u", wanted.decision, 1, "data", "p1"))
        self.decisions.apply_record(StatusRecord((), "fake"))
        self.decisions.apply_record(BookmarkRecord(1, "fake"))

    async def post(self, body: object, token: str = TOKEN) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        text = body if isinstance(body, str) else json.dumps(body)
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(self.url + PATH, data=text) as response,
        ):
            return response.status, await response.json()

    async def ask(self, application_set: str = "set", **parameters: str) -> tuple[int, Any]:
        asked = {**WEB, **parameters}
        status, said = await self.post(
            {"applicationSetName": application_set, "input": {"parameters": asked}}
        )
        return status, said["output"]["parameters"] if status == 200 else said["message"]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    world, file = World(), tmp_path / "token"
    file.write_text(TOKEN)
    generator = Generator(
        world,
        [DEPLOYMENTS],
        world.clusters,
        world.decisions,
        Placements(),
        frozenset,
        lambda: world.now,
        world.notices.append,
    )
    app = generator_app(generator, TokenFile(str(file)))
    async with serving(app, ("127.0.0.1", 0), grace=0.05) as port:
        world.url = f"http://127.0.0.1:{port}"
        yield world


async def test_each_cluster_comes_with_name_server_labels_and_reason(world: World) -> None:
    await world.know("a", "b", "c")
    world.carry(guarded("ab"))
    world.decide("ab")
    assert await world.ask() == (
        200,
        [
            {
                "name": name,
                "server": f"https://{name}",
                "labels": {"tier": "gold"},
                "reason": "selected by the policies",
            }
            for name in "ab"
        ],
    )


@pytest.mark.parametrize("resource", ["deployments", "deployments.apps"])
async def test_a_resource_may_be_named_with_its_group_or_without(
    world: World, resource: str
) -> None:
    await world.know("a")
    world.carry(guarded("a"))
    assert (await world.ask(resource=resource))[0] == 200


async def test_what_was_let_through_is_answered_before_any_decision_is_known(world: World) -> None:
    """As after a restart: the object has it."""
    await world.know("a")
    world.carry(guarded("a"))
    status, found = await world.ask()
    assert (status, [one["name"] for one in found]) == (200, ["a"])


async def test_a_decision_that_is_held_is_no_decision(world: World) -> None:
    await world.know("a", "b")
    world.carry(by_hand("a"))
    world.decide("a")
    assert (await world.ask())[0] == 200
    world.decisions.apply_record(StatusRecord(("OPA is being loaded",), "fake"))
    status, why = await world.ask()
    assert (status, "no usable decision on it is known" in why) == (409, True)


async def test_before_the_clusters_are_listed_there_is_no_answer(world: World) -> None:
    world.carry(guarded("a"))
    status, why = await world.ask()
    assert status == 503
    assert why == "deployments.apps shop/web: the clusters of Argo CD are not listed yet"


async def test_a_cluster_that_argo_cd_does_not_know_is_named(world: World) -> None:
    await world.know("a")
    world.carry(guarded("abcdefgh"))
    status, why = await world.ask()
    assert status == 409
    assert why.endswith("Argo CD knows no cluster b, c, d, e, f and 2 more")
    assert [(one.kind, one.uid) for one in world.notices] == [("unanswered", "u")]


async def test_a_name_of_two_clusters_is_refused(world: World) -> None:
    await world.know("a", "a")
    world.carry(guarded("a"))
    status, why = await world.ask()
    assert status == 409
    assert why.endswith("Argo CD has several clusters a: Secrets argocd/s0, argocd/s1")


async def test_an_object_that_is_not_there_is_refused(world: World) -> None:
    await world.know("a")
    assert await world.ask() == (404, "there is no deployments.apps shop/web")


@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        (NotFound("404"), 503, "the API server does not serve deployments.apps now"),
        (Unconfirmed("404"), 503, "the API server does not serve deployments.apps now"),
        (Retriable("no answer"), 503, "deployments.apps shop/web cannot be read now: no answer"),
    ],
)
async def test_an_object_that_cannot_be_read_is_refused(
    world: World, failure: SyncError, status: int, said: str
) -> None:
    world.failure = failure
    assert await world.ask() == (status, said)


async def test_an_api_server_that_does_not_answer_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.05)
    world.hangs = asyncio.Event()
    status, why = await world.ask()
    assert (status, why) == (503, "no answer of the API server within 0 s")


async def test_a_collection_without_decisions_is_refused(world: World) -> None:
    status, why = await world.ask(resource="pods")
    assert (status, why) == (
        400,
        "input.parameters.resource: 'pods'; placed are: deployments.apps",
    )


@pytest.mark.parametrize(
    "body",
    [
        "no JSON",
        "[]",
        {"applicationSetName": "set"},
        {"applicationSetName": "set", "input": {"parameters": {"resource": "deployments"}}},
        {"applicationSetName": "set", "input": {"parameters": {**WEB, "nmae": "web"}}},
        {"applicationSetName": "set", "input": {"parameters": {**WEB, "name": "web,a=b"}}},
        {"applicationSetName": "set", "input": {"parameters": {**WEB, "namespace": "a/b"}}},
    ],
)
async def test_a_request_that_cannot_be_read_is_refused(world: World, body: object) -> None:
    status, said = await world.post(body)
    assert status == 400
    assert said["message"].startswith("the request cannot be read: ")


async def test_a_wrong_token_gets_no_clusters(world: World) -> None:
    await world.know("a")
    world.carry(guarded("a"))
    status, said = await world.post(
        {"applicationSetName": "set", "input": {"parameters": WEB}}, "wrong"
    )
    assert status == 401
    assert said == {"message": "the bearer token is not that of remediate.argocd.token_file"}


async def test_a_token_file_that_is_gone_gets_no_clusters(world: World, tmp_path: Path) -> None:
    (tmp_path / "token").unlink()
    status, why = await world.ask()
    assert (status, "token" in why) == (503, True)


async def test_two_application_sets_of_one_object_are_reported_on_it(world: World) -> None:
    await world.know("a")
    world.carry(guarded("a"))
    for name in ("one", "one", "two"):
        assert (await world.ask(name))[0] == 200
    assert [(one.kind, "ApplicationSets one, two follow" in one.text) for one in world.notices] == [
        ("shared", True)
    ]


async def test_an_application_set_that_asks_no_more_shares_nothing(world: World) -> None:
    await world.know("a")
    world.carry(guarded("a"))
    await world.ask("one")
    world.now += 3_600
    await world.ask("two")
    assert world.notices == []


async def test_what_was_answered_last_is_kept_beyond_the_end_of_an_object(world: World) -> None:
    await world.know("a", "b")
    world.carry(guarded("ab"))
    assert (await world.ask())[0] == 200
    world.objects.clear()
    assert (await world.ask())[0] == 404
    world.carry(Carried("another", guarded("a").annotations))
    status, why = await world.ask()
    assert (status, "it leaves b;" in why) == (409, True)
