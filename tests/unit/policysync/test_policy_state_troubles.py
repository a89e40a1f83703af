"""What one policy, or a slip of somebody's, must not be able to do to all the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kube_sync.errors import Conflict
from kube_sync.objects import ObjectKey
from kube_sync.policysync.desired import PLACEMENT
from kube_sync.policysync.placers import CONCURRENT_STEPS, Subject, subject_of
from kube_sync.policysync.plan import Apply
from kube_sync.policysync.policy_state import PolicyState
from tests.fakes.copies import AUTH, copy, policy
from tests.fakes.http import failing
from tests.fakes.hubs import Rig, rig_of
from tests.unit.async_tools import until
from tests.unit.policysync.test_hubstate import _Listed, drop, put, slip

LOGIN, KEY = policy("login"), ObjectKey("shop", "login")
SYNCED = "kube-sync.io/Synced"
BOTH = ["apply login east", "apply login west"]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncGenerator[Rig]:
    async with rig_of(tmp_path, grace_seconds=0) as found:
        yield found


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def deepen(rig: Rig, depth: int) -> None:
    body = {n: v for n, v in rig.policy(LOGIN).items() if n not in ("apiVersion", "kind")}
    kept = {n: v for n, v in body.pop("metadata").items() if n != "resourceVersion"}
    body["spec"] = {**body["spec"], "x": nested(depth)}
    if depth < 400:  # beyond, the fake API server is at its own end
        kept = dict(rig.api.put(AUTH, KEY, metadata=kept, **body)["metadata"])
    put(rig.state.policies(AUTH), KEY, metadata=kept, **body)


@pytest.mark.parametrize("depth", [300, 480, 600, 900])
@pytest.mark.parametrize("first", [True, False])
async def test_a_policy_that_is_nested_too_deeply_keeps_what_it_has_and_stops_no_other(
    rig: Rig, depth: int, *, first: bool
) -> None:
    if first:
        await rig.settle()
    rig.world.add("other")
    rig.follow()
    deepen(rig, depth)
    assert await rig.settle() == [
        "apply other east",
        "apply other west",
    ]
    assert await rig.later(10) == []
    assert len(rig.placer.there) == (4 if first else 2)
    rig.hub.on_started_leading()  # a restart looks at all of them too
    assert await rig.later(10) == []


async def test_a_policy_that_is_nested_a_little_is_placed(rig: Rig) -> None:
    deepen(rig, 90)
    assert await rig.settle() == BOTH


@pytest.mark.parametrize(
    ("depth", "why"), [(150, "nested more than 100 levels deep"), (300, "nested too deeply")]
)
async def test_a_policy_that_cannot_be_read_says_why_on_the_hub(
    rig: Rig, depth: int, why: str
) -> None:
    await rig.settle()
    deepen(rig, depth)
    await rig.later(10)
    assert why in rig.said(LOGIN)[SYNCED][2]
    before = len(rig.writes)
    await rig.later(10)
    assert len(rig.writes) == before


async def test_what_nobody_has_thought_of_is_the_trouble_of_one_policy(rig: Rig) -> None:
    await rig.settle()
    broken = {"count": 0, "broken": True}
    right = rig.look

    def look(subject: Subject, *rest: Any) -> PolicyState:
        if broken["broken"] and subject == subject_of(LOGIN):
            broken["count"] += 1
            raise ZeroDivisionError
        return right(subject, *rest)

    rig.look = look  # type: ignore[method-assign, assignment]
    rig.hub.on_started_leading()  # in the survey, then in a worker
    rig.world.add("other")
    rig.follow()
    assert sorted(await rig.settle()) == ["apply other east", "apply other west"]
    assert broken["count"] > 2  # tried again
    assert len(rig.placer.there) == 4
    broken["broken"] = False
    rig.world.decide("d1", "east", "west", "north")
    assert "apply login north" in await rig.later(1)


async def test_a_step_that_fails_as_nobody_thought_is_tried_again(rig: Rig) -> None:
    failures = [ZeroDivisionError()]

    def during() -> None:
        if failures:
            raise failures.pop()

    rig.placer.during = during
    assert sorted({*await rig.settle(), *await rig.settle()}) == BOTH


@pytest.mark.parametrize("code", [422, 500, 409])
async def test_a_policy_that_cannot_be_cleaned_keeps_no_copy(rig: Rig, code: int) -> None:
    rig.world.decide("d1", "east")
    await rig.settle()
    rig.api.http.fault(lambda r: r.method == "PATCH", failing(code, "no"), times=1000)
    rig.world.listen()
    rig.state.forget(AUTH)
    assert await rig.later(2) == ["remove login east"]
    assert await rig.later(5) == []


async def test_what_could_not_be_cleaned_is_cleaned_when_its_copies_are_gone(rig: Rig) -> None:
    rig.world.decide("d1", "east")
    await rig.settle()
    rig.api.http.fault(lambda r: r.method == "PATCH", failing(500, "no"), times=6)
    rig.world.listen()
    rig.state.forget(AUTH)
    assert await rig.later(2) == ["remove login east"]
    await rig.settle()
    assert "kuadrant.io/policies-synced" not in rig.policy(LOGIN)["metadata"]["annotations"]
    seen = len(rig.api.http.requests)
    await rig.later(5)
    assert rig.api.http.requests[seen:] == [], "nothing is left to be cleaned"


@asynccontextmanager
async def every_turn_taken(rig: Rig) -> AsyncGenerator[None]:
    """Have as many steps under way as there may be, until the block ends; they all fail."""
    rig.placer.slow["slow"] = gate = asyncio.Event()
    steps = [rig.placers.run(Apply(copy(f"c{n}", name="slow"))) for n in range(CONCURRENT_STEPS)]
    tasks = [asyncio.create_task(step) for step in steps]
    await until(lambda: rig.placer.under_way == CONCURRENT_STEPS)
    yield
    gate.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, Conflict) for one in outcomes)


async def test_a_copy_that_is_wanted_again_when_its_turn_comes_is_not_removed(rig: Rig) -> None:
    """Steps wait for their turn, and the hub may say something else meanwhile."""
    await rig.settle()
    rig.world.decide("d1", "west")
    async with every_turn_taken(rig):
        assert await rig.later(1) == []
        rig.world.decide("d1", "east", "west")
        rig.hear()
    assert await rig.settle() == []
    assert await rig.later(5) == []
    assert len(rig.placer.there) == 2


async def test_a_removal_that_is_held_when_its_turn_comes_is_not_done(rig: Rig) -> None:
    await rig.settle()
    rig.world.decide("d1", "west")
    before = list(rig.placer.steps)
    async with every_turn_taken(rig):
        await rig.later(1)
        rig.now += 60  # nothing was weighed since
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert rig.placer.steps == before
    assert await rig.later(1) == ["remove login east"]
    assert [key.cluster for key in rig.placer.there] == ["west"]


@pytest.mark.parametrize("how", ["key", "list", "kind", "group"])
async def test_a_slip_in_the_parameters_removes_no_copy(rig: Rig, how: str) -> None:
    rig.world.decide("d1", "east")
    await rig.settle()
    slip(rig.world, how)
    assert await rig.later(5) == []
    assert await rig.later(5) == []
    assert len(rig.placer.there) == 1


def register(rig: Rig, *clusters: str) -> None:
    for cluster in clusters:
        put(rig.state.clusters, ObjectKey("", cluster))
    _Listed(rig.state.clusters).finish_now()


async def test_a_cluster_that_the_hub_has_not_is_told_and_placed_on_when_it_comes(
    rig: Rig,
) -> None:
    register(rig, "east")
    assert await rig.settle() == ["apply login east"]
    status, reason, said = rig.said(LOGIN)[SYNCED]
    assert (status, reason) == ("False", "PlacementUnknown")
    assert "the hub has no ManagedCluster west" in said
    register(rig, "west")
    assert await rig.settle() == ["apply login west"]
    await rig.later(10)
    assert "ManagedCluster" not in rig.said(LOGIN)[SYNCED][2]


async def test_clusters_that_are_told_late_stop_no_placement_and_take_nothing(rig: Rig) -> None:
    register(rig, "east")
    rig.state.clusters_freshness.reporter("managedclusters")("403: forbidden")
    assert await rig.settle() == BOTH
    drop(rig.state.clusters, ObjectKey("", "east"))
    assert await rig.later(10) == []
    assert len(rig.placer.there) == 2


async def test_a_cluster_that_leaves_has_its_copy_removed_at_once(tmp_path: Path) -> None:
    async with rig_of(tmp_path, grace_seconds=600) as rig:
        register(rig, "east", "west")
        assert await rig.settle() == BOTH
        drop(rig.state.clusters, ObjectKey("", "east"))
        assert await rig.later(2) == ["remove login east"]


async def test_one_that_loses_the_lease_amid_the_cleaning_leaves_the_rest_to_the_next(
    rig: Rig,
) -> None:
    rig.world.decide("d1", "east")
    await rig.settle()
    rig.world.listen()
    rig.state.forget(AUTH)
    rig.left = 0.0
    assert await rig.later(2) == []
    rig.left = 10.0
    assert await rig.later(2) == ["remove login east"]
    assert "kuadrant.io/policies-synced" not in rig.policy(LOGIN)["metadata"]["annotations"]


async def test_a_granted_reference_into_another_namespace_is_refused_on_the_policy(
    rig: Rig,
) -> None:
    """The spoke has no ReferenceGrant: whoever enforces the copy there would refuse it."""
    infra = ObjectKey("infra", "web")
    rig.world.gateway(infra)
    to = [{"group": "gateway.networking.k8s.io", "kind": "Gateway"}]
    by = [{"group": AUTH.group, "kind": "AuthPolicy", "namespace": "shop"}]
    put(rig.state.grants, ObjectKey("infra", "any"), spec={"from": by, "to": to})
    decisions = {"decisions": [{"clusterName": "east"}]}
    labels = {"labels": {PLACEMENT: "both"}}
    put(rig.state.decisions, ObjectKey("infra", "d"), metadata=labels, status=decisions)
    target = {**to[0], "name": "web", "namespace": "infra"}
    put(rig.state.policies(AUTH), KEY, metadata={"uid": "login"}, spec={"targetRef": target})
    assert await rig.settle() == []
    status, reason, said = rig.said(LOGIN)[SYNCED]
    assert (status, reason) == ("False", "RefNotPermitted")
    assert said.startswith("spec.targetRef: Gateway infra/web is in another namespace")
    assert said.endswith("move the policy into namespace infra")
