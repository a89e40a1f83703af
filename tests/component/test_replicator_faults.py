"""The replicator between two servers that fail, as both do: in the end OPA holds what is there."""

from __future__ import annotations

import asyncio
import copy
import json
import random
import re
import time
import weakref
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

import kube_sync
from kube_sync.config import Policies, Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import StatusRecord, Target, Unreadable
from kube_sync.kube.policymaps import STATUS
from kube_sync.objects import GroupVersionResource
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.scratch import Cause
from kube_sync.policies.trial_run import Trial
from kube_sync.replicator.projector import TOO_DEEP
from kube_sync.replicator.writer import Writer
from kube_sync.runtime.backoff import Backoff
from tests.fakes.apiserver import FakeApiServer, error_event, fake_apiserver, lists, watches
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, key
from tests.fakes.compiler import FakeCompiler
from tests.fakes.http import Recorded, answer, held, lose_answer, stream
from tests.fakes.opa import FakeOpa, fake_opa, heartbeat, patched, puts
from tests.fakes.replicating import replicator_between
from tests.parts import quickly
from tests.unit.async_tools import until

POLICIES = "policies"
MIRRORED = {"clusters": CLUSTERS, "replicasets": REPLICASETS}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_PATIENCE = 30.0  # seconds


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let waits and heartbeats take a twentieth of their time; nothing else is changed."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 20)

    for made, name, value in ((Backoff, "sleep", sleep), (Writer, "heartbeat", 0.05)):
        defaults = made.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, name, value)


class World:
    """A replicator, what it reads from and what it writes to."""

    def __init__(self, api: FakeApiServer, opa: FakeOpa) -> None:
        self.api = api
        self.opa = opa
        self.hub = DecisionHub("test")
        self.readiness = Readiness()
        self.odd: set[str] = set()  # names of objects that cannot be replicated

    @property
    def requests(self) -> list[Recorded]:
        """What the API server was asked."""
        return self.api.http.requests

    def replicasets(self, *names: str) -> None:
        for name in names:
            self.api.put(REPLICASETS, key(name), spec={"replicas": 1})

    @property
    def equal(self) -> bool:
        return bool(self.opa.data.get("kubernetes") == self.wanted())

    def wanted(self) -> dict[str, Any]:
        """Say what OPA must hold, of the API server's objects alone."""
        wanted: dict[str, Any] = {}
        for name, gvr in MIRRORED.items():
            collection = wanted.setdefault(name, {})
            for where, found in self.api.objects(gvr).items():
                if where.name in self.odd:
                    continue
                body = copy.deepcopy(found)
                body["metadata"].pop("managedFields", None)
                body["metadata"].get("annotations", {}).pop(LAST_APPLIED, None)
                collection.setdefault(where.namespace, {})[where.name] = body
        return wanted

    def wipe_beside_the_epoch(self) -> None:
        self.opa.data.pop("kubernetes", None)

    async def until_equal(self) -> None:
        await until(lambda: self.equal and self.epoch_state == ["loaded"] and not self.hub.held)

    @property
    def epoch_state(self) -> list[str]:
        return list(self.opa.data.get("kube_sync", {}).get("epoch", {}).values())

    @property
    def epochs(self) -> int:
        """How many loads began."""
        epoch = puts("/v1/data/kube_sync/epoch")
        return sum(map(epoch, self.opa.http.requests))

    @property
    def stale(self) -> list[str]:
        """What readers are told is not current."""
        return [late.source for late in self.hub.freshness.sources]

    def decision(self, name: str) -> Any:
        """Return what the hub says of a ReplicaSet's annotations, None for nothing."""
        for target, record in self.hub.records.items():
            if target.name == name and record.decision is not None:
                return dict(record.decision.annotations)
        return None


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    """Everything but the replicator itself, with a policy and objects."""
    async with fake_apiserver() as api, fake_opa() as opa:
        api.define(REPLICASETS, "ReplicaSet")
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(CLUSTERS, "ClusterProfile", builtin=False)
        opa.decide = lambda _object, data: {
            "annotations": {"clusters": sorted(data["kubernetes"]["clusters"].get("fleet", {}))}
        }
        world = World(api, opa)
        api.put(CLUSTERS, key("east", "fleet"))
        api.put(CLUSTERS, key("west", "fleet"))
        world.replicasets("a", "b", "c")
        api.put(CONFIGMAPS, key("p", POLICIES), data={"a.rego": "package a"})
        yield world


