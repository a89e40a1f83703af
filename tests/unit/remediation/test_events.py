from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from kube_sync.decisions.records import BookmarkRecord, Stale, StatusRecord, Target, Unreadable
from kube_sync.errors import Retriable
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import EVENTS, Reporter
from kube_sync.objects import GroupVersionResource
from kube_sync.observability import metrics
from kube_sync.remediation.events import CONTROLLER, EventReporter
from kube_sync.remediation.holds import Wait, Waiting
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import REPLICASETS, key, kube_of
from tests.unit.async_tools import LoopTime, running, until

NODES = GroupVersionResource("", "v1", "nodes")
CLUSTERS = GroupVersionResource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles")
DEEP = "it is nested too deeply to be read"
EAST = Unreadable(Target.of(CLUSTERS, key("east", "fleet")), "u1", DEEP)
NODE = Unreadable(Target.of(NODES, key("n", "")), "u2", DEEP)


class World:
    def __init__(self, api: FakeApiServer, recorder: EventRecorder) -> None:
        self.api = api
        self.asked: list[GroupVersionResource] = []
        self.away = False
        self.leads = True
        self.telling = EventReporter(recorder, self._kind_of, lambda: self.leads)
        self.waiting = Waiting(self.telling.enqueue, lambda: 1.0)
        self.recorder = recorder

    async def _kind_of(self, gvr: GroupVersionResource) -> str:
        self.asked.append(gvr)
        if self.away:
            msg = "away"
            raise Retriable(msg)
        return "ReplicaSet"

    def wait(self, kind: str, name: str = "web", **more: Any) -> None:
        wait = Wait("u", kind, "why", "release", {}, **more)
        self.waiting.put((REPLICASETS, key(name, "shop")), wait)

    def unread(self, *found: Unreadable, held: tuple[str, ...] = ()) -> None:
        """Have the stream say that these cannot be read."""
        late = Stale("things that cannot be read", 1.0, "deep", found)
        self.telling.apply_record(StatusRecord(held, "me", (), (late,) if found else ()))

    @property
    def events(self) -> list[Any]:
        return [*self.api.objects(EVENTS).values()]

    async def told(self) -> list[tuple[str, str, int]]:
        """Return name, uid and count of all Events, once a last one is there."""
        last = f"last-{len(self.events)}"
        self.wait("mass", last)
        await until(lambda: any(e["regarding"]["name"] == last for e in self.events))
        abouts = ((e["regarding"], e.get("series", {}).get("count", 1)) for e in self.events)
        return sorted(
            (about["name"], about["uid"], count)
            for about, count in abouts
            if not about["name"].startswith("last-")
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.define(EVENTS, "Event")
        reporter = Reporter(CONTROLLER, "host-1")
        world = World(api, EventRecorder(client, reporter, metrics.remediation_events))
        async with running(world.telling.run(world.waiting), world.recorder.run()):
            yield world


async def test_what_is_held_is_told_beside_the_object_with_its_release(world: World) -> None:
    world.wait("mass")
    await until(lambda: world.events)
    (event,) = world.events
    assert event["regarding"] == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "namespace": "shop",
        "name": "web",
        "uid": "u",
    }
    assert (event["reason"], event["note"], event["action"]) == (
        "RemediationMass",
        "why (release)",
        "Hold",
    )
    assert event["reportingController"] == CONTROLLER


async def test_object_without_a_usable_decision_is_told_beside_it(world: World) -> None:
    """As of one that is nested too deeply to be read."""
    world.wait("failed")
    await until(lambda: world.events)
    (event,) = world.events
    assert (event["reason"], event["regarding"]["name"]) == ("RemediationFailed", "web")


async def test_a_time_is_left_out_so_that_the_same_is_counted(world: World) -> None:
    world.wait("not_before", until=2.0)
    await until(lambda: world.events)
    assert (world.events[0]["reason"], world.events[0]["note"]) == ("RemediationNotBefore", "why")


async def test_a_name_to_approve_is_told_although_there_is_a_time_too(world: World) -> None:
    world.wait("oscillation", until=2.0, approve="freeze-1")
    await until(lambda: world.events)
    assert world.events[0]["note"] == "why (release)"


