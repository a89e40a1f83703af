"""Events of policy sync: one for each change, in the words of the condition."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from kube_sync.guard import Withheld
from kube_sync.kube.approvals import APPROVED
from kube_sync.kube.conditions import Condition
from kube_sync.kube.events import Occurrence, Reference
from kube_sync.objects import ObjectKey
from kube_sync.policysync.events import PolicySyncEvents
from kube_sync.policysync.hub_status_writer import HELD, TYPE
from kube_sync.policysync.policy_state import PolicyState
from kube_sync.runtime.freshness import Stale
from tests.fakes.copies import AUTH, policy
from tests.fakes.hubs import Rig, rig_of, with_status
from tests.unit.policysync.test_hubstate import drop, put

LOGIN = policy("login")
PARAMS = ObjectKey("system", "params")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncGenerator[Rig]:
    async with rig_of(tmp_path, grace_seconds=0) as found:
        await found.settle()
        yield found


async def hold(rig: Rig) -> str:
    """Have both copies held; return what the policy says of it."""
    rig.world.decide("d1")
    await rig.later(2)
    return rig.said(LOGIN)[HELD][2]


async def hold_told(rig: Rig) -> None:
    rig.world.decide("d1")
    await rig.later(2)
    assert len(told(rig)) == 1


def approve(rig: Rig) -> str:
    name = rig.notes["removals"].partition("or approve ")[2].partition(")")[0]
    data = rig.state.configmaps.objects[PARAMS]["data"]
    put(rig.state.configmaps, PARAMS, data=data, metadata={"annotations": {APPROVED: name}})
    return name


def told(rig: Rig) -> list[str]:
    found = [f"{one.reason}: {one.note}" for one in rig.events]
    rig.events.clear()
    return found


async def test_a_hold_is_told_on_the_policy_once_in_the_words_of_the_condition(rig: Rig) -> None:
    said = await hold(rig)
    (event,) = rig.events
    uid = rig.policy(LOGIN)["metadata"]["uid"]
    assert event.regarding == Reference("kuadrant.io/v1", "AuthPolicy", "shop", "login", uid)
    assert (event.reason, event.warns) == ("RemovalsHeld", True)
    assert event.note == said
    await rig.later(60)
    rig.hub.on_started_leading()
    await rig.later(60)
    assert len(rig.events) == 1


async def test_another_process_does_not_tell_again_what_the_policy_says(tmp_path: Path) -> None:
    async with rig_of(tmp_path, grace_seconds=0) as rig:
        await rig.settle()
        await hold(rig)
        rig.events.clear()
        found = rig.policy(LOGIN)
        put(rig.state.policies(AUTH), ObjectKey("shop", "login"), **dict(found))
        rig.hub.on_started_leading()
        await rig.later(5)
        assert told(rig) == []


async def test_a_hold_that_ends_by_itself_is_told(rig: Rig) -> None:
    await hold(rig)
    rig.events.clear()
    rig.world.decide("d1", "east", "west")
    await rig.later(2)
    assert [one.warns for one in rig.events] == [False]
    assert told(rig) == ["RemovalsReleased: no removal of its copies is held any more"]
    await rig.later(60)
    assert told(rig) == []


async def test_an_approval_is_told_by_its_name_and_its_clusters(rig: Rig) -> None:
    await hold(rig)
    rig.events.clear()
    name = approve(rig)
    await rig.later(1)
    await rig.later(2)
    assert rig.placer.there == {}
    assert told(rig) == [f"RemovalsApproved: {name} was approved, for east, west"]


async def test_an_approval_is_told_once_though_the_copies_wait_for_the_grace(
    tmp_path: Path,
) -> None:
    async with rig_of(tmp_path, grace_seconds=600) as rig:
        await rig.settle()
        await hold(rig)
        approve(rig)
        rig.events.clear()
        for _ in range(3):
            await rig.later(20)
        assert [one.reason for one in rig.events] == ["RemovalsApproved"]


async def test_a_source_that_is_late_for_longer_and_longer_is_told_once(rig: Rig) -> None:
    rig.world.decide("d1", "west")
    for age in (120.0, 130.0, 140.0):
        rig.stale = [Stale("gateways of the hub", age, "no answer")]
        await rig.later(2)
    before = len(rig.writes)
    rig.stale = [Stale("gateways of the hub", 150.0, "no answer")]
    await rig.later(2)
    assert len(rig.writes) == before
    (event,) = rig.events
    assert event.note.startswith("east: gateways of the hub: not current for more than 60 s: no")


async def test_what_is_deleted_is_told_without_a_condition(rig: Rig) -> None:
    for number in range(12):
        rig.world.add(f"p{number}")
    rig.follow()
    await rig.settle()
    for number in range(12):
        drop(rig.state.policies(AUTH), ObjectKey("shop", f"p{number}"))
    await rig.later(2)
    await rig.later(5)
    names = sorted(one.regarding.name for one in rig.events)
    assert names == sorted(f"p{number}" for number in range(12))
    assert {one.regarding.uid for one in rig.events} == {""}


def test_a_kind_that_is_not_defined_any_more_has_no_name_to_tell_by() -> None:
    found = (
        PolicyState(LOGIN, None, {}),
        {"east": Withheld("mass", "many would be removed", "fewer")},
    )
    events: list[Occurrence] = []
    for kind in ("", "AuthPolicy"):
        published = PolicySyncEvents(lambda what, _: events.append(what), lambda _, k=kind: k)  # type: ignore[misc]
        published.publish_removals(*found, {})
    assert [one.regarding.kind for one in events] == ["AuthPolicy"]


def test_objects_that_cannot_be_read_are_told_of_or_passed_over_but_fail_nobody() -> None:
    events: list[Occurrence] = []
    news = PolicySyncEvents(lambda what, _: events.append(what), lambda _: "AuthPolicy")
    strange = {"metadata": "what", "status": "what"}
    found = PolicyState(LOGIN, None, {}, body=strange)
    news.publish_removals(found, {"east": Withheld("mass", "many would be removed", "fewer")}, {})
    news.publish_refused(strange, [Condition(TYPE, "False", "InvalidParameters", "no")])
    assert [one.regarding.uid for one in events] == [""]


async def test_an_ancestor_that_tells_of_the_hold_is_read_too(rig: Rig) -> None:
    with_status(rig.world, "ancestors")
    await hold_told(rig)
    rig.hub.on_started_leading()
    put(rig.state.policies(AUTH), ObjectKey("shop", "login"), **dict(rig.policy(LOGIN)))
    await rig.later(5)
    assert told(rig) == []
