"""Policy sync from a real hub to real spokes: what arrives, what returns, what is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.kube.approvals import APPROVED
from kube_sync.kube.events import EVENTS
from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.copies import PLACED
from kube_sync.policysync.desired import PLACEMENT, PLACEMENT_DECISIONS
from kube_sync.policysync.hubstate import CONFIGMAPS, GATEWAY_CLASSES, GATEWAYS, LISTENER_SETS
from kube_sync.policysync.manifestworks import WORKS
from tests.eventually import eventually
from tests.integration.syncing_world import API, COLORS, ROUTES, World, spec_of, world_of
from tests.integration.test_machinery import ROOT
from tools.servers.spokes import RunningSpoke
from tools.servers.stack import RunningStack


@pytest.fixture
async def world(
    hub: RunningStack,
    gateway_api: RunningStack,
    spokes: tuple[RunningSpoke, ...],
    namespace: str,
) -> AsyncGenerator[World]:
    gateway_api.install_kinds(ROOT / "manifests/examples/colorpolicy")
    async with world_of(hub, spokes, namespace) as found:
        await found.install()
        yield found


# The first test waits for three clusters to be there, and one for a dead one's Lease to run out.
pytestmark = pytest.mark.timeout(300)

SYNCED = "kube-sync.io/Synced"
EMPTY: dict[str, Any] = {}


def is_synced(said: dict[str, tuple[str, str, str]]) -> bool:
    return said.get(SYNCED, ("", "", ""))[0] == "True"


async def test_a_policy_reaches_the_clusters_of_its_gateway_and_nothing_is_written_twice(
    world: World,
) -> None:
    await world.below_it()
    await world.policy()
    async with world.agents(interval=0.3):
        async with world.syncing():
            await eventually(world.copies, dict.fromkeys(world.names, "red"))
            await eventually(world.listed, world.names)
            await eventually(world.said, is_synced)
            copy = await world.get(COLORS, world.below, "paint", on=world.names[0])
            assert copy is not None
            assert copy["metadata"]["annotations"]["kuadrant.io/policy-synced"] == "true"
            assert copy["spec"] == spec_of()
            before = world.writes()
            await asyncio.sleep(3)  # several polls of the agents, and looks at all
            assert world.writes() == before
            await world.policy(color="blue")
            await eventually(world.copies, dict.fromkeys(world.names, "blue"))
            await eventually(lambda: world.said(of_now=True), is_synced)
            changed = world.writes() - before
            assert changed["patch manifestworks"] == len(world.names)
        before = world.writes()
        async with world.syncing() as context:
            await eventually(lambda: _noted(context, "copies"), "2 placed, 2 wanted")
            await asyncio.sleep(1.5)
            assert world.writes() == before


async def test_a_native_policy_on_one_spoke_overrides_and_the_hub_sees_which_and_why(
    world: World,
) -> None:
    first, second = world.names
    await world.below_it()
    await world.policy()
    async with world.agents(), world.topologies(), world.syncing():
        await eventually(world.said, lambda said: said.get("Programmed", ("",))[0] == "True")
        native = {"metadata": {"labels": {"made": "here"}}, "spec": spec_of("green")}
        await world.put(COLORS, world.below, "native", on=world.on[second], **native)
        said = await eventually(
            world.said, lambda said: said.get("Programmed", ("", "", ""))[1] == "Overridden"
        )
        status, _, message = said["Programmed"]
        assert status == "False"
        assert message.startswith(f"{second}: Overridden")
        assert "native" in message
        assert first not in message
        assert said[SYNCED][0] == "True"
        await world.delete(COLORS, world.below, "native", on=second)
        await eventually(world.said, lambda said: said["Programmed"][0] == "True")


@pytest.mark.slow
async def test_a_policy_on_two_gateways_that_is_overridden_at_one_says_at_which(
    world: World,
) -> None:
    first, second = world.names
    await world.below_it()
    await world.gateway("other")
    for client in world.on.values():
        listener = {"name": "http", "port": 80, "protocol": "HTTP"}
        spec = {"gatewayClassName": world.gateway_class, "listeners": [listener]}
        await world.put(GATEWAYS, world.below, "other", on=client, spec=spec)
        beside = {"parentRefs": [{"name": "other"}], "rules": [{}]}
        await world.put(ROUTES, world.below, "beside", on=client, spec=beside)
    refs = [spec_of(to=name)["targetRef"] for name in ("web", "other")]
    both = {"targetRefs": refs, "rules": spec_of()["rules"]}
    await world.put(COLORS, world.space, "paint", spec=both)
    async with world.agents(), world.topologies(), world.syncing():
        await eventually(world.said, lambda said: said.get("Programmed", ("",))[0] == "True")
        native = spec_of("green")  # the entry of `other` comes first in the status
        await world.put(COLORS, world.below, "native", on=world.on[second], spec=native)
        said = await eventually(world.said, lambda said: said["Programmed"][0] == "False")
        assert said["Programmed"][1] == "Overridden"
        assert said["Programmed"][2].startswith(f"{second}: Overridden: Gateway web: ")
        assert first not in said["Programmed"][2]
        await world.delete(COLORS, world.below, "native", on=second)
        await eventually(world.said, lambda said: said["Programmed"][0] == "True")


@pytest.mark.slow
async def test_a_policy_of_a_listenerset_goes_where_its_gateway_is_and_says_how_it_is_there(
    world: World,
) -> None:
    await world.below_it()
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    own = {"parentRef": {"name": "web"}, "listeners": [{**listener, "port": 81}]}
    taking = {
        "gatewayClassName": world.gateway_class,
        "allowedListeners": {"namespaces": {"from": "Same"}},
        "listeners": [listener],
    }
    for client in world.on.values():
        await world.put(GATEWAYS, world.below, "web", on=client, spec=taking)
        await world.put(LISTENER_SETS, world.below, "more", on=client, spec=own)
        route = {"parentRefs": [{"kind": "ListenerSet", "name": "more"}], "rules": [{}]}
        await world.put(ROUTES, world.below, "route", on=client, spec=route)
    labels = {PLACEMENT: "web"}
    await world.put(GATEWAYS, world.space, "web", metadata={"labels": labels}, spec=taking)
    await world.put(LISTENER_SETS, world.space, "more", spec=own)
    ref = {"group": API, "kind": "ListenerSet", "name": "more", "sectionName": "http"}
    spec = {**spec_of(), "targetRef": ref}
    await world.put(COLORS, world.space, "paint", spec=spec)
    async with world.agents(), world.topologies(), world.syncing():
        await eventually(world.copies, dict.fromkeys(world.names, "red"))
        await eventually(world.said, lambda said: said.get("Programmed", ("",))[0] == "True")
        copy = await world.get(COLORS, world.below, "paint", on=world.names[0])
        assert copy is not None
        assert copy["spec"]["targetRef"] == ref


async def test_a_placement_that_moves_takes_its_copy_along(world: World) -> None:
    first, second = world.names
    await world.decide(first)
    await world.policy()
    async with world.syncing():
        await eventually(world.works, {"paint": [first]})
        await world.decide(first, second)
        await eventually(world.works, {"paint": [first, second]})
        await world.decide(second)
        await eventually(world.works, {"paint": [second]})
        await eventually(world.listed, [second])


@pytest.mark.slow
async def test_a_grace_keeps_what_comes_back(world: World) -> None:
    first, second = world.names
    await world.policy()
    async with world.syncing(grace_seconds=600):
        await eventually(world.works, {"paint": [first, second]})
        await world.decide(second)

        async def leaving() -> bool:
            return "kuadrant.io/grace-timeout" in await _work_notes(world, first)

        await eventually(leaving, expected=True)
        await world.decide(first, second)
        await eventually(leaving, expected=False)
        assert await world.works() == {"paint": [first, second]}


@pytest.mark.slow
async def test_a_policy_deleted_while_nobody_looks_leaves_no_work(world: World) -> None:
    await world.policy()
    async with world.syncing():
        await eventually(world.works, {"paint": world.names})
    await world.delete(COLORS, world.space, "paint")
    async with world.syncing():
        await eventually(world.works, EMPTY)


@pytest.mark.slow
async def test_a_kind_that_is_listed_no_more_takes_its_copies_and_marks_along(
    world: World,
) -> None:
    await world.decide(world.names[0])
    await world.policy()
    async with world.syncing():
        await eventually(world.listed, [world.names[0]])
        await eventually(world.said, lambda said: SYNCED in said)
        await world.listing()
        await eventually(world.works, EMPTY)
        await eventually(world.said, EMPTY)
        found = await world.get(COLORS, world.space, "paint")
        assert found is not None
        assert PLACED not in found["metadata"].get("annotations", {})


@pytest.mark.slow
async def test_a_target_that_is_another_gateway_moves_the_copies(world: World) -> None:
    first, second = world.names
    await world.gateway("other", placement="other")
    await world.decide(first)
    await world.decide(second, placement="other")
    await world.policy()
    async with world.syncing():
        await eventually(world.works, {"paint": [first]})
        await world.policy(to="other")
        await eventually(world.works, {"paint": [second]})


@pytest.mark.slow
async def test_a_placement_decision_that_vanishes_empties_nothing(world: World) -> None:
    await world.policy()
    async with world.syncing():
        await eventually(world.works, {"paint": world.names})
        await world.delete(PLACEMENT_DECISIONS, world.space, "web")
        said = await eventually(
            world.said, lambda said: said.get(SYNCED, ("", "", ""))[1] == "PlacementUnknown"
        )
        assert "there is no PlacementDecision" in said[SYNCED][2]
        assert await world.works() == {"paint": world.names}
    async with world.syncing() as context:
        await eventually(lambda: _noted(context, "copies"), "2 placed, 2 wanted")
        assert await world.works() == {"paint": world.names}


async def test_a_fleet_that_shrinks_is_held_until_it_is_approved(world: World) -> None:
    await world.policy()
    async with world.syncing() as context:
        await eventually(world.works, {"paint": world.names})
        await world.decide()
        said = await eventually(world.said, lambda said: "kube-sync.io/RemovalsHeld" in said)
        assert "0 of 2 clusters are left" in said["kube-sync.io/RemovalsHeld"][2]
        note = await eventually(lambda: _noted(context, "removals"), _is_offer)
        assert await world.works() == {"paint": world.names}
        name = note.partition("or approve ")[2].partition(")")[0]
        await world.merge(
            CONFIGMAPS, world.space, "params", {"metadata": {"annotations": {APPROVED: name}}}
        )
        await eventually(world.works, EMPTY)
        await eventually(world.said, lambda said: "kube-sync.io/RemovalsHeld" not in said)
        told = await eventually(lambda: _events(world), lambda told: "RemovalsApproved" in told)
        note = said["kube-sync.io/RemovalsHeld"][2]
        approved = f"{name} was approved, for {', '.join(world.names)}"
        assert told == {"RemovalsHeld": note, "RemovalsApproved": approved}


async def _events(world: World) -> dict[str, str]:
    """Return what Events say of the policy, by their reasons."""
    found = msgspec.json.decode(await world.hub.request("GET", EVENTS.path(world.space)))["items"]
    about = [one for one in found if one["regarding"]["name"] == "paint"]
    assert len({one["reason"] for one in about}) == len(about)
    return {one["reason"]: one["note"] for one in about}


@pytest.mark.slow
async def test_what_is_wrong_with_the_parameters_is_told_and_hinders_no_other_kind(
    world: World,
) -> None:
    missing = GroupVersionResource("nothing.example.com", "v1", "nothings")
    await world.decide(world.names[0])
    await world.listing(COLORS, missing)
    await world.policy()

    async def told() -> dict[str, tuple[str, str]]:
        found = await world.get(GATEWAY_CLASSES, "", world.gateway_class) or {}
        listed = found.get("status", {}).get("conditions", [])
        return {one["type"]: (one["status"], one["message"]) for one in listed}

    async with world.syncing():
        said = await eventually(told, lambda said: said.get("Accepted", ("",))[0] == "False")
        assert "nothings.v1.nothing.example.com: no such resource" in said["Accepted"][1]
        await eventually(world.works, {"paint": [world.names[0]]})
        await world.listing(COLORS)
        await eventually(told, lambda said: said["Accepted"][0] == "True")
        assert (await told())["kube-sync.io/PolicySync"][0] == "True"


@pytest.mark.slow
async def test_one_that_is_killed_is_followed_by_one_that_ends_what_it_began(
    world: World, tmp_path: Path
) -> None:
    first, second = world.names
    await world.decide(first)
    await world.policy("old")
    async with world.killed(tmp_path):
        await eventually(world.works, {"old": [first]})
    before = world.writes()
    await world.delete(COLORS, world.space, "old")
    await world.policy("new")
    await world.decide(first, second)
    async with world.syncing():  # it waits until the Lease of the dead one runs out
        await eventually(world.works, {"new": [first, second]}, 60.0)
    changed = world.writes() - before
    assert changed["patch manifestworks"] == 2
    assert changed["delete manifestworks"] == 1


@pytest.mark.slow
async def test_without_open_cluster_management_copies_and_statuses_go_by_kubeconfigs(
    world: World,
) -> None:
    first, second = world.names
    await world.below_it()
    await world.grant()
    await world.policy()
    options = {"placers": ["direct"], "spokes": {"namespace": world.space}}
    async with world.topologies(), world.syncing(**options):
        await eventually(world.copies, {first: "red", second: "red"})
        await eventually(world.said, lambda said: said.get("Programmed", ("",))[0] == "True")
        await world.put(COLORS, world.below, "native", on=world.on[second], spec=spec_of("green"))
        said = await eventually(
            world.said, lambda said: said.get("Programmed", ("", "", ""))[1] == "Overridden"
        )
        assert said["Programmed"][2].startswith(f"{second}: Overridden")
        await world.decide(first)
        await eventually(world.copies, {first: "red"})
        await world.delete(COLORS, world.space, "paint")
        await eventually(world.copies, EMPTY)


async def _noted(context: Any, name: str) -> str:
    return str(context.readiness.conditions.get(name, ""))


def _is_offer(note: str) -> bool:
    return "or approve moves-" in note


async def _work_notes(world: World, cluster: str) -> dict[str, str]:
    listed = json.loads(await world.hub.request("GET", WORKS.path(cluster)))["items"]
    return dict(listed[0]["metadata"]["annotations"]) if listed else {}
