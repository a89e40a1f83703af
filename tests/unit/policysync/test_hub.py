from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from kube_sync.errors import Conflict
from kube_sync.kube.approvals import APPROVED
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import CopyKey, Placed
from kube_sync.policysync.hubstate import relevant_parts
from kube_sync.policysync.validation import VERBS
from kube_sync.runtime.freshness import Stale
from tests.fakes.copies import AUTH, policy
from tests.fakes.hubs import Rig, rig_of
from tests.unit.async_tools import running, until
from tests.unit.policysync.test_hubstate import DEFINITION, _Listed, drop, put

LOGIN = policy("login")
WEB = frozenset([ObjectKey("shop", "web")])
SYNCED, HELD = "kube-sync.io/Synced", "kube-sync.io/RemovalsHeld"
BOTH = ["apply login east", "apply login west"]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncGenerator[Rig]:
    async with rig_of(tmp_path, grace_seconds=0) as found:
        yield found


async def test_a_policy_is_placed_once_and_says_where(rig: Rig) -> None:
    assert await rig.settle() == BOTH
    assert rig.listed(LOGIN) == ["east", "west"]
    assert rig.said(LOGIN)[SYNCED][:2] == ("Unknown", "Pending")
    before = len(rig.writes)
    assert await rig.later(5) == []
    assert len(rig.writes) == before


async def test_what_clusters_say_is_told_on_the_hub_and_starts_no_round(rig: Rig) -> None:
    await rig.settle()
    for cluster in ("east", "west"):
        rig.placer.say(CopyKey(LOGIN, cluster), enforcedStatus="True", enforcedReason="Enforced")
    assert await rig.settle(1) == []
    said = rig.said(LOGIN)
    assert said["Enforced"][:2] == ("True", "Enforced")
    assert said[SYNCED][0] == "True"
    before = len(rig.writes)
    found = rig.policy(LOGIN)
    held = rig.state.policies(AUTH).get(ObjectKey("shop", "login"))
    put(rig.state.policies(AUTH), ObjectKey("shop", "login"), **dict(found))  # its echo
    assert relevant_parts(found) == relevant_parts(held)
    assert rig.world.concerned == []
    assert await rig.later(5) == []
    assert len(rig.writes) == before


async def test_answers_that_come_soon_after_each_other_are_told_together_and_the_last_one_is(
    rig: Rig,
) -> None:
    await rig.settle()
    await rig.later(5)
    before = len(rig.writes)
    for number in range(10):
        said = {"enforcedStatus": "False", "enforcedReason": f"Try{number}"}
        rig.placer.say(CopyKey(LOGIN, "east"), **said)
        await rig.settle()
    assert len(rig.writes) - before == 1
    assert rig.said(LOGIN)["Enforced"][1] == "Try0"
    rig.now += 0.1  # that of two clusters; nobody tells the hub of anything any more
    async with asyncio.timeout(30):
        while rig.said(LOGIN)["Enforced"][1] != "Try9":  # noqa: ASYNC110 - the queue's own time
            await asyncio.sleep(0.01)
    assert len(rig.writes) - before == 2


async def test_nothing_is_done_before_everything_is_listed(rig: Rig) -> None:
    rig.state.decisions.listed = False
    assert await rig.settle() == []
    assert rig.notes["copies"] == "not everything that they stand on is listed yet"
    rig.state.decisions.listed = True
    rig.placer.ready = False
    assert await rig.settle() == []
    rig.placer.ready = True
    assert await rig.settle() == BOTH
    assert rig.notes["copies"] == "2 placed, 2 wanted"


async def test_only_who_holds_the_lease_does_anything(rig: Rig) -> None:
    rig.leader.held = False
    assert await rig.settle() == []
    assert rig.writes == []
    assert rig.notes["copies"] == "another one brings them"
    rig.leader.held = True
    rig.hub.on_started_leading()
    assert await rig.settle() == BOTH


async def test_one_that_loses_the_lease_amid_a_round_stops(rig: Rig) -> None:
    rig.placer.during = lambda: setattr(rig.leader, "held", False)
    await rig.settle()
    assert rig.writes == []  # of statuses: what was under way ended, nothing began
    rig.placer.during = lambda: None
    rig.leader.held = True
    rig.hub.on_started_leading()
    await rig.settle()
    assert rig.listed(LOGIN) == ["east", "west"]


