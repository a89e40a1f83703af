"""Conditions on a fake API server: written once, by one, and again when they are not right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from kube_sync.errors import Retriable, Undecided
from kube_sync.kube.collection import Event, Item, KubeCollection, ResourceVersion
from kube_sync.kube.reflector import Reflector
from kube_sync.objects import ObjectKey
from kube_sync.policykinds.condition_writer import ConditionKeeper
from kube_sync.policykinds.kinds import METADATA, SCHEDULING, PolicyKind
from kube_sync.policykinds.policy_cache import HeldPolicies, HeldPolicy
from kube_sync.policykinds.reports import Report
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, patches
from tests.fakes.clients import kube_of
from tests.fakes.http import answer

Json = dict[str, Any]
NAMES = ("newer", "older")
SCHEDULING_POLICIES, METADATA_POLICIES = SCHEDULING.gvr, METADATA.gvr


@dataclass
class World:
    """A cluster, and an OPA that finds a problem wherever a policy says `wrong`."""

    api: FakeApiServer
    folder: Path
    kind: PolicyKind = SCHEDULING
    held: bool = True
    answers: bool = True
    behind: bool = False
    asked: list[ObjectKey] = field(default_factory=list)
    compared: list[tuple[str, set[str]]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    keeper: ConditionKeeper | None = None
    exempt: str | None = None

    def exemption(self, namespace: str) -> str | None:
        return f"{namespace} is exempt" if namespace == self.exempt else None

    async def ready(self, namespace: str, policies: Sequence[HeldPolicy]) -> None:
        self.compared.append((namespace, {policy.key.name for policy in policies}))
        if self.behind:
            reason = f"{namespace} is behind"
            raise Retriable(reason)

    async def report_on(self, policy: HeldPolicy) -> Report:
        self.asked.append(policy.key)
        if not self.answers:
            reason = "OPA is away"
            raise Retriable(reason)
        if "fails" in policy.spec:
            reason = "the rules fail"
            raise Undecided(reason)
        return Report(("wrong",) if "wrong" in policy.spec else (), ())

    def key(self, name: str) -> ObjectKey:
        return ObjectKey("shop" if self.kind.together else "", name)

    def put(self, name: str, generation: int = 1, **content: Any) -> None:
        metadata = {"generation": generation}
        self.api.put(self.kind.gvr, self.key(name), metadata=metadata, **content)

    def accepted(self, name: str) -> Any:
        found = self.api.get(self.kind.gvr, self.key(name)).get("status", {})
        return {c["type"]: c for c in found.get("conditions", [])}.get("Accepted", {})

    async def until_accepted(self, name: str, status: str, generation: int = 1) -> None:
        def right() -> bool:
            found = self.accepted(name)
            return (found.get("status"), found.get("observedGeneration")) == (status, generation)

        await self.api.http.until(right)

    def writes(self) -> int:
        return sum(map(patches(self.kind.gvr), self.api.http.requests))

    async def settled(self) -> None:
        """Wait until all that was ever told has been judged."""
        seen = -1
        while seen != len(self.asked):
            seen = len(self.asked)
            await asyncio.sleep(0.02)  # nothing tells that nothing comes

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with kube_of(self.api, self.folder) as client:
            now = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))
            note = self.told.append
            self.keeper = ConditionKeeper(
                self.kind, client, self, self, note, exempt=self.exemption, now=lambda: now
            )
            source = KubeCollection(client, self.kind.gvr)
            listed = self.keeper.listed
            reflector = Reflector("policies", source, self.keeper.store, lambda _reason: listed())
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one.run()) for one in (reflector, self.keeper)]
                await self.api.watched(self.kind.gvr)
                yield
                for task in tasks:
                    task.cancel()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api:
        api.define(SCHEDULING_POLICIES, "SchedulingPolicy", builtin=False, namespaced=False)
        yield World(api, tmp_path)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[World]:
    """A namespace, whose policies are judged together."""
    async with fake_apiserver() as api:
        api.define(METADATA_POLICIES, "MetadataPolicy", builtin=False)
        yield World(api, tmp_path, METADATA)


async def test_where_there_is_no_policy_all_is_done(world: World) -> None:
    async with world.running():
        await world.settled()
        assert set(world.told) == {"ok"}


async def test_policies_that_are_there_and_that_come_get_conditions(world: World) -> None:
    world.put("good", spec={})
    async with world.running():
        world.put("bad", spec={"wrong": 1})
        await world.until_accepted("good", "True")
        await world.until_accepted("bad", "False")
    assert world.accepted("bad")["message"] == "wrong"
    assert world.accepted("bad")["lastTransitionTime"] == "2025-12-31T22:00:00Z"


async def test_status_is_applied_apart_from_the_spec_by_a_manager_of_its_own(world: World) -> None:
    world.put("good", spec={})
    async with world.running():
        await world.until_accepted("good", "True")
    (request,) = filter(patches(SCHEDULING_POLICIES), world.api.http.requests)
    assert request.path == SCHEDULING_POLICIES.path(name="good") + "/status"
    assert request.query == {"fieldManager": "kube-sync-scheduling", "force": "true"}
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert request.json().keys() == {"apiVersion", "kind", "metadata", "status"}


async def test_conditions_that_are_right_are_not_written_again(world: World) -> None:
    world.put("good", spec={})
    async with world.running():
        await world.until_accepted("good", "True")
        await world.settled()
        assert world.keeper is not None
        world.keeper.wake()
        await world.settled()
    async with world.running():  # a new process
        await world.settled()
    assert len(world.asked) > 2
    assert world.writes() == 1


async def test_generation_is_written_where_the_definition_has_the_field(world: World) -> None:
    world.put("newer", 2, spec={}, status={"observedGeneration": -1})
    world.put("older", spec={})
    async with world.running():
        await world.until_accepted("newer", "True", 2)
        await world.until_accepted("older", "True")
        await world.settled()
        written = world.writes()
    statuses = {one: world.api.get(world.kind.gvr, world.key(one))["status"] for one in NAMES}
    assert statuses["newer"]["observedGeneration"] == 2
    assert "observedGeneration" not in statuses["older"]
    async with world.running():  # a new process
        await world.settled()
    assert world.writes() == written == 2


async def test_changed_policy_is_judged_again(world: World) -> None:
    world.put("it", spec={})
    async with world.running():
        await world.until_accepted("it", "True")
        world.put("it", 2, spec={"wrong": 1})
        await world.until_accepted("it", "False", 2)


async def test_condition_that_somebody_changed_is_put_right(world: World) -> None:
    world.put("it", spec={})
    async with world.running():
        await world.until_accepted("it", "True")
        lie = {"type": "Accepted", "status": "False", "reason": "X", "message": "lie"}
        world.put("it", spec={}, status={"conditions": [lie]})
        await world.until_accepted("it", "True")


async def test_only_who_holds_the_lease_writes_and_catches_up_then(world: World) -> None:
    world.held = False
    world.put("it", spec={})
    async with world.running():
        await world.settled()
        assert world.writes() == len(world.asked) == 0
        world.held = True
        assert world.keeper is not None
        world.keeper.wake()
        await world.until_accepted("it", "True")


async def test_opa_that_is_away_is_asked_again(world: World) -> None:
    world.answers = False
    world.put("it", spec={})
    async with world.running():
        while len(world.asked) < 3:  # noqa: ASYNC110 - nothing is requested of the API server
            await asyncio.sleep(0.01)
        assert world.told[-1] == "it: OPA is away"
        assert world.accepted("it") == {}
        world.answers = True
        await world.until_accepted("it", "True")
        await world.settled()
    assert world.told[-1] == "ok"


async def test_api_server_that_refuses_is_tried_again(world: World) -> None:
    fault = world.api.http.fault(
        patches(SCHEDULING_POLICIES), answer(500, b"no", retry_after="0"), 2
    )
    world.put("it", spec={})
    async with world.running():
        await world.until_accepted("it", "True")
    assert fault.times == 0


async def test_policy_that_goes_meanwhile_is_no_trouble(world: World) -> None:
    gone = answer(404, b'{"message":"gone"}', kind="application/json")
    fault = world.api.http.fault(patches(SCHEDULING_POLICIES), gone)
    world.put("it", spec={})
    async with world.running():
        await fault.met.wait()
        await world.settled()
        world.api.delete(SCHEDULING_POLICIES, ObjectKey("", "it"))
        world.put("next", spec={})
        await world.until_accepted("next", "True")
    assert set(world.told) == {"ok"}


async def test_policy_on_which_the_rules_fail_is_neither_accepted_nor_not(world: World) -> None:
    world.put("it", spec={"fails": 1})
    world.put("next", spec={})
    async with world.running():
        await world.until_accepted("it", "Unknown")
        await world.until_accepted("next", "True")
        assert world.told[-1] == "it: the rules fail"
        world.put("it", 2, spec={})
        await world.until_accepted("it", "True", 2)
        await world.settled()
    assert world.accepted("it")["reason"] == "Valid"
    assert world.told[-1] == "ok"


async def test_change_of_one_has_all_of_its_namespace_judged_again(shop: World) -> None:
    other = ObjectKey("other", "it")
    shop.api.put(METADATA_POLICIES, other, spec={})
    for name in ("a", "b"):
        shop.put(name, spec={})
    async with shop.running():
        await shop.until_accepted("a", "True")
        await shop.until_accepted("b", "True")
        await shop.settled()
        shop.asked.clear()
        shop.put("b", 2, spec={"wrong": 1})
        await shop.until_accepted("b", "False", 2)
        await shop.settled()
    assert {str(key) for key in shop.asked} == {"shop/a", "shop/b"}
    assert shop.compared[-1] == ("shop", {"a", "b"})


async def test_policy_in_an_exempt_namespace_says_so_instead_of_accepted(shop: World) -> None:
    shop.exempt = "shop"
    shop.put("a", spec={})
    async with shop.running():
        await shop.until_accepted("a", "False")
    accepted = shop.accepted("a")
    assert accepted["reason"] == "NamespaceExempt"
    assert accepted["message"] == "shop is exempt, and this policy applies to nothing"


async def test_policy_that_goes_has_the_others_judged_again(shop: World) -> None:
    for name in ("a", "b"):
        shop.put(name, spec={})
    async with shop.running():
        await shop.settled()
        shop.api.delete(METADATA_POLICIES, shop.key("b"))
        while shop.compared[-1] != ("shop", {"a"}):  # noqa: ASYNC110 - nothing is requested
            await asyncio.sleep(0.01)
        shop.api.delete(METADATA_POLICIES, shop.key("a"))
        while list(shop.keeper.store.objects if shop.keeper else ()):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        await shop.settled()
    assert shop.told[-1] == "ok"


async def test_nothing_is_judged_until_opa_has_the_same_policies(shop: World) -> None:
    shop.behind = True
    shop.put("a", spec={})
    async with shop.running():
        while len(shop.compared) < 2:  # noqa: ASYNC110 - nothing is requested of the API server
            await asyncio.sleep(0.01)
        assert shop.asked == []
        assert shop.told[-1] == "shop: shop is behind"
        shop.behind = False
        await shop.until_accepted("a", "True")


async def test_one_policy_that_cannot_be_judged_keeps_no_other_from_it(shop: World) -> None:
    shop.put("a", spec={"fails": 1})
    shop.put("b", spec={})
    async with shop.running():
        await shop.until_accepted("b", "True")
        await shop.until_accepted("a", "Unknown")
    assert shop.writes() == 2


def item(name: str, body: bytes = b'{"metadata":{"generation":4}}') -> Item:
    return Item(ObjectKey("", name), "u", ResourceVersion("1"), body)


async def test_list_that_broke_off_changes_nothing() -> None:
    told: list[ObjectKey] = []
    store = HeldPolicies(told.append)
    await store.page([item("a")])
    store.abandon()
    assert list(store.objects) == told == []


async def test_policy_that_a_list_lacks_is_told_as_gone() -> None:
    told: list[ObjectKey] = []
    store = HeldPolicies(told.append)
    await store.page([item("a")])
    store.finish(known=True)
    store.finish(known=False)
    assert told == [ObjectKey("", "a")] * 2
    assert store.get(ObjectKey("", "a")) is None


def test_bookmark_tells_nothing_and_an_odd_status_counts_as_none() -> None:
    told: list[ObjectKey] = []
    store = HeldPolicies(told.append)
    store.apply(Event("BOOKMARK", ResourceVersion("1")))
    assert told == []
    store.apply(Event("ADDED", ResourceVersion("1"), item("a", b'{"status":1,"metadata":{}}')))
    held = store.get(ObjectKey("", "a"))
    assert held is not None
    assert (held.generation, held.conditions) == (0, ())
    assert held.spec is None


def test_deleted_policy_is_gone_however_often_that_is_told() -> None:
    told: list[ObjectKey] = []
    store = HeldPolicies(told.append)
    for name in ("a", "b"):
        store.apply(Event("ADDED", ResourceVersion("1"), item(name)))
    for _ in range(2):
        store.apply(Event("DELETED", ResourceVersion("2"), item("a")))
        assert [policy.key.name for policy in store.within("")] == ["b"]
    store.apply(Event("DELETED", ResourceVersion("3"), item("b")))
    assert list(store.objects) == []
    assert len(told) == 4


async def test_faults_are_told_as_0_before_the_first(world: World) -> None:
    """In a series that begins with 1 no alert sees a rise."""
    world.kind = replace(SCHEDULING, kind="NeverFailed")
    async with kube_of(world.api, world.folder) as client:
        ConditionKeeper(world.kind, client, world, world, world.told.append)
    labels = {"kind": "NeverFailed", "outcome": "failed"}
    assert REGISTRY.get_sample_value("kube_sync_policy_conditions_total", labels) == 0
