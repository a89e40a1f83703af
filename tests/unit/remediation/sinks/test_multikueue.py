from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import REGISTRY

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    Record,
    StatusRecord,
    Target,
)
from kube_sync.errors import Conflict, Refused, SyncError, Terminal
from kube_sync.guard import ADDITION
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.kueue import WORKLOADS, Workload, parse_workload
from kube_sync.objects import ObjectKey
from kube_sync.remediation.decision_cache import DecisionCache
from kube_sync.remediation.plan import Publish, Unusable
from kube_sync.remediation.sinks.annotations import AnnotationSink
from kube_sync.remediation.sinks.follower import Follower
from kube_sync.remediation.sinks.multikueue import MultiKueueSink
from kube_sync.remediation.sinks.nomination import Nomination
from kube_sync.remediation.stores import Both
from kube_sync.remediation.targets import Targets
from tests.fakes.listing import Listing, listed
from tests.memory import remembered
from tests.unit.async_tools import LoopTime, running, until

VERSION = ResourceVersion("1")
RELEASED, HELD = StatusRecord((), "me"), StatusRecord(("loading",), "me")
BOOKMARK = BookmarkRecord(1, "me")
PENDING = [{"name": "mk", "state": "Pending"}]
RESERVED = [{"type": "QuotaReserved", "status": "True"}]


def placed(*names: str) -> str:
    weights = {name: {"weight": len(names) - n} for n, name in enumerate(names)}
    return json.dumps({"clusters": weights})


def now() -> float:
    return asyncio.get_running_loop().time()


def timestamp() -> str:
    return datetime.fromtimestamp(now(), UTC).isoformat()


def named(name: str, body: Any, namespace: str = "") -> Item:
    return Item(ObjectKey(namespace, name), "u", VERSION, json.dumps(body).encode())


def cluster(name: str, status: str = "True") -> Item:
    active = {"type": "Active", "status": status, "message": "timeout"}
    return named(name, {"status": {"conditions": [active]}})