async def test_a_cluster_in_trouble_holds_up_no_other_and_is_tried_again(rig: Rig) -> None:
    rig.placer.failing["east"] = Conflict("cluster east: it is not ours")
    rig.world.add("logout")
    rig.follow()
    steps = await rig.settle()
    assert sorted(steps) == ["apply login west", "apply logout west"]
    status, reason, message = rig.said(LOGIN)[SYNCED]
    assert (status, reason) == ("False", "NotApplied")
    assert "east: it could not be placed: cluster east: it is not ours" in message
    rig.placer.failing.clear()
    assert sorted(await rig.settle()) == ["apply login east", "apply logout east"]


async def test_a_deleted_policy_leaves_no_copy_after_a_moment(rig: Rig) -> None:
    await rig.settle()
    drop(rig.state.policies(AUTH), ObjectKey("shop", "login"))
    assert await rig.settle() == []  # it may be its kind that goes
    assert sorted(await rig.later(2)) == ["remove login east", "remove login west"]
    assert list(rig.placers.subjects()) == []
    assert await rig.later(5) == []


async def test_a_policy_that_comes_back_within_the_moment_keeps_its_copies(rig: Rig) -> None:
    await rig.settle()
    drop(rig.state.policies(AUTH), ObjectKey("shop", "login"))
    await rig.settle()
    rig.world.add("login")
    rig.follow()
    assert await rig.later(2) == []


