"""What a topology says, written to a fake API server: once, by who may, and again where it failed.

Its server-side apply replaces lists; that others keep their conditions is shown on the real one.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from kube_sync.errors import NotFound, Refused, Retriable, SyncError
from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.topology import GroupKind, Locator, Topology
from kube_sync.topology.controller.events import ResourceEvent
from kube_sync.topology.controller.workflow import Reconciliation
from kube_sync.topology.gateway import GATEWAY, GATEWAY_CLASS, ROUTES
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.pictures import dot
from kube_sync.topology.status.owned_configmaps import LIMIT, NAME
from kube_sync.topology.status.pathmaps import CONFIGMAP_NAMES
from kube_sync.topology.status.plan import Planner
from kube_sync.topology.status.reconciler import StatusReconciler
from kube_sync.topology.status.resync import ResyncLoop
from kube_sync.topology.status.writer import Address
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, patches
from tests.fakes.clients import CONFIGMAPS, kube_of
from tests.fakes.http import Handler, answer, hang
from tests.fakes.topologies import (
    GROUP,
    NS,
    Object,
    color,
    gateway,
    gateway_class,
    route,
    rules,
    target,
    topology,
)
from tests.unit.async_tools import running

POLICIES = GroupVersionResource("examples.kube-sync.io", "v1alpha1", "colorpolicies")
GATEWAYS = GroupVersionResource(GROUP, "v1", "gateways")
CLASSES = GroupVersionResource(GROUP, "v1", "gatewayclasses")
HTTP_ROUTES = GroupVersionResource(GROUP, "v1", "httproutes")
WHERE = {
    COLOR_POLICY.id: POLICIES,
    GATEWAY: GATEWAYS,
    GATEWAY_CLASS: CLASSES,
    ROUTES[0]: HTTP_ROUTES,
}
KINDS = {gvr.resource: kind for kind, gvr in WHERE.items()}
GW = Locator(f"gateway.{GROUP}:{NS}/my-gateway")
P = Locator(f"colorpolicy.examples.kube-sync.io:{NS}/p")
OURS = "kube-sync-topology"
BLUE: Any = {"rules": rules(a="blue")}


class World:
    """A cluster with one gateway, one route and one policy, and what writes statuses there."""

    def __init__(self, api: FakeApiServer, client: KubeClient) -> None:
        self.api, self.client = api, client
        self.left = math.inf  # seconds that we may write
        self.notes: list[str] = []
        self.addresses: dict[GroupKind, Address] = {
            kind: Address(gvr, ancestors=kind == COLOR_POLICY.id) for kind, gvr in WHERE.items()
        }
        self.seen: dict[Locator, Any] | None = None  # what was told, None: what is there
        self.clock = datetime(2026, 1, 1, tzinfo=UTC)
        self.now = 1000.0  # seconds
        self.unseen: list[GroupKind] = []
        self.unreadable: Locator | None = None
        self.ours: list[str] = []  # kinds that are named in the configuration
        self.machinery = self.started()
        for one in (gateway_class(), gateway(), route(), color("p", **BLUE)):
            self.put(one)

    def started(self) -> StatusReconciler:
        """Return what a process begins with."""
        self.looks = ResyncLoop(clock=lambda: self.now)
        return StatusReconciler(
            self.client,
            self._held,
            self.addresses.get,
            lambda: self.left,
            "kube-sync",
            self.notes.append,
            unknown_kinds=lambda: self.unseen,
            resync=self.looks,
            ours=self.ours,
            now=lambda: self.clock,
            clock=lambda: self.now,
        )

    def _held(self, name: Locator) -> Any:
        if name == self.unreadable:
            raise TypeError
        return (self.told() if self.seen is None else self.seen).get(name)

    def put(self, one: Object) -> None:
        kind = next(k for k in WHERE if k.kind == one["kind"])
        content = {n: v for n, v in one.items() if n not in ("apiVersion", "kind", "metadata")}
        metadata = {"generation": 1, **one["metadata"]}
        key = ObjectKey(metadata.get("namespace", ""), metadata["name"])
        self.api.put(WHERE[kind], key, metadata=metadata, **content)

    def get(self, gvr: GroupVersionResource, name: str) -> Any:
        return self.api.get(gvr, ObjectKey("" if gvr == CLASSES else NS, name))

    def told(self) -> dict[Locator, Any]:
        found = self.topology()
        return {n.locator: n.body for n in found.nodes() if n.owner is None}

    def topology(self) -> Topology:
        return topology([one for gvr in WHERE.values() for one in self.api.objects(gvr).values()])

    async def reconcile(self) -> None:
        await self.machinery.workflow(Reconciliation((), self.topology()))

    def sent(self, name: str) -> list[bytes]:
        """Return what was written to a ConfigMap, one write after the other."""
        requests = self.api.http.requests
        return [r.body for r in requests if r.method != "GET" and r.path.endswith(f"/{name}")]

    def writes(self) -> list[str]:
        return [
            r.path.removesuffix("/status").rpartition("/")[2]
            for r in self.api.http.requests
            if r.method != "GET"
        ]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api:
        for kind, gvr in WHERE.items():
            api.define(gvr, kind.kind, builtin=False, namespaced=kind != GATEWAY_CLASS)
        api.define(CONFIGMAPS, "ConfigMap")
        async with kube_of(api, tmp_path) as client:
            yield World(api, client)


def count(what: str, outcome: str) -> float:
    labels = {"operation": what, "outcome": outcome}
    return REGISTRY.get_sample_value("kube_sync_topology_writes_total", labels) or 0


@asynccontextmanager
async def counted(outcome: str, what: str = "status", times: int = 1) -> AsyncGenerator[None]:
    before = count(what, outcome)
    yield
    assert count(what, outcome) == before + times


async def test_all_that_a_topology_says_is_written(world: World) -> None:
    async with counted("written", times=3), counted("written", "picture"):
        await world.reconcile()
    (ancestor,) = world.get(POLICIES, "p")["status"]["ancestors"]
    assert ancestor["controllerName"] == "kube-sync.io/topology"
    assert {c["type"]: c["lastTransitionTime"] for c in ancestor["conditions"]} == {
        "Accepted": "2026-01-01T00:00:00Z",
        "Programmed": "2026-01-01T00:00:00Z",
    }
    for found in (
        world.get(GATEWAYS, "my-gateway")["status"],
        world.get(HTTP_ROUTES, "route")["status"]["parents"][0],
    ):
        assert found["conditions"][0]["type"] == "kube-sync.io/ColorPolicyAffected"
    assert "status" not in world.get(CLASSES, "my-gateway-class")
    assert world.notes == ["ok"]


async def test_every_write_names_its_manager(world: World) -> None:
    await world.reconcile()
    requests = [r for r in world.api.http.requests if r.method != "GET"]
    assert len(requests) == 4
    assert {(r.method, r.query["fieldManager"]) for r in requests} == {("PATCH", OURS)}


async def test_an_unchanged_world_is_not_written_by_this_process_or_the_next(world: World) -> None:
    await world.reconcile()
    before = world.writes()
    world.clock = datetime(2026, 2, 2, tzinfo=UTC)
    await world.reconcile()
    world.machinery = world.started()
    await world.reconcile()
    assert world.writes() == before


async def test_what_was_not_told_yet_is_not_written_twice(world: World) -> None:
    world.seen = world.told()
    await world.reconcile()
    before = world.writes()
    world.clock = datetime(2026, 2, 2, tzinfo=UTC)
    await world.reconcile()
    assert world.writes() == before


async def test_what_somebody_took_away_is_put_back(world: World) -> None:
    await world.reconcile()
    key = ObjectKey(NS, "p")
    world.api.put(POLICIES, key, spec=world.get(POLICIES, "p")["spec"], metadata={"generation": 1})
    await world.reconcile()
    assert world.get(POLICIES, "p")["status"]["ancestors"]
    assert world.writes()[4:] == ["p"]


async def test_a_policy_that_goes_takes_its_conditions_with_it(world: World) -> None:
    await world.reconcile()
    world.api.delete(POLICIES, ObjectKey(NS, "p"))
    await world.reconcile()
    assert world.get(GATEWAYS, "my-gateway")["status"]["conditions"] == []
    assert world.get(HTTP_ROUTES, "route")["status"]["parents"] == []
    before = world.writes()
    await world.reconcile()
    assert world.writes() == before


async def test_who_may_not_write_sends_nothing(world: World) -> None:
    world.left = 0
    async with counted("fenced", times=3):
        with pytest.raises(Retriable, match="another one may write"):
            await world.reconcile()
    assert world.writes() == []


async def test_an_answer_is_awaited_only_as_long_as_we_may_write(world: World) -> None:
    world.api.http.fault(patches(GATEWAYS), hang())
    world.left = 0.2
    async with counted("fenced"), counted("written", times=2):
        with pytest.raises(Retriable, match=f"{GW}: no answer"):
            await world.machinery.statuses(Reconciliation((), world.topology()))


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(409, "conflict"), (404, "gone"), (422, "refused"), (403, "forbidden"), (503, "failed")],
)
async def test_the_trouble_of_one_object_is_told_and_holds_up_no_other(
    world: World, status: int, outcome: str
) -> None:
    world.api.http.fault(patches(GATEWAYS), refusal(status))
    async with counted(outcome), counted("written", times=2):
        with capture_logs() as logs, suppress(Retriable):
            await world.reconcile()
    assert world.notes == [f"statuses not written: {GW}: {status} no"]
    assert [e["key"] for e in logs if e["event"] == "status_not_written"] == [f"{NS}/my-gateway"]
    assert NAME in world.writes()
    assert not any("rules" in str(entry) for entry in logs)


def refusal(status: int) -> Handler:
    return answer(status, b'{"message":"no"}', kind="application/json", retry_after="7")


@pytest.mark.parametrize("status", [409, 404, 503])
async def test_what_may_go_well_later_is_tried_again(world: World, status: int) -> None:
    world.api.http.fault(patches(GATEWAYS), refusal(status))
    with pytest.raises(Retriable, match=f"{GW}: {status} no") as caught:
        await world.reconcile()
    assert caught.value.retry_after == (7 if status == 503 else None)
    await world.reconcile()
    assert world.get(GATEWAYS, "my-gateway")["status"]["conditions"]
    assert world.notes[-1] == "ok"


@pytest.mark.parametrize("status", [422, 403])
async def test_what_was_refused_is_told_and_not_sent_again_before_a_while(
    world: World, status: int
) -> None:
    """No other object waits for it: nothing is raised."""
    fault = world.api.http.fault(patches(GATEWAYS), refusal(status), 2)
    for _ in range(3):
        await world.reconcile()
        assert world.notes[-1] == f"statuses not written: {GW}: {status} no"
        assert world.looks.due == 1060.0
    assert fault.times == 1
    world.now = world.looks.due
    await world.reconcile()
    assert (fault.times, world.looks.due) == (0, 1120.0)
    world.now = world.looks.due
    await world.reconcile()
    assert world.notes[-1] == "ok"
    assert world.looks.due == 1120.0 + 300


async def test_what_is_not_found_twice_is_not_asked_for_without_end(world: World) -> None:
    """As of a kind without the subresource."""
    fault = world.api.http.fault(patches(GATEWAYS), refusal(404), 100)
    with pytest.raises(Retriable):
        await world.reconcile()
    for _ in range(3):
        await world.reconcile()
    assert fault.times == 98
    assert world.notes[-1] == f"statuses not written: {GW}: 404 no"
    world.put(gateway())
    with pytest.raises(Retriable):
        await world.reconcile()


async def test_a_trouble_that_may_pass_is_asked_for_beside_one_that_does_not(world: World) -> None:
    world.api.http.fault(patches(GATEWAYS), refusal(403))
    world.api.http.fault(patches(POLICIES), refusal(409))
    with pytest.raises(Retriable):
        await world.reconcile()
    await world.reconcile()
    assert world.notes[-1] == f"statuses not written: {GW}: 403 no"


async def test_a_refused_object_that_changes_is_tried_at_once(world: World) -> None:
    world.api.http.fault(patches(GATEWAYS), refusal(422))
    await world.reconcile()
    world.put(gateway())
    await world.reconcile()
    assert world.notes[-1] == "ok"


async def test_where_one_is_forbidden_the_others_are_not_asked_for(world: World) -> None:
    for number in range(20):
        world.put(color(f"p{number:02}", **BLUE))
    fault = world.api.http.fault(patches(POLICIES), refusal(403), 100)
    await world.reconcile()
    assert "and 18 more" in world.notes[-1]
    assert 90 <= fault.times < 100, "but for those that were under way"


def put_back(world: World) -> None:
    """Write `parents` whole, as a controller does that knows of its own entry alone."""
    theirs = [{"controllerName": "example.com/theirs", "parentRef": {"name": "my-gateway"}}]
    kept = {"spec": world.get(HTTP_ROUTES, "route")["spec"], "metadata": {"generation": 1}}
    world.api.put(HTTP_ROUTES, ObjectKey(NS, "route"), **kept, status={"parents": theirs})


async def test_who_undoes_it_each_time_is_let_be_for_a_while(world: World) -> None:
    with capture_logs() as logs:
        async with counted("left to a rival"):
            for _ in range(10):
                world.clock += timedelta(seconds=1)
                world.now += 1
                await world.reconcile()
                put_back(world)
    assert world.writes().count("route") == 3
    name = f"httproute.{GROUP}:{NS}/route"
    assert world.notes[-1].startswith(f"statuses not written: {name}: another one undid it 3 times")
    assert [e["key"] for e in logs if e["event"] == "status_left_to_rival"] == [f"{NS}/route"]
    world.now += 30  # within the truce, as anything may have changed
    await world.reconcile()
    assert world.writes().count("route") == 3
    world.now += 600
    await world.reconcile()
    assert world.writes().count("route") == 4
    assert world.notes[-1] == "ok"


async def test_what_is_to_be_said_anew_is_said_in_a_truce(world: World) -> None:
    for _ in range(5):
        await world.reconcile()
        put_back(world)
    world.put(color("q", **BLUE))
    await world.reconcile()
    assert world.writes().count("route") == 4


async def test_a_picture_that_is_gone_is_drawn_at_the_next_look(world: World) -> None:
    await world.reconcile()
    key = ObjectKey("kube-sync", NAME)
    world.api.delete(CONFIGMAPS, key)
    looks, woken = ResyncLoop(every=0.01, least=0.0), asyncio.Event()
    async with running(looks.run(woken.set)):
        await woken.wait()
    await world.reconcile()
    assert world.api.get(CONFIGMAPS, key)["data"]


async def test_what_is_said_of_a_kind_that_nobody_may_read_any_more_stays(world: World) -> None:
    await world.reconcile()
    world.api.delete(POLICIES, ObjectKey(NS, "p"))  # as far as this process knows
    world.unseen = [COLOR_POLICY.id]
    before = world.writes()
    await world.reconcile()
    assert world.writes() == [*before, NAME]
    world.unseen = []
    await world.reconcile()
    assert sorted(world.writes()[len(before) :]) == [NAME, "my-gateway", "route"]
    assert world.get(HTTP_ROUTES, "route")["status"]["parents"] == []


async def test_a_kind_of_policies_that_cannot_hear_is_told(world: World) -> None:
    world.addresses[COLOR_POLICY.id] = Address(POLICIES, lacking="nobody knows its schema")
    await world.reconcile()
    assert world.notes[-1] == (
        f"ok but for: {COLOR_POLICY.id}: nothing is said of its policies: nobody knows its schema"
    )


@pytest.mark.parametrize("type_", [["x"], {}, 7, None])
async def test_a_condition_of_whatever_type_holds_up_no_status(world: World, type_: Any) -> None:
    await world.reconcile()
    body = world.get(POLICIES, "p")
    (entry,) = body["status"]["ancestors"]
    spoiled = {**entry, "conditions": [{"type": type_}, *entry["conditions"]]}
    kept = {"spec": body["spec"], "metadata": {"generation": 1}}
    world.api.put(POLICIES, ObjectKey(NS, "p"), **kept, status={"ancestors": [spoiled]})
    world.put(color("q", **BLUE))
    await world.reconcile()
    assert world.get(POLICIES, "q")["status"]["ancestors"]
    assert world.notes[-1] == "ok"


async def test_whatever_cannot_be_read_of_one_object_is_its_own_trouble(world: World) -> None:
    world.unreadable = GW
    await world.reconcile()
    assert sorted(world.writes()) == [NAME, "p", "route"]
    assert world.notes[-1].startswith(f"ok but for: {GW}: its status is left as it is: cannot be r")


async def test_others_run_while_a_topology_is_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_sync.topology.status.target_conditions._SLICE", 1)
    monkeypatch.setattr("kube_sync.topology.status.ancestors._SLICE", 1)
    many = topology([*world.told().values(), *(route(f"r{n}") for n in range(20))])
    planner, turns = Planner(many, lambda _: True, ""), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with running(other()):
        await planner.compute()
    assert turns > 40


async def test_writes_are_made_side_by_side_but_not_all_at_once(world: World) -> None:
    for number in range(30):
        world.put(color(f"p{number:02}", **BLUE))
    running = most = 0

    async def slowly(_request: Any, proceed: Callable[[], Any]) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)  # as long as a request takes
        running -= 1
        return await proceed()

    world.api.http.fault(patches(POLICIES), slowly, 100)
    await world.reconcile()
    assert 1 < most <= 8


async def test_a_kind_without_ancestors_in_its_status_is_left_alone(world: World) -> None:
    world.addresses[COLOR_POLICY.id] = Address(POLICIES)
    await world.reconcile()
    assert "p" not in world.writes()


async def test_a_kind_that_is_not_served_is_left_alone(world: World) -> None:
    del world.addresses[GATEWAY], world.addresses[COLOR_POLICY.id]
    await world.reconcile()
    assert sorted(world.writes()) == [NAME, "route"]


async def test_what_is_gone_meanwhile_is_left_alone(world: World) -> None:
    world.seen = world.told()
    del world.seen[GW]
    await world.reconcile()
    assert "my-gateway" not in world.writes()


async def test_a_status_that_cannot_be_read_is_told_and_holds_up_no_other(world: World) -> None:
    world.seen = world.told()
    world.seen[GW] = {**world.seen[GW], "status": {"conditions": 7}}
    with capture_logs() as logs:
        await world.reconcile()
        await world.reconcile()
    assert sorted(world.writes()) == [NAME, "p", "route"]
    assert world.notes[-1].startswith(f"ok but for: {GW}: its status is left as it is: ")
    assert [e["locator"] for e in logs if e["event"] == "status_incomplete"] == [GW]


async def test_the_picture_is_the_graph(world: World) -> None:
    await world.reconcile()
    found = world.api.get(CONFIGMAPS, ObjectKey("kube-sync", NAME))
    assert found["data"] == {"topology": dot(world.topology())}
    assert found["metadata"]["labels"] == {"kube-sync.io/topology": "dot"}


async def test_a_picture_that_is_there_is_not_drawn_again_and_one_that_was_spoiled_is(
    world: World,
) -> None:
    key = ObjectKey("kube-sync", NAME)
    await world.reconcile()
    found = world.api.get(CONFIGMAPS, key)
    labels, data = found["metadata"]["labels"], found["data"]
    spoiled: list[dict[str, Any]] = [
        {"metadata": {"labels": labels}, "data": {"topology": "no"}},
        {"metadata": {"labels": {}}, "data": data},
        {"metadata": {"labels": labels}},
    ]
    for content in spoiled:
        world.api.put(CONFIGMAPS, key, **content)
        before = world.writes()
        for _ in range(2):
            await world.reconcile()
            assert world.writes() == [*before, NAME]
            assert world.api.get(CONFIGMAPS, key)["data"] == data


async def test_a_picture_that_is_too_large_says_so(world: World) -> None:
    many = [gateway(f"{'g' * 240}{n}") for n in range(3000)]
    await world.machinery.picture(Reconciliation((), topology(many)))
    text = world.api.get(CONFIGMAPS, ObjectKey("kube-sync", NAME))["data"]["topology"]
    assert len(text.encode()) < LIMIT
    assert "more than the 921600 that fit here" in text


@pytest.mark.parametrize(("status", "error"), [(403, Refused), (404, NotFound), (500, Retriable)])
async def test_a_picture_that_cannot_be_written_holds_up_no_status(
    world: World, status: int, error: type[SyncError]
) -> None:
    world.api.http.fault(patches(CONFIGMAPS), refusal(status))
    with pytest.raises(error):
        await world.reconcile()
    assert world.notes == ["ok"]
    assert len(world.writes()) == 4


async def test_what_is_no_configmap_is_asked_for_again(world: World) -> None:
    world.api.http.fault(lambda r: r.path.endswith(NAME), answer(200, b"[]"))
    with pytest.raises(Retriable, match="no ConfigMap"):
        await world.machinery.picture(Reconciliation((), world.topology()))


def event(world: World, before: Any, *, meaning: bool = False) -> ResourceEvent:
    after = world.get(GATEWAYS, "my-gateway")
    return ResourceEvent(GATEWAY, NS, "my-gateway", before, after, meaning)


async def test_our_own_writes_call_for_nothing_and_those_of_others_do(world: World) -> None:
    before = world.get(GATEWAYS, "my-gateway")
    world.seen = world.told()
    await world.reconcile()
    assert not world.machinery.needs_reconcile(event(world, before))
    assert world.machinery.needs_reconcile(event(world, before, meaning=True))
    before = world.get(GATEWAYS, "my-gateway")
    kept = {"spec": before["spec"], "metadata": {"generation": 1}}
    world.api.put(GATEWAYS, ObjectKey(NS, "my-gateway"), **kept, status={})
    assert world.machinery.needs_reconcile(event(world, before))


async def test_what_others_take_away_at_once_is_no_echo_of_our_write(world: World) -> None:
    """Both are one event: of an object that says nothing, as it did before our write."""
    before = world.get(GATEWAYS, "my-gateway")
    world.seen = world.told()
    await world.reconcile()
    kept = {"spec": before["spec"], "metadata": {"generation": 1}}
    world.api.put(GATEWAYS, ObjectKey(NS, "my-gateway"), **kept, status={})
    assert world.machinery.needs_reconcile(event(world, before))


@pytest.mark.parametrize(
    ("status", "heeded"),
    [
        ({"conditions": [{"type": "Accepted", "status": "False"}]}, False),
        ({"conditions": [{"type": "Accepted"}, {"type": "Ready"}]}, True),
        ({"conditions": [{"type": "kube-sync.io/ColorPolicyAffected"}]}, True),
        ({"conditions": [{"type": "Accepted"}], "listeners": [{"name": "http"}]}, True),
        ({"conditions": [{"type": "Accepted"}], "addresses": ["1.2.3.4"]}, False),
        ({"conditions": [{"type": "Accepted"}], "parents": [{"parentRef": {}}]}, True),
        ({"conditions": 7}, True),
    ],
)
async def test_of_others_only_what_changes_our_places_calls_for_a_look(
    world: World,
    status: Any,
    heeded: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    before = {"metadata": {}, "status": {"conditions": [{"type": "Accepted", "status": "True"}]}}
    after = {"metadata": {}, "status": status}
    told = ResourceEvent(GATEWAY, NS, "my-gateway", before, after, meaning=False)
    assert world.machinery.needs_reconcile(told) is heeded


async def test_large_worlds_let_others_run(world: World) -> None:
    many = [color(f"p{number}", target(name="none"), **BLUE) for number in range(450)]
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    world.seen = {}
    await world.machinery.statuses(Reconciliation((), topology(many)))
    task.cancel()
    assert turns >= 2


def many_paths(number: int = 64) -> Object:
    return gateway("my-gateway", *({"name": f"l{n}", "port": n + 1} for n in range(number)))


def kept(world: World) -> dict[str, dict[str, str]]:
    """Return the ConfigMaps with maps of paths that are there, by name."""
    found = world.api.objects(CONFIGMAPS).items()
    return {key.name: body.get("data", {}) for key, body in found if key.name in CONFIGMAP_NAMES}


async def test_maps_of_many_paths_are_kept_until_they_are_short_again(world: World) -> None:
    world.put(many_paths())
    async with counted("written", "paths"):
        await world.reconcile()
        await world.reconcile()
    ((name, data),) = kept(world).items()
    assert len(data) == 1
    assert world.notes[-1] == (
        "ok; paths to 1 targets are in ConfigMaps kube-sync-topology-paths-0 to"
        " kube-sync-topology-paths-7 of kube-sync"
    )
    (parent,) = world.get(HTTP_ROUTES, "route")["status"]["parents"]
    said = next(c for c in parent["conditions"] if c["type"].endswith("Paths"))
    assert f"ConfigMap kube-sync/{name}, key {next(iter(data))}" in said["message"]
    world.put(gateway())
    async with counted("written", "paths"):
        await world.reconcile()
        await world.reconcile()
    # The fake does not take away what an apply leaves out; the real one does.
    assert json.loads(world.sent(name)[-1])["data"] == {}


async def test_a_map_that_somebody_spoiled_is_right_after_a_while(world: World) -> None:
    world.put(many_paths())
    await world.reconcile()
    before = kept(world)
    (name,) = before
    world.api.put(CONFIGMAPS, ObjectKey("kube-sync", name), data={"spoiled": ""})
    world.now += 301
    await world.reconcile()
    assert before[name].items() <= kept(world)[name].items()


async def test_maps_that_cannot_be_kept_hold_up_no_status(world: World) -> None:
    world.put(many_paths())
    world.api.http.fault(lambda r: r.path.endswith(CONFIGMAP_NAMES), refusal(500))
    with pytest.raises(Retriable):
        await world.reconcile()
    assert world.get(HTTP_ROUTES, "route")["status"]["parents"]


async def test_a_kind_whose_conditions_are_ours_hears_in_them(world: World) -> None:
    world.addresses[COLOR_POLICY.id] = Address(POLICIES, conditions=True)
    await world.reconcile()
    body = world.get(POLICIES, "p")
    assert [c["type"] for c in body["status"]["conditions"]] == ["Accepted", "Programmed"]
    assert "ancestors" not in body["status"]
    assert world.notes[-1] == "ok"


async def test_a_named_kind_that_is_not_there_is_told(world: World) -> None:
    world.ours = ["AuthPolicy.kuadrant.io"]
    world.machinery = world.started()
    await world.reconcile()
    assert world.notes[-1] == (
        "ok but for: AuthPolicy.kuadrant.io: named in topology.statuses, and no kind of policies"
        " that is followed"
    )


async def test_who_takes_a_condition_of_ours_away_is_noticed(world: World) -> None:
    world.addresses[COLOR_POLICY.id] = Address(POLICIES, conditions=True)
    await world.reconcile()
    before = world.get(POLICIES, "p")
    world.put(color("p", **BLUE))
    after = world.get(POLICIES, "p")
    assert world.machinery.needs_reconcile(
        ResourceEvent(COLOR_POLICY.id, NS, "p", before, after, False)  # noqa: FBT003 - as declared
    )