class World:
    """Workloads of an API server, to which writes go at once and come back by the watch."""

    def __init__(self, *, mode: str = "enforce") -> None:
        self.leads: float = math.inf
        self.mode = mode
        self.documents: dict[ObjectKey, Any] = {}
        self.writes: list[list[str]] = []
        self.failures: list[SyncError] = []
        self.told: list[str] = []
        self.decisions = DecisionCache(lambda: 0.0)
        self.start()

    def start(self) -> None:
        """Make a sink, and the follower that writes through it, which know nothing yet."""
        fenced = FencedWriter(lambda: self.leads)
        self.sink = MultiKueueSink(self, fenced, self, now, seconds=60.0)
        targets = Targets(lambda key: self.follower.add([(WORKLOADS, key)]))
        self.follower = Follower(
            self.sink,
            {WORKLOADS: AnnotationSink(self._no_patch)},
            lambda _gvr: targets,
            self.decisions,
            lambda _namespace: self.mode,
            fenced,
        )
        self.workloads = Both(targets, self.sink.workloads)
        items = [self._item(key) for key in self.documents]
        for store in (targets, self.sink.workloads):
            listed(store, Listing(items, VERSION))
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "c"}
        controller = "kueue.x-k8s.io/multikueue"
        check = {"spec": {"controllerName": controller, "parameters": parameters}}
        self.relist("checks", named("mk", check))
        self.relist("configs", named("c", {"spec": {"clusters": ["a", "b", "c"]}}))
        self.relist("clusters", cluster("a"), cluster("b"), cluster("c"))

    async def _no_patch(self, *_: object) -> None:
        pytest.fail("a follower writes no annotation")

    def relist(self, what: str, *items: Item, known: bool = True) -> None:
        listed(getattr(self.sink.workers, what), Listing(list(items), VERSION), known=known)

    def put(self, name: str, annotations: dict[str, str], uid: str = "u", **status: Any) -> None:
        """Store a Workload and let the watch tell of it."""
        key = ObjectKey("ns", name)
        known = {"conditions": RESERVED, "admissionChecks": PENDING} | status
        metadata = {"name": name, "uid": uid, "annotations": annotations}
        metadata["creationTimestamp"] = timestamp()
        self.documents[key] = {"metadata": metadata, "status": known}
        self._tell(key)

    def _tell(self, key: ObjectKey, kind: str = "MODIFIED") -> None:
        self.workloads.apply(Event(kind, VERSION, self._item(key)))

    def _item(self, key: ObjectKey) -> Item:
        document = self.documents[key]
        body = json.dumps(document).encode()
        return Item(key, document["metadata"]["uid"], VERSION, body)

    def delete(self, name: str) -> None:
        self._tell(ObjectKey("ns", name), "DELETED")

    def decide(self, name: str, *order: str, **decision: Any) -> DecisionRecord:
        target = Target(WORKLOADS.group, WORKLOADS.version, WORKLOADS.resource, name, "ns")
        made = Decision({PLACEMENT: placed(*order)} if order else {}, **decision)
        return DecisionRecord(target, "u", made, 1, "data", "p1")

    def stream(self, *records: Record) -> None:
        for record in (None, HELD, *records, RELEASED, BOOKMARK):
            self.decisions.apply_record(record)

    def workload(self, name: str, *order: str, **status: Any) -> None:
        """Store a Workload that has its placement, and decide it."""
        self.put(name, {PLACEMENT: placed(*order)}, **status)
        self.stream(self.decide(name, *order))

    def nominated(self, name: str) -> list[str]:
        status = self.documents[ObjectKey("ns", name)]["status"]
        return list(status.get("nominatedClusterNames", ()))

    # What the sink asks of the API server

    async def read(self, key: ObjectKey, uid: str) -> tuple[Workload, dict[str, Any]]:
        await asyncio.sleep(0)
        document = self.documents[key]
        assert document["metadata"]["uid"] == uid
        return parse_workload(json.dumps(document).encode()), document

    async def nominate(
        self, key: ObjectKey, document: dict[str, Any], clusters: Sequence[str]
    ) -> None:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        assert document is self.documents[key]
        self.writes.append(list(clusters))
        status = document["status"] | {"nominatedClusterNames": list(clusters)}
        owned: Any = {"f:status": {"f:nominatedClusterNames": {}}}
        managers = [{"manager": "kueue-admission", "time": timestamp(), "fieldsV1": owned}]
        metadata = document["metadata"] | {"managedFields": managers}
        self.documents[key] = {"metadata": metadata, "status": status}
        self._tell(key)

    # What it tells

    async def intend(self, key: ObjectKey, found: Workload, wanted: Nomination) -> str:
        self.told.append(f"{key.name}: {','.join(found.nominated)}->{','.join(wanted.clusters)}")
        return "w1"

    def ended(self, name: str, key: ObjectKey, uid: str, reason: str) -> None:
        self.told.append(f"{name} {key.name}: {reason}")
        assert uid == "u"

    def failed(self, name: str, key: ObjectKey, uid: str, error: SyncError) -> None:
        self.told.append(f"{name} {key.name} {uid} failed: {error}")

    def held(self, key: ObjectKey, uid: str, hold: Unusable) -> None:
        assert uid == "u"
        self.told.append(f"{key.name} held: {hold.kind}")

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        # The clock is put forward by hours: no patience ends meanwhile.
        async with running(self.follower.run(), self.follower.run(), patience=1e9):
            yield
            await idle()


async def idle() -> None:
    for _ in range(80):
        await asyncio.sleep(0)


def written(outcome: str) -> float:
    name = "kube_sync_placement_decision_writes_total"
    labels = {"sink": "multikueue", "outcome": outcome}
    return REGISTRY.get_sample_value(name, labels) or 0


def held_now(reason: str) -> float:
    labels = {"sink": "multikueue", "reason": reason}
    return REGISTRY.get_sample_value("kube_sync_placement_decisions_held", labels) or 0