@asynccontextmanager
async def replicating(
    world: World,
    tmp_path: Path,
    user: dict[str, Any] | None = None,
    *,
    trial: Trial | None = None,
) -> AsyncGenerator[None]:
    """Run the replicator beside the block; what it raises fails the test."""
    settings = Settings(policies=Policies(namespaces=(POLICIES,)))
    async with replicator_between(
        world.api,
        world.opa,
        tmp_path,
        settings,
        hub=world.hub,
        readiness=world.readiness,
        trial=trial,
        user=user,
        patience=_PATIENCE,
    ):
        yield


@pytest.fixture
async def running(world: World, tmp_path: Path) -> AsyncGenerator[World]:
    """A world whose replicator has loaded everything."""
    async with replicating(world, tmp_path):
        await world.until_equal()
        await world.api.watched(REPLICASETS, CLUSTERS, CONFIGMAPS)
        yield world


def audits(recorded: Recorded) -> bool:
    return recorded.path.endswith("/audit/versions")


def posts(recorded: Recorded) -> bool:
    return recorded.path.endswith("/batch/decisions")


async def test_load_makes_opa_equal_to_the_api_server(world: World, tmp_path: Path) -> None:
    world.api.put(
        REPLICASETS,
        key("d~1%2F", "other"),
        metadata={
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {LAST_APPLIED: "{}", "mine": "1"},
        },
    )
    world.api.page_size = 2
    async with replicating(world, tmp_path):
        await world.until_equal()
        assert world.opa.policies[f"{POLICIES}/p/a.rego"] == "package a"
        assert world.decision("a") == {"clusters": '["east","west"]'}
        assert world.readiness.reasons == {}


async def test_outcome_of_a_policy_is_written_on_its_configmap(running: World) -> None:
    def status() -> str:
        annotations = running.api.get(CONFIGMAPS, key("p", POLICIES))["metadata"].get("annotations")
        return str((annotations or {}).get(STATUS))

    await until(lambda: status() == '{"status":"ok"}')
    running.api.put(CONFIGMAPS, key("p", POLICIES), data={"a.rego": "does not compile"})
    await until(lambda: '"error"' in status())
    assert running.opa.policies[f"{POLICIES}/p/a.rego"] == "package a"


async def test_changes_are_followed(running: World) -> None:
    running.api.put(REPLICASETS, key("a"), spec={"replicas": 9})
    running.api.delete(REPLICASETS, key("b"))
    running.replicasets("new")
    await running.until_equal()
    running.api.delete(CLUSTERS, key("west", "fleet"))
    await until(lambda: running.decision("new") == {"clusters": '["east"]'})
    assert running.epochs == 1


async def test_idle_world_is_left_alone(running: World) -> None:
    beats = len(running.opa.http.requests)
    await running.opa.http.until_next(heartbeat)
    await running.opa.http.until_next(heartbeat)
    assert all(heartbeat(r) or audits(r) for r in running.opa.http.requests[beats:])


class Tried(FakeCompiler):
    """A scratch OPA that accepts what is tried on a sample of the data."""

    async def evaluated(self, *_: object) -> None:
        pass

    async def builtin_errors(self, *_: object) -> list[Cause]:
        return []