async def test_a_policy_on_its_way_out_is_as_one_that_is_gone(rig: Rig) -> None:
    await rig.settle()
    rig.world.add("login", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    rig.follow()
    assert sorted(await rig.later(2)) == ["remove login east", "remove login west"]


async def test_what_was_placed_for_a_policy_deleted_meanwhile_is_found_and_removed(
    rig: Rig,
) -> None:
    gone = policy("gone")
    rig.placer.hold(Placed(CopyKey(gone, "east"), "d", None, None, WEB))
    assert sorted(await rig.settle()) == BOTH
    assert await rig.later(2) == ["remove gone east"]


@pytest.mark.parametrize("leaving", [True, False])
async def test_a_kind_whose_definition_goes_keeps_its_copies(rig: Rig, *, leaving: bool) -> None:
    await rig.settle()
    if leaving:
        body = dict(rig.state.definitions.objects[DEFINITION])
        metadata = {**body.pop("metadata"), "deletionTimestamp": "2026-01-01T00:00:00Z"}
        put(rig.state.definitions, DEFINITION, metadata=metadata, **body)
    else:
        drop(rig.state.definitions, DEFINITION)
    drop(rig.state.policies(AUTH), ObjectKey("shop", "login"))
    assert await rig.later(10) == []
    assert await rig.later(10) == []
    assert len(rig.placer.there) == 2


async def test_a_permission_that_is_gone_keeps_copies_too(rig: Rig) -> None:
    await rig.settle()
    rig.state.set_allowed_verbs(AUTH, ["get"])
    assert await rig.later(10) == []
    assert len(rig.placer.there) == 2


async def test_a_kind_that_no_class_lists_leaves_no_copy_and_no_mark(rig: Rig) -> None:
    rig.world.decide("d1", "east")
    await rig.settle()
    assert rig.listed(LOGIN) == ["east"]
    rig.world.listen()
    rig.state.forget(AUTH)
    assert await rig.later(2) == ["remove login east"]
    assert "kuadrant.io/policies-synced" not in rig.policy(LOGIN)["metadata"]["annotations"]


async def test_a_kind_in_another_version_keeps_its_copies(rig: Rig) -> None:
    await rig.settle()
    newer = GroupVersionResource(AUTH.group, "v2", AUTH.resource)
    rig.api.define(newer, "AuthPolicy", builtin=False)
    body = dict(rig.state.definitions.objects[DEFINITION])
    (version,) = body["spec"]["versions"]
    spec = {**body["spec"], "versions": [{**version, "name": "v2"}, version]}
    put(rig.state.definitions, DEFINITION, spec=spec)
    rig.world.listen(newer)
    rig.state.forget(AUTH)
    rig.state.set_allowed_verbs(newer, VERBS)
    store = rig.state.policies(newer)
    found = rig.policy(LOGIN)
    put(store, ObjectKey("shop", "login"), **{n: v for n, v in found.items() if n != "status"})
    _Listed(store).finish_now()
    rig.follow(newer)
    steps = await rig.later(2)
    assert sorted(set(steps)) == BOTH
    assert {key.policy.gvr for key in rig.placer.there} == {newer}
    assert await rig.later(5) == []


async def test_a_cluster_that_is_placed_no_more_is_left_for_the_grace(tmp_path: Path) -> None:
    async with rig_of(tmp_path, grace_seconds=600) as rig:
        await rig.settle()
        rig.world.decide("d1", "west")
        assert await rig.later(2) == ["leave login east"]
        assert await rig.later(500) == []
        assert await rig.later(200) == ["remove login east"]
        assert rig.listed(LOGIN) == ["west"]


async def test_a_placement_nobody_knows_empties_nothing_also_after_a_restart(rig: Rig) -> None:
    await rig.settle()
    drop(rig.state.decisions, ObjectKey("shop", "d1"))
    assert await rig.later(2) == []
    assert rig.said(LOGIN)[SYNCED][1] == "PlacementUnknown"
    rig.hub.on_started_leading()
    assert await rig.later(2) == []
    assert len(rig.placer.there) == 2


async def test_many_removals_wait_are_told_and_go_when_they_are_approved(rig: Rig) -> None:
    await rig.settle()
    rig.world.decide("d1")
    assert await rig.later(2) == []
    status, _, message = rig.said(LOGIN)[HELD]
    assert status == "True"
    assert "0 of 2 clusters are left" in message
    assert rig.notes["removals"].startswith("2 held: ")
    name = rig.notes["removals"].partition("or approve ")[2].partition(")")[0]
    configmap = dict(rig.state.configmaps.objects[ObjectKey("system", "params")])
    put(
        rig.state.configmaps,
        ObjectKey("system", "params"),
        data=configmap["data"],
        metadata={"annotations": {APPROVED: name}},
    )
    steps = [*await rig.later(1), *await rig.later(2)]
    assert sorted(steps) == ["remove login east", "remove login west"]
    assert HELD not in rig.said(LOGIN)
    assert rig.notes["removals"] == "none held"


async def test_nothing_goes_while_a_source_is_not_current(rig: Rig) -> None:
    await rig.settle()
    rig.world.decide("d1", "west")
    rig.stale = [Stale("gateways of the hub", 120.0, "no answer")]
    assert await rig.later(2) == []
    assert "gateways of the hub" in rig.said(LOGIN)[HELD][2]
    rig.stale = []
    assert await rig.later(2) == ["remove login east"]


async def test_a_copy_that_somebody_changed_is_put_right(rig: Rig) -> None:
    await rig.settle()
    key = CopyKey(LOGIN, "east")
    rig.placer.hold(replace(rig.placer.there[key], digest=""))
    assert await rig.settle() == ["apply login east"]


async def test_it_looks_by_itself_and_at_once_when_it_is_woken(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_sync.policysync.hub._SURVEY_SECONDS", 0.01)
    async with running(rig.hub.run_surveys()):
        await until(lambda: len(rig.placer.there) == 2)
        rig.leader.held = False
        await until(lambda: rig.notes["copies"] == "another one brings them")
        monkeypatch.setattr("kube_sync.policysync.hub._SURVEY_SECONDS", 1000.0)
        rig.notes.clear()
        await until(lambda: "copies" in rig.notes)  # it waits for so long now
        rig.leader.held = True
        rig.hub.on_started_leading()
        await until(lambda: rig.notes["copies"] == "2 placed, 2 wanted")


async def test_many_policies_are_surveyed_before_any_is_weighed(rig: Rig) -> None:
    for number in range(25):
        rig.world.add(f"p{number:02}")
    rig.follow()
    assert len(await rig.settle()) == 2 * 26


async def test_what_waits_is_looked_at_before_anything_is_weighed_but_not_for_ever(
    rig: Rig,
) -> None:
    await rig.settle()
    weighed = rig.weighed
    rig.leader.held = True
    for turn in range(4):
        rig.now += 1.0
        rig.hub.enqueue_all()
        await rig.hub.survey()
        assert (rig.weighed > weighed) is (turn == 3)


async def test_policies_are_looked_at_now_and_then_though_nothing_is_told(rig: Rig) -> None:
    await rig.settle()
    del rig.placer.there[CopyKey(LOGIN, "east")]  # nobody told
    assert await rig.settle(60) == []
    assert await rig.settle(600) == ["apply login east"]