async def test_the_first_cluster_is_nominated_once() -> None:
    world = World()
    async with world.running():
        world.workload("w", "b", "a")
        await idle()
        world.follower.wake()
    assert world.writes == [["b"]]
    assert world.told == ["w: ->b", "w1 w: b is the policy's first"]


async def test_the_next_is_nominated_when_its_time_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    world, time = World(), LoopTime(monkeypatch)
    async with world.running():
        world.workload("w", "b", "a", "c")
        await idle()
        time.forward(59.0)
        await idle()
        assert world.writes == [["b"]]
        time.forward(1.1)
        await idle()
        assert world.writes == [["b"], ["b", "a"]]
        time.forward(60.1)
        await idle()
    assert world.writes[2:] == [["b", "a", "c"]]
    assert "b did not admit it within 60 s: a is nominated too" in world.told[3]


async def test_a_restart_does_not_begin_the_time_of_a_cluster_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, time = World(), LoopTime(monkeypatch)
    async with world.running():
        world.workload("w", "b", "a")
    time.forward(59.0)
    world.start()
    async with world.running():
        await idle()
        assert world.writes == [["b"]]
        time.forward(1.1)
        await idle()
    assert world.writes == [["b"], ["b", "a"]]


async def test_in_a_move_that_adds_first_the_new_cluster_is_nominated_beside_the_old() -> None:
    world = World()
    async with world.running():
        world.workload("w", "b")
        await idle()
        status = world.documents[ObjectKey("ns", "w")]["status"]
        world.put("w", {PLACEMENT: placed("b", "a"), ADDITION: "{}"}, **status)
        world.stream(world.decide("w", "a"))
        await idle()
        assert world.nominated("w") == ["b", "a"]
        status = world.documents[ObjectKey("ns", "w")]["status"]
        world.put("w", {PLACEMENT: placed("a")}, **status)
    assert world.nominated("w") == ["a"]
    assert world.told[1::2] == [
        "w1 w: b is the policy's first",
        "w1 w: a is the policy's first",
        "w1 w: b is left: no policy permits it",
    ]


async def test_it_writes_no_step_of_another_sink() -> None:
    with pytest.raises(TypeError, match="not a step of multikueue"):
        await World().sink.write((WORKLOADS, ObjectKey("ns", "w")), Publish("u", {}))


async def test_a_cluster_that_becomes_inactive_is_left() -> None:
    world = World()
    async with world.running():
        world.workload("w", "b", "a")
        await idle()
        world.relist("clusters", cluster("a"), cluster("b", "False"), cluster("c"))
        await idle()
        assert world.nominated("w") == ["a"]
        world.relist("clusters", cluster("a", "False"), cluster("b", "False"), cluster("c"))
        await idle()
        assert world.nominated("w") == []
        assert held_now("inactive") == 1
        world.relist("clusters", cluster("a", "False"), cluster("b"), cluster("c"))
    assert world.nominated("w") == ["b"]
    assert held_now("inactive") == 0
    assert "w held: inactive" in world.told


async def test_one_that_was_admitted_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    world, time = World(), LoopTime(monkeypatch)
    async with world.running():
        world.workload("w", "b", "a")
        await idle()
        world.put("w", {PLACEMENT: placed("b", "a")}, clusterName="b")
        time.forward(1000.0)
        await idle()
    assert world.writes == [["b"]]


async def test_without_a_usable_decision_nothing_changes_and_it_is_said() -> None:
    world = World()
    async with world.running():
        world.put("w", {PLACEMENT: placed("b")}, nominatedClusterNames=["a"])
        world.stream(world.decide("w", "b", errors=("no",)))
        await idle()
        assert (world.writes, world.told) == ([], ["w held: undecided"])
        assert held_now("undecided") == 1
        world.stream(world.decide("w", "c"))
        await idle()
        assert (world.writes, held_now("not_applied")) == ([], 1)
        world.delete("w")
    assert (held_now("undecided"), held_now("not_applied")) == (0, 0)
    assert world.told == ["w held: undecided"]