async def test_what_was_known_of_a_lost_opa_is_let_go_before_another_one_is_loaded(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both, a process would need twice the memory of its objects."""
    made: list[weakref.ref[Writer]] = []
    kept: list[int] = []
    init = Writer.__init__

    def remembering(self: Writer, *args: Any, **kwargs: Any) -> None:
        kept.append(sum(found() is not None for found in made))
        made.append(weakref.ref(self))
        init(self, *args, **kwargs)

    monkeypatch.setattr(Writer, "__init__", remembering)
    # It refers to all objects, to take a sample of them.
    trial = Trial(cast("Any", Tried()))
    async with replicating(world, tmp_path, trial=trial):
        for _ in range(3):
            await world.until_equal()
            assert trial.possible
            world.opa.restart()
            await world.opa.http.until_next(puts("/v1/data/kube_sync/epoch"))
        await world.until_equal()
    assert len(made) == 4
    assert kept == [0] * 4


async def test_opa_restarted_while_idle_is_loaded_again(running: World) -> None:
    running.opa.restart()
    await until(lambda: running.epochs == 2)
    await running.until_equal()
    assert running.opa.policies[f"{POLICIES}/p/a.rego"] == "package a"


async def test_opa_wiped_while_idle_is_loaded_again(running: World) -> None:
    """The policies survived: they must not answer over data that is not there."""
    running.opa.wipe()
    await until(lambda: running.epochs == 2)
    await running.until_equal()


@pytest.mark.parametrize(
    "path",
    [
        (),
        ("clusters",),
        ("replicasets",),
        ("replicasets", "default"),
        ("clusters", "fleet", "east"),
    ],
    ids="/".join,
)
@pytest.mark.parametrize("how", ["removed", "emptied"])
async def test_data_wiped_by_hand_beside_the_epoch_is_loaded_again(
    running: World, path: tuple[str, ...], how: str
) -> None:
    """Nothing changes, so no write would ever be refused."""
    whole = ("kubernetes", *path)
    if how == "removed":
        running.opa.patch([{"op": "remove", "path": "/" + "/".join(whole)}])
    else:
        running.opa.put(whole, {})
    await until(lambda: running.epochs == 2)
    await running.until_equal()


async def test_object_overwritten_by_hand_is_loaded_again(running: World) -> None:
    stale = running.opa.data["kubernetes"]["replicasets"]["default"]["a"]
    running.replicasets("a")
    await running.until_equal()
    running.opa.put(("kubernetes", "replicasets", "default", "a"), stale)
    await until(lambda: running.epochs == 2)
    await running.until_equal()


async def test_data_wiped_by_hand_is_noticed_while_other_objects_change(running: World) -> None:
    """Something to write at every moment: the heartbeat must not wait for a pause."""
    running.opa.put(("kubernetes", "clusters"), {})
    for number in count():
        if running.epochs == 2:
            break
        running.api.put(REPLICASETS, key("a"), spec={"replicas": number})
        await running.opa.http.until_next(lambda _: True)
    await running.until_equal()


async def test_audit_accuses_nobody_while_objects_come_and_go(running: World) -> None:
    for number in range(20):
        for name in "abcdef":
            if (number + ord(name)) % 3:
                running.replicasets(name)
            elif key(name) in running.api.objects(REPLICASETS):
                running.api.delete(REPLICASETS, key(name))
        if number % 5 == 0:
            running.api.compact()
            running.api.http.cut()
        await running.opa.http.until_next(audits)
    await running.until_equal()
    assert running.epochs == 1


@pytest.mark.parametrize("collection", ["clusters", "replicasets"])
async def test_opa_restarted_in_mid_load_is_loaded_again(
    world: World, tmp_path: Path, collection: str
) -> None:
    gate = asyncio.Event()
    fault = world.opa.http.fault(puts(f"/v1/data/kubernetes/{collection}"), held(gate))
    async with replicating(world, tmp_path):
        await fault.met.wait()
        world.opa.restart()
        gate.set()
        await world.until_equal()
    assert world.epochs == 2


async def test_decisions_are_held_while_a_new_load_is_waited_for(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody follows the changes in that time, which grows to seconds."""
    held_during_waits: list[tuple[str, ...]] = []

    async def wait(_backoff: Backoff) -> None:
        held_during_waits.append(world.hub.held)

    waiting = type("Waiting", (Backoff,), {"wait": wait})
    monkeypatch.setattr("kube_sync.replicator.replicator.Backoff", waiting)
    async with replicating(world, tmp_path):
        await world.until_equal()
        assert held_during_waits == []
        world.opa.restart()
        await until(lambda: world.epochs == 2)
        assert held_during_waits == [("OPA is being loaded",)]


async def test_decisions_are_held_until_a_restarted_opa_is_loaded(running: World) -> None:
    gate = asyncio.Event()
    fault = running.opa.http.fault(puts("/v1/data/kubernetes/clusters"), held(gate))
    running.opa.restart()
    await fault.met.wait()
    assert running.hub.held == ("OPA is being loaded",)
    assert running.decision("a") == {"clusters": '["east","west"]'}
    gate.set()
    await running.until_equal()


@pytest.mark.parametrize("emptied", [True, False])
async def test_opa_away_while_objects_change_is_equal_when_it_is_back(
    running: World,
    emptied: bool,  # noqa: FBT001 - a case of the test
) -> None:
    await running.opa.http.stop()
    running.replicasets("new")
    running.api.put(REPLICASETS, key("a"), spec={"replicas": 7})
    running.api.delete(REPLICASETS, key("b"))
    running.api.delete(CLUSTERS, key("west", "fleet"))
    await until(lambda: "opa" in running.readiness.reasons)
    if emptied:
        running.opa.restart()
    await running.opa.http.start()
    await running.until_equal()
    await until(lambda: running.decision("new") == {"clusters": '["east"]'})
    assert running.readiness.reasons == {}
    assert running.epochs == (2 if emptied else 1)


async def test_answer_lost_on_the_way_back_leaves_opa_equal(running: World) -> None:
    running.opa.http.fault(lambda r: patched(r) and not heartbeat(r), lose_answer(), times=2)
    running.replicasets("new")
    running.api.delete(REPLICASETS, key("a"))
    await running.until_equal()


async def test_deletion_in_the_gap_of_an_expired_watch_is_seen(running: World) -> None:
    """No event tells of it: only the LIST after the 410 does."""
    running.api.http.fault(watches(REPLICASETS), answer(503), times=2)
    running.api.http.cut()
    running.api.delete(REPLICASETS, key("a"))
    running.api.compact()
    await running.until_equal()
    await until(lambda: running.decision("a") is None)
    assert running.epochs == 1


@pytest.mark.parametrize(
    "fault",
    [answer(410, b'{"code":410}'), stream(error_event(410))],
    ids=["as a status", "inside the stream"],
)
async def test_expired_watch_lists_again(running: World, fault: Any) -> None:
    running.api.http.fault(watches(REPLICASETS), fault)
    listed = asyncio.create_task(running.api.http.until_next(lists(REPLICASETS)))
    await asyncio.sleep(0)
    running.api.http.cut()
    await listed
    running.replicasets("new")
    await running.until_equal()


async def test_cut_connections_lose_no_change(running: World) -> None:
    for number in range(3):
        running.api.http.cut()
        running.replicasets(f"new{number}")
        running.api.delete(REPLICASETS, key("abc"[number]))
    await running.until_equal()
    assert sum(map(lists(REPLICASETS), running.api.http.requests)) == 1


async def test_api_server_away_holds_what_is_known(running: World) -> None:
    """An API server that is down says nothing about the fleet."""
    await running.api.http.stop()
    await until(lambda: str(REPLICASETS) in running.readiness.reasons)
    assert running.equal
    assert running.hub.held == ()
    await running.api.http.start()
    running.replicasets("new")
    await running.until_equal()
    await until(lambda: running.readiness.reasons == {})


@pytest.mark.parametrize(
    ("gvr", "source"),
    [
        (CLUSTERS, "clusters"),
        (REPLICASETS, "replicasets"),
        (CONFIGMAPS, "policies in policies"),
    ],
)
@pytest.mark.parametrize("lost", ["watch", "list"])
async def test_what_cannot_be_followed_is_told_to_be_stale_until_it_can(
    running: World, gvr: GroupVersionResource, source: str, lost: str
) -> None:
    """Nothing else tells: the others are followed, and the stream of decisions goes on."""
    if lost == "watch":
        fault = running.api.http.fault(watches(gvr), answer(503), times=1000)
    else:
        running.api.http.fault(watches(gvr), stream(error_event(410)))
        fault = running.api.http.fault(lists(gvr), answer(503), times=1000)
    running.api.http.cut()
    await until(lambda: fault.times < 998)
    await until(lambda: running.stale == [source])
    assert running.hub.held == ()
    fault.times = 0
    await until(lambda: running.stale == [])


async def test_a_collection_is_stale_from_the_moment_its_watch_expired(running: World) -> None:
    """A LIST may take long, and what was deleted meanwhile is decided on until it ends."""
    gate = asyncio.Event()
    running.api.http.fault(watches(CLUSTERS), stream(error_event(410)))
    listing = running.api.http.fault(lists(CLUSTERS), held(gate))
    running.api.http.cut()
    await listing.met.wait()
    await until(lambda: running.stale == ["clusters"])
    gate.set()
    await until(lambda: running.stale == [])


async def test_opa_that_is_away_makes_all_stale(running: World) -> None:
    await running.opa.http.stop()
    await until(lambda: "OPA" in running.stale)
    await running.opa.http.start()
    await until(lambda: running.stale == [])


async def test_what_is_stale_stays_so_until_a_new_load_holds_all(running: World) -> None:
    """In between somebody might act on what is neither held nor called stale."""
    fault = running.api.http.fault(watches(CLUSTERS), answer(503), times=1000)
    running.api.http.cut()
    await until(lambda: running.stale == ["clusters"])
    seen: list[bool] = []
    begin = running.hub.freshness.clear

    def begun() -> None:
        seen.append(running.stale == ["clusters"] and bool(running.hub.held))
        begin()

    running.hub.freshness.clear = begun  # type: ignore[method-assign]
    running.opa.restart()
    await until(lambda: running.epochs == 2)
    assert seen == [True]
    fault.times = 0
    await running.until_equal()


async def test_takeover_by_another_replicator_is_noticed(running: World) -> None:
    other = {"metadata": {"name": "stale", "uid": "x"}}
    running.opa.put(("kube_sync", "epoch"), {"another": "loaded"})
    running.opa.put(("kubernetes", "replicasets"), {"default": {"stale": other}})
    await until(lambda: running.epochs == 2)
    await running.until_equal()
    assert "another" not in running.opa.data["kube_sync"]["epoch"]


async def test_failing_list_withholds_the_policies(world: World, tmp_path: Path) -> None:
    """A policy that answers must have all its data: an empty fleet moves everything."""
    fault = world.api.http.fault(lists(CLUSTERS), answer(503), times=3)
    async with replicating(world, tmp_path):
        await until(lambda: fault.times == 0)
        assert world.opa.policies == {}
        assert world.hub.held == ("OPA is being loaded",)
        assert "503" in world.readiness.reasons[str(CLUSTERS)]
        await world.until_equal()
        assert f"{POLICIES}/p/a.rego" in world.opa.policies


async def test_missing_kind_holds_decisions_until_it_appears(world: World, tmp_path: Path) -> None:
    missing = "clusters: the API server does not know this resource"
    world.api.undefine(CLUSTERS)
    async with replicating(world, tmp_path):
        await until(lambda: world.hub.held == (missing,))
        assert world.opa.data["kubernetes"]["clusters"] == {}
        assert str(CLUSTERS) in world.readiness.reasons
        world.api.define(CLUSTERS, "ClusterProfile", builtin=False)
        world.api.put(CLUSTERS, key("north", "fleet"))
        await world.until_equal()
        # The hold ended only when the decisions had been made on what came.
        assert world.decision("a") == {"clusters": '["north"]'}
        await until(lambda: world.readiness.reasons == {})
    assert world.epochs == 1


async def test_empty_kind_that_vanishes_and_comes_back_holds_in_between(running: World) -> None:
    """Nothing is written to OPA then, so no write tells anybody."""
    for name in ("east", "west"):
        running.api.delete(CLUSTERS, key(name, "fleet"))
    await until(lambda: running.decision("a") == {"clusters": "[]"})
    running.api.undefine(CLUSTERS)
    await until(lambda: running.hub.held)
    running.api.define(CLUSTERS, "ClusterProfile", builtin=False)
    await until(lambda: not running.hub.held)


async def test_kind_that_vanishes_holds_decisions_at_once(running: World) -> None:
    """An answer that OPA owes may be long in coming, and be about the emptied fleet."""
    gate = asyncio.Event()
    fault = running.opa.http.fault(posts, held(gate))
    with running.hub.subscribe() as subscription:
        await subscription.read(99, 5)
        running.replicasets("late")
        await fault.met.wait()
        running.api.undefine(CLUSTERS)
        told = StatusRecord((), "test")
        while not told.held:  # before, that nothing could be followed for a moment
            (record,) = await subscription.read(99, 5)
            assert isinstance(record, StatusRecord)
            told = record
        gate.set()
        await until(lambda: running.decision("late") == {"clusters": "[]"})
    assert told.held == ("clusters: the API server does not know this resource",)
    assert running.hub.held == told.held


_ODD = (
    (REPLICASETS, key("odd-annotations"), {"annotations": [LAST_APPLIED]}),
    (REPLICASETS, key("odd-uid"), {"uid": 7}),
    (CLUSTERS, key("odd-name", "fleet"), {"name": ["x"]}),
)


async def test_undecodable_object_in_a_list_delays_nobody(world: World, tmp_path: Path) -> None:
    for gvr, where, metadata in _ODD:
        world.api.put(gvr, where, metadata=metadata)
        world.odd.add(where.name)
    async with replicating(world, tmp_path):
        await world.until_equal()
        assert world.readiness.reasons == {}


async def test_undecodable_object_in_a_watch_delays_nobody(running: World) -> None:
    for gvr, where, metadata in _ODD:
        running.api.put(gvr, where, metadata=metadata)
        running.odd.add(where.name)
    running.replicasets("late")
    running.api.put(CLUSTERS, key("late", "fleet"))
    await running.until_equal()
    assert "late" in running.opa.data["kubernetes"]["replicasets"]["default"]
    assert sum(map(lists(REPLICASETS), running.api.http.requests)) == 1


@pytest.mark.parametrize("user", ["tokenFile", "exec"])
async def test_rotated_token_is_picked_up_without_a_restart(
    world: World, tmp_path: Path, user: str
) -> None:
    token = tmp_path / "token"
    users: dict[str, dict[str, Any]] = {
        "tokenFile": {"tokenFile": str(token)},
        "exec": {"exec": credential_plugin(tmp_path / "plugin", token)},
    }
    write_token(token, "first")
    world.api.token = "first"
    async with replicating(world, tmp_path, users[user]):
        await world.until_equal()
        write_token(token, "second")
        world.api.token = "second"
        world.api.http.cut()
        world.replicasets("new")
        await world.until_equal()
        assert any(r.headers.get("Authorization") == "Bearer second" for r in world.requests)
    assert world.epochs == 1


def write_token(file: Path, token: str) -> None:
    file.write_text(token, encoding="utf-8")


def credential_plugin(file: Path, token: Path) -> dict[str, Any]:
    """Write what a kubeconfig runs for a token (client.authentication.k8s.io/v1)."""
    credential = (
        '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        f'"status":{{"token":"$(cat {token})"}}}}'
    )
    quoted = credential.replace('"', '\\"')
    file.write_text(f'#!/bin/sh\nprintf %s "{quoted}"\n', encoding="utf-8")
    file.chmod(0o700)
    version = "client.authentication.k8s.io/v1"
    return {"apiVersion": version, "command": str(file), "interactiveMode": "Never"}