async def test_what_is_over_in_a_moment_or_was_asked_for_is_not_told(world: World) -> None:
    world.wait("unseen", "a")
    world.wait("dry-run", "b")
    world.wait("mass", "c")
    world.waiting.drop((REPLICASETS, key("gone", "shop")))
    await until(lambda: world.events)
    assert [event["regarding"]["name"] for event in world.events] == ["c"]


async def test_what_waits_no_longer_when_its_turn_comes_is_not_told(world: World) -> None:
    world.wait("mass", "a")
    world.waiting.drop((REPLICASETS, key("a", "shop")))
    world.wait("mass", "b")
    await until(lambda: world.events)
    assert [event["regarding"]["name"] for event in world.events] == ["b"]


async def test_without_its_kind_an_object_is_not_told_of(world: World) -> None:
    world.away = True
    world.wait("mass", "a")
    await until(lambda: world.asked)
    world.away = False
    world.waiting.put((NODES, key("n", "")), Wait("u", "mass", "why", "release", {}))
    await until(lambda: world.events)
    assert [event["regarding"]["name"] for event in world.events] == ["n"]
    assert world.events[0]["regarding"]["apiVersion"] == "v1"
    await asyncio.sleep(0)


async def test_object_that_the_replicator_cannot_read_is_told_beside_it(world: World) -> None:
    world.unread(EAST, NODE)
    await until(lambda: len(world.events) == 2)
    east, node = sorted(world.events, key=lambda event: str(event["regarding"]["name"]))
    assert east["regarding"] == {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ReplicaSet",  # whatever discovery says
        "namespace": "fleet",
        "name": "east",
        "uid": "u1",
    }
    assert (east["type"], east["reason"]) == ("Warning", "RemediationUnreadable")
    assert east["note"].startswith(DEEP)
    assert east["metadata"]["namespace"] == "fleet"
    assert node["metadata"]["namespace"] == "default"  # it lies in none
    assert "namespace" not in node["regarding"]


async def test_object_that_cannot_be_read_is_told_once_for_one_reason(world: World) -> None:
    for _ in range(3):
        world.unread(EAST)
        assert await world.told() == [("east", "u1", 1)]
        world.telling.apply_record(None)
        world.telling.apply_record(BookmarkRecord(1, "me"))
        world.unread(held=("OPA is being loaded",))  # nobody knows yet that it can be read again
        world.telling.lead()
    other = Unreadable(EAST.object, "u1", "it cannot be read: malformed")
    world.unread(other)
    assert await world.told() == [("east", "u1", 1)] * 2


async def test_object_that_is_another_one_or_was_readable_meanwhile_is_told_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = LoopTime(monkeypatch)
    world.unread(EAST)
    assert await world.told() == [("east", "u1", 1)]
    again = Unreadable(EAST.object, "u9", DEEP)
    world.unread()
    world.unread(again)
    assert await world.told() == [("east", "u1", 1), ("east", "u9", 1)]
    world.unread(EAST)
    await world.told()
    time.forward(5.0)  # counts are written every few seconds
    await until(lambda: any("series" in event for event in world.events))
    assert await world.told() == [("east", "u1", 2), ("east", "u9", 1)]  # the same Event, counted


async def test_who_may_not_write_tells_what_cannot_be_read_once_it_may(world: World) -> None:
    world.leads = False
    world.unread(EAST, NODE)
    assert await world.told() == []
    world.unread(EAST)
    world.leads = True
    world.telling.lead()
    assert await world.told() == [("east", "u1", 1)]


async def test_what_can_be_read_again_when_its_turn_comes_is_not_told(world: World) -> None:
    world.unread(EAST)
    world.unread()
    assert await world.told() == []


async def test_without_its_kind_what_cannot_be_read_is_told_with_the_next_status(
    world: World,
) -> None:
    world.away = True
    world.unread(EAST)
    await until(lambda: world.asked)
    world.away = False
    assert await world.told() == []
    world.unread(EAST)
    assert await world.told() == [("east", "u1", 1)]


async def test_a_placement_that_was_written_on_unknown_clusters_is_told_beside_it(
    world: World,
) -> None:
    world.telling.warn((REPLICASETS, key("web", "shop")), "u", "the fleet has no cluster 'x'")
    await until(lambda: world.events)
    (event,) = world.events
    assert (event["reason"], event["note"], event["type"]) == (
        "RemediationUnknownClusters",
        "the fleet has no cluster 'x'",
        "Warning",
    )