async def test_a_workload_that_no_decision_arrives_for_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, time = World(), LoopTime(monkeypatch)
    async with world.running():
        world.stream()
        world.put("w", {})
        await idle()
        assert world.told == []
        time.forward(3.1)
        await idle()
        assert world.told == ["w held: undecided"]
        world.put("w", {PLACEMENT: placed("b")})
        world.stream(world.decide("w", "b"))
    assert (world.writes, held_now("undecided")) == ([["b"]], 0)


async def test_nothing_is_written_while_anything_is_not_known() -> None:
    world = World()
    async with world.running():
        world.put("w", {PLACEMENT: placed("b")})
        await idle()
        for record in (None, HELD, world.decide("w", "b"), BOOKMARK):
            world.decisions.apply_record(record)
        await idle()
        world.relist("configs", known=False)
        world.decisions.apply_record(RELEASED)
        await idle()
        assert world.writes == []
        world.relist("configs", named("c", {"spec": {"clusters": ["b"]}}))
    assert world.writes == [["b"]]


async def test_only_the_leader_writes() -> None:
    world = World()
    world.leads = 0
    async with world.running():
        world.workload("w", "b")
        await idle()
        assert world.writes == []
        world.leads = math.inf
        world.follower.wake()
    assert world.writes == [["b"]]


@pytest.mark.parametrize("mode", ["off", "dry-run"])
async def test_other_modes_write_nothing(mode: str) -> None:
    world, before = World(mode=mode), written("dry-run")
    async with world.running():
        world.workload("w", "b")
    assert (world.writes, world.told) == ([], [])
    assert written("dry-run") - before == (mode == "dry-run")


async def test_a_conflict_is_tried_again() -> None:
    world, before = World(), written("retried")
    world.failures = [Conflict("changed"), Refused("forbidden")]
    async with world.running():
        world.workload("w", "b")
        await until(lambda: world.writes)
    assert written("retried") - before == 2
    assert world.told[1] == "w1 w u failed: changed"


async def test_what_is_refused_is_said_and_waits_for_a_change() -> None:
    world, before = World(), written("refused")
    world.failures = [Terminal("another version")]
    async with world.running():
        world.workload("w", "b")
        await idle()
        assert world.writes == []
        world.put("w", {PLACEMENT: placed("b"), "else": "1"})
    assert world.writes == [["b"]]
    assert written("refused") - before == 1
    assert world.told[1] == "w1 w u failed: another version"


async def test_another_writer_that_keeps_changing_it_is_left_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, time = World(), LoopTime(monkeypatch)
    async with world.running():
        world.workload("w", "b")
        for _ in range(5):
            await idle()
            world.put("w", {PLACEMENT: placed("b")}, nominatedClusterNames=["c"])
        await idle()
        assert world.writes == [["b"]] * 3
        assert (world.nominated("w"), world.told[-1]) == (["c"], "w held: rival")
        time.forward(61.0)
        await idle()
    assert world.nominated("w") == ["b"]
    assert held_now("rival") == 0


async def test_a_workload_that_changed_meanwhile_is_judged_as_it_is_now() -> None:
    world = World()
    async with world.running():
        world.workload("w", "b")
        key = ObjectKey("ns", "w")
        document = world.documents[key]
        world.documents[key] = document | {"status": document["status"] | {"clusterName": "a"}}
    assert (world.writes, world.told) == ([], [])


async def test_nothing_is_remembered_of_a_workload_that_is_gone() -> None:
    world = World()
    async with world.running():
        world.workload("w", "b")
        world.put("v", {PLACEMENT: placed("b")})
        world.decisions.apply_record(world.decide("v", "b", errors=("no",)))
        await idle()
        assert {*"vw"} <= {key.name for key in remembered(world.sink, ObjectKey)}
        world.delete("v")
        world.delete("w")
        world.stream()
    assert {*"vw"}.isdisjoint(key.name for key in remembered(world.sink, ObjectKey))