@pytest.mark.slow
async def test_clock_that_jumps_changes_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for the time of day, aiohttp and kubernetes_asyncio too, is told another year.

    It proves that nothing waits, gives up or believes anything by the wall clock; the monotonic
    clock, which a jump does not touch, is left alone. `datetime.now` cannot be changed like this:
    test_time_of_day_is_asked_for_nowhere reads the sources instead.
    """
    jump, clock = 0.0, time.time
    monkeypatch.setattr(time, "time", lambda: clock() + jump)
    async with replicating(world, tmp_path):
        await world.until_equal()
        for number, hours in enumerate((5, -30, 24 * 365, 0, -24 * 365)):
            jump = hours * 3600.0
            world.api.http.cut()
            world.replicasets(f"new{number}")
            world.api.put(REPLICASETS, key("a"), spec={"replicas": number})
            await world.until_equal()
            world.opa.restart()
            await world.opa.http.until_next(puts("/v1/data/kube_sync/epoch"))
            await world.until_equal()
    assert world.epochs == 6


def test_time_of_day_is_asked_for_nowhere() -> None:
    """But for certificates, what people are told or have written down, moves, and the logs."""
    asks = re.compile(r"time\.time\(|\btime\.time\b|datetime|from time import")
    sources = Path(kube_sync.__file__).parent.rglob("*.py")
    found = {file.name for file in sources if asks.search(file.read_text(encoding="utf-8"))}
    assert found == {
        "additions.py",  # of a time in a record, for people
        "approving.py",
        "certificates.py",
        "clock.py",  # once, for what another process reads, or people are told
        "command.py",  # of a plan: how long ago objects moved
        "condition_writer.py",
        "eventrecorder.py",
        "events.py",
        "heads.py",  # when a ledger was found without the head that was noted
        "history.py",  # of the command line: which time is meant
        "journal.py",  # when what happened was recorded
        "jsonreply.py",  # the date of a response
        "lease.py",
        "logs.py",
        "marker.py",  # when a replicator that may be gone wrote its key
        "meta.py",  # spells times; asks for none
        "placementpolicy_status.py",
        "plan.py",
        "promotion_preview.py",  # as of a plan
        "policies.py",  # reads when a policy was created; asks for no time
        "printing.py",  # what people are told
        "provisioning.py",  # certificates
        "quarantine.py",  # when OPA last ended, which another process reads
        "reconciler.py",  # of statuses, what people are told
        "replay.py",  # of the command line: since when
        "servertls.py",
        "tls.py",  # reads when a certificate ends; asks for no time
        "hub_status_writer.py",
        "kueue.py",  # reads when a Workload was created, and its clusters nominated
        "synced_policies.py",  # reads when a policy was created
        "why.py",  # of the command line: which time is meant
    }


@pytest.mark.parametrize("seed", quickly(2, range(6)))
async def test_random_faults_end_in_an_equal_opa(running: World, seed: int) -> None:
    """Whatever failed, and in whatever order, when nothing moves any more both are the same."""
    chance = random.Random(seed)  # noqa: S311 - not a secret
    for _ in range(40):
        _do_something(running, chance)
        if chance.random() < 0.5:  # otherwise the next thing happens in the same moment
            beat = asyncio.create_task(running.opa.http.until_next(patched))
            await asyncio.wait([beat], timeout=0.05)
            beat.cancel()
            await asyncio.wait([beat])
    for server in (running.api.http, running.opa.http):
        server.faults.clear()
    await running.until_equal()
    await until(lambda: running.readiness.reasons == {})


def _do_something(world: World, chance: random.Random) -> None:
    gvr = chance.choice(list(MIRRORED.values()))
    where = key(chance.choice("abcdef"), chance.choice(["default", "fleet", "other"]))
    match chance.randrange(10):
        case 0 | 1 | 2:
            world.api.put(gvr, where, spec={"replicas": chance.randrange(9)})
        case 3 | 4:
            if where in world.api.objects(gvr):
                world.api.delete(gvr, where)
        case 5:
            world.api.http.cut()
            if chance.random() < 0.5:
                world.api.compact()
        case 6:
            chance.choice([world.opa.restart, world.opa.wipe, world.wipe_beside_the_epoch])()
        case 7:
            world.opa.http.fault(patched, chance.choice([lose_answer(), answer(503)]))
        case 8:
            world.opa.http.fault(puts("/v1/"), chance.choice([lose_answer(), answer(500)]))
        case _:
            faulty = chance.choice([lists(gvr), watches(gvr)])
            world.api.http.fault(faulty, chance.choice([answer(429), answer(410), stream(b"{")]))


def too_deep(found: Mapping[str, Any], version: str) -> bytes:
    """Return the line of a WATCH that says that an object is nested too deeply now."""
    metadata = {**found["metadata"], "resourceVersion": version}
    body = json.dumps({**found, "metadata": metadata, "deep": 0}).replace(
        '"deep": 0', f'"deep": {"[" * 3000}{"]" * 3000}'
    )
    return b'{"type":"MODIFIED","object":' + body.encode() + b"}\n"


def policy_writes(world: World) -> int:
    requests = world.opa.http.requests
    return sum(r.method in ("PUT", "DELETE") and "/v1/policies" in r.path for r in requests)


def failure_of(world: World, name: str) -> str | None:
    return next(r.failure for target, r in world.hub.records.items() if target.name == name)


async def test_object_nested_too_deeply_is_decided_on_by_no_past_state(running: World) -> None:
    version = running.api.bookmark(REPLICASETS)
    deep = too_deep(running.api.get(REPLICASETS, key("a")), version)
    running.api.http.fault(watches(REPLICASETS), stream(deep))
    running.api.http.cut()
    await until(lambda: failure_of(running, "a") == TOO_DEEP)
    running.api.put(CLUSTERS, key("north", "fleet"))
    await until(lambda: running.decision("b") == {"clusters": '["east","north","west"]'})
    assert running.decision("a") == {"clusters": '["east","west"]'}  # it stands, and failed
    assert failure_of(running, "a") == TOO_DEEP
    assert "a" in running.opa.data["kubernetes"]["replicasets"]["default"]
    assert running.stale == []
    running.api.put(REPLICASETS, key("a"), spec={"replicas": 7})
    await until(lambda: failure_of(running, "a") is None)
    assert running.decision("a") == {"clusters": '["east","north","west"]'}


async def test_cluster_nested_too_deeply_makes_the_fleet_not_current(running: World) -> None:
    version = running.api.bookmark(CLUSTERS)
    deep = too_deep(running.api.get(CLUSTERS, key("east", "fleet")), version)
    running.api.http.fault(watches(CLUSTERS), stream(deep))
    running.api.http.cut()
    await until(lambda: "clusters that cannot be read" in running.stale)
    (late,) = (one for one in running.hub.freshness.sources if "read" in one.source)
    assert late.reason == f"fleet/east: {TOO_DEEP}"
    uid = running.api.get(CLUSTERS, key("east", "fleet"))["metadata"]["uid"]
    east = Target.of(CLUSTERS, key("east", "fleet"))
    assert late.details == (Unreadable(east, uid, TOO_DEEP),)
    assert running.decision("a") == {"clusters": '["east","west"]'}  # nothing was taken away
    running.api.delete(CLUSTERS, key("east", "fleet"))
    await until(lambda: running.decision("a") == {"clusters": '["west"]'})
    await until(lambda: running.stale == [])


async def test_404_of_the_policies_unloads_none_and_leaves_the_record(running: World) -> None:
    record = key("kube-sync-last-good", "kube-sync")
    await until(lambda: record in running.api.objects(CONFIGMAPS))
    before = running.api.get(CONFIGMAPS, record)["metadata"]["resourceVersion"]
    loaded = dict(running.opa.policies)
    written = policy_writes(running)
    faults = [
        running.api.http.fault(asked, answer(404, b"404 page not found\n"), times=3)
        for asked in (lists(CONFIGMAPS), watches(CONFIGMAPS))
    ]
    running.api.bookmark(CONFIGMAPS)
    running.api.compact()
    running.api.http.cut()
    await until(lambda: not any(fault.times for fault in faults))
    await until(lambda: not running.readiness.reasons)
    assert dict(running.opa.policies) == loaded
    assert policy_writes(running) == written
    assert running.api.get(CONFIGMAPS, record)["metadata"]["resourceVersion"] == before
