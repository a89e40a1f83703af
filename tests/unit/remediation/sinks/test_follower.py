from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    StatusRecord,
    Target,
)
from kube_sync.errors import Conflict, Refused, Retriable, SyncError, Terminal
from kube_sync.kube.cache import Cache
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.ocmdecisions import ocm_shape
from kube_sync.kube.placementdecisions import published
from kube_sync.kube.slices import Published, Slice
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.decision_cache import DecisionCache
from kube_sync.remediation.sinks.annotations import AnnotationSink
from kube_sync.remediation.sinks.follower import Follower
from kube_sync.remediation.sinks.forms import Form, OcmForm, SigForm
from kube_sync.remediation.sinks.placement_decisions import PlacementDecisionSink
from kube_sync.remediation.targets import Targets
from kube_sync.runtime.backoff import Backoff
from tests.fakes.listing import Listing, listed
from tests.memory import remembered
from tests.unit.async_tools import Timers, running, until

REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
VERSION = ResourceVersion("1")
HELD = StatusRecord(("loading",), "me")
RELEASED = StatusRecord((), "me")
BOOKMARK = BookmarkRecord(1, "me")


def preferences(clusters: Iterable[str]) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in clusters}})


def target(name: str) -> Target:
    return Target("apps", "v1", "replicasets", name, "ns")


def decision(name: str, *clusters: str, uid: str = "u") -> DecisionRecord:
    annotations = {PLACEMENT: preferences(clusters)} if clusters else {}
    return DecisionRecord(target(name), uid, Decision(annotations), 1, "data", "p1")


def item(name: str, *clusters: str, uid: str = "u") -> Item:
    metadata = {"name": name, "annotations": {PLACEMENT: preferences(clusters)}}
    body = json.dumps({"metadata": metadata if clusters else {"name": name}})
    return Item(ObjectKey("ns", name), uid, VERSION, body.encode())


class Api:
    """What is published, and how writes are answered."""

    def __init__(self) -> None:
        self.slices: dict[ObjectKey, Published] = {}
        self.writes: list[str] = []
        self.failures: list[SyncError] = []
        self.before: Callable[[], None] = lambda: None
        self.answer: Callable[[Published], None] = lambda _written: None
        self.version = 1

    async def kind(self, gvr: GroupVersionResource) -> str:
        assert gvr == REPLICASETS
        return "ReplicaSet"

    async def apply(self, wanted: Slice, found: Published | None) -> Published:
        await self._write("apply")
        assert self.slices.get(wanted.key) == found
        self.version += 1
        written = Published(
            wanted.key,
            "p",
            str(self.version),
            wanted.placed,
            wanted.labels,
            (wanted.owner,),
            wanted.choices,
            wanted.source,
            records=wanted.records,
        )
        self.slices[wanted.key] = written
        self.answer(written)
        return written

    async def delete(self, found: Published) -> None:
        await self._write("delete")
        del self.slices[found.key]

    async def _write(self, what: str) -> None:
        self.writes.append(what)
        await asyncio.sleep(0)
        self.before()
        if self.failures:
            raise self.failures.pop(0)


class World:
    def __init__(
        self,
        *items: Item,
        mode: str = "enforce",
        namespace: str | None = "fleet",
        together: str | None = None,
    ) -> None:
        self.api = Api()
        self.leads: float = math.inf  # seconds
        self.fences: list[float] = []  # the next answers to for how long it leads
        self.turns = 0  # how many keys had theirs
        self._mode_of_all = mode
        self.decisions = DecisionCache(lambda: 0.0)
        fenced = FencedWriter(self._fence)
        self.form = SigForm(namespace)
        form: Form = self.form if together is None else OcmForm(together)
        self.targets = Targets(lambda key: self.sink.add([(REPLICASETS, key)]))
        self.published = PlacementDecisionSink(form, self.api, [REPLICASETS], fenced)
        self.sink = Follower(
            self.published,
            {REPLICASETS: AnnotationSink(self._no_patch)},
            lambda _gvr: self.targets,
            self.decisions,
            self._mode,
            fenced,
        )
        listed(self.targets, Listing(list(items), VERSION))
        self.relist()

    async def _no_patch(self, *_: object) -> None:
        pytest.fail("a follower writes no annotation")

    def _mode(self, _namespace: str) -> str:
        self.turns += 1
        return self._mode_of_all

    def _fence(self) -> float:
        return self.fences.pop(0) if self.fences else self.leads

    def relist(self, *bodies: bytes) -> None:
        """List PlacementDecisions that nobody has told of."""
        key = ObjectKey("ns", "any")
        items = [
            Item(ObjectKey(key.namespace, str(n)), "p", VERSION, b) for n, b in enumerate(bodies)
        ]
        listed(self.published.published, Listing(items, VERSION))

    def stream(self, *decisions: DecisionRecord) -> None:
        for record in (None, HELD, *decisions, RELEASED, BOOKMARK):
            self.decisions.apply_record(record)

    def event(self, kind: str, one: Item) -> None:
        self.targets.apply(Event(kind, VERSION, one))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with running(self.sink.run(), self.sink.run()):
            yield
            await self.idle()

    async def idle(self) -> None:
        """Wait until every worker waits."""
        for _ in range(50):
            await asyncio.sleep(0)

    def clusters(self) -> list[list[str]]:
        found = sorted(self.api.slices.values(), key=lambda one: one.key)
        return [[choice.cluster for choice in one.choices] for one in found]


def held_now(reason: str) -> float:
    labels = {"sink": "placement_decisions", "reason": reason}
    return REGISTRY.get_sample_value("kube_sync_placement_decisions_held", labels) or 0


def written(outcome: str) -> float:
    name = "kube_sync_placement_decision_writes_total"
    labels = {"sink": "placement_decisions", "outcome": outcome}
    return REGISTRY.get_sample_value(name, labels) or 0


def objects() -> float | None:
    labels = {"sink": "placement_decisions"}
    return REGISTRY.get_sample_value("kube_sync_placement_decisions", labels)


async def test_only_placements_that_resources_have_are_published() -> None:
    world = World(item("has", "eu"), item("waits", "eu"), item("undecided", "eu"))
    async with world.running():
        world.stream(decision("has", "eu"), decision("waits", "us"), decision("unknown", "eu"))
    assert world.clusters() == [["eu"]]
    assert world.api.writes == ["apply"]


async def test_what_is_published_follows_the_resource() -> None:
    world = World(item("a", "eu"))
    async with world.running():
        world.stream(decision("a", "eu"))
        await world.idle()
        world.decisions.apply_record(decision("a", "us"))
        await world.idle()
        assert world.clusters() == [["eu"]]
        world.event("MODIFIED", item("a", "us"))
    assert world.clusters() == [["us"]]
    assert world.api.writes == ["apply", "apply"]


async def test_the_same_again_writes_nothing() -> None:
    world = World(item("a", "eu"))
    async with world.running():
        world.stream(decision("a", "eu"))
        await world.idle()
        world.decisions.apply_record(decision("a", "eu"))
        world.event("MODIFIED", item("a", "eu"))
        world.sink.wake()
    assert world.api.writes == ["apply"]


async def test_a_resource_or_a_placement_that_goes_takes_what_is_published_along() -> None:
    world = World(item("a", "eu"), item("b", "eu"))
    async with world.running():
        world.stream(decision("a", "eu"), decision("b", "eu"))
        await world.idle()
        world.event("DELETED", item("a", "eu"))
        world.decisions.apply_record(DeletedRecord(target("a"), 2))
        world.decisions.apply_record(decision("b"))
        world.event("MODIFIED", item("b"))
    assert world.clusters() == []
    assert world.api.writes == ["apply", "apply", "delete", "delete"]


async def test_what_is_decided_no_more_stays_while_the_resource_asks_for_it() -> None:
    world = World(item("a", "eu"))
    async with world.running():
        world.stream(decision("a", "eu"))
        await world.idle()
        world.decisions.apply_record(decision("a"))
    assert (world.clusters(), world.api.writes) == ([["eu"]], ["apply"])


async def test_a_relist_without_a_resource_takes_what_is_published_along() -> None:
    """It went while nobody watched; nothing tells its key but what is published of it."""
    world = World(item("a", "eu"))
    async with world.running():
        world.stream(decision("a", "eu"))
        await world.idle()
        world.decisions.apply_record(None)
        for record in (RELEASED, BOOKMARK):
            world.decisions.apply_record(record)
        listed(world.targets, Listing([], VERSION))
    assert world.clusters() == []


async def test_one_that_is_deleted_before_its_write_is_answered_is_written_again() -> None:
    world = World(item("a", "eu"))
    answer = world.api.answer

    def overtake(written: Published) -> None:
        world.api.answer = answer
        del world.api.slices[written.key]
        gone = Item(written.key, "p", VERSION, b"{}")
        world.published.published.apply(Event("DELETED", VERSION, gone))

    world.api.answer = overtake
    async with world.running():
        world.stream(decision("a", "eu"))
    assert (world.clusters(), world.api.writes) == ([["eu"]], ["apply", "apply"])


async def test_one_that_is_changed_before_its_write_is_answered_is_written_again() -> None:
    world = World(item("a", "eu"))
    answer = world.api.answer

    def overtake(written: Published) -> None:
        world.api.answer = answer
        world.api.version += 1
        theirs = replace(written, version=str(world.api.version), choices=())
        world.api.slices[written.key] = theirs
        cache = world.published.published
        assert isinstance(cache, Cache)
        cache.put(written.key, theirs)

    world.api.answer = overtake
    async with world.running():
        world.stream(decision("a", "eu"))
    assert (world.clusters(), world.api.writes) == ([["eu"]], ["apply", "apply"])


async def test_a_kind_that_is_missing_deletes_nothing() -> None:
    world = World(item("a", "eu"))
    async with world.running():
        world.stream(decision("a", "eu"))
        await world.idle()
        listed(world.targets, Listing([], VERSION), known=False)
        world.sink.wake()
    assert world.clusters() == [["eu"]]


async def test_nothing_is_written_before_everything_is_listed() -> None:
    world = World(item("a", "eu"), namespace=None)
    profiles = world.form.profiles
    assert profiles is not None
    async with world.running():
        world.stream(decision("a", "eu"))
        await world.idle()
        assert world.api.writes == []
        profile = Item(ObjectKey("fleet", "eu"), "c", VERSION, b"{}")
        listed(profiles, Listing([profile], VERSION))
    assert world.clusters() == [["eu"]]


async def test_what_is_published_is_listed_before_anything_is_written() -> None:
    world = World(item("a", "eu"))
    listed(world.published.published, Listing([], VERSION), known=False)
    async with world.running():
        world.stream(decision("a", "eu"))
        await world.idle()
        assert world.api.writes == []
        world.relist()
    assert world.api.writes == ["apply"]


async def test_many_keys_with_nothing_to_write_leave_others_their_turn() -> None:
    """The Lease among them, which would be lost."""
    world = World(*[item(f"n{n}", "eu") for n in range(100)])
    world.stream()
    async with running(world.sink.run()):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.turns < 10
        await until(lambda: world.turns == 100)


async def test_writes_are_counted_by_what_became_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = Timers(monkeypatch)
    world = World(item("a", "eu"))
    words = ("applied", "deleted", "refused", "retried")
    before = {word: written(word) for word in words}
    world.api.failures = [Terminal("422"), Retriable("503")]
    async with world.running():
        world.stream(decision("a", "eu"))
        await world.idle()
        world.sink.wake()
        await world.idle()
        timers.fire()
        await world.idle()
        assert objects() == 1
        world.event("DELETED", item("a", "eu"))
    assert {word: written(word) - before[word] for word in words} == dict.fromkeys(words, 1.0)
    assert objects() == 0


async def test_where_the_namespace_of_clusters_is_known_none_is_looked_for() -> None:
    assert World(namespace="fleet").form.profiles is None


async def test_while_held_nothing_is_written_and_the_release_catches_up() -> None:
    world = World(item("a", "eu"))
    async with world.running():
        world.stream()
        world.decisions.apply_record(HELD)
        world.decisions.apply_record(decision("a", "eu"))
        await world.idle()
        assert world.api.writes == []
        world.decisions.apply_record(RELEASED)
    assert world.api.writes == ["apply"]


async def test_who_may_not_write_waits_until_it_is_woken() -> None:
    world = World(item("a", "eu"))
    world.leads = 0
    async with world.running():
        world.stream(decision("a", "eu"))
        await world.idle()
        assert world.api.writes == []
        world.leads = math.inf
        world.sink.wake()
    assert world.api.writes == ["apply"]


async def test_who_may_not_write_any_more_stops_between_two_writes() -> None:
    names = [f"c{n:03}" for n in range(201)]
    world = World(item("a", *names))

    def lose() -> None:
        world.leads = 0

    world.api.before = lose
    async with world.running():
        world.stream(decision("a", *names))
    assert world.api.writes == ["apply"]


async def test_who_may_not_write_any_more_deletes_nothing() -> None:
    names = [f"c{n:03}" for n in range(201)]
    world = World(item("a", *names))
    async with world.running():
        world.stream(decision("a", *names))
        await world.idle()
        world.fences = [math.inf] * 3  # before the turn, the step and the apply
        world.leads = 0.0  # before the first deletion
        world.decisions.apply_record(decision("a", "c000"))
        world.event("MODIFIED", item("a", "c000"))
    assert world.api.writes == ["apply"] * 4
    assert len(world.api.slices) == 3


@pytest.mark.parametrize("what", ["apply", "delete"])
async def test_a_request_is_given_up_when_the_time_to_write_is_over(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its answer may never come, and another process may write by then."""
    timers = Timers(monkeypatch)
    world = World(item("a", "eu"))
    async with world.running():
        if what == "delete":
            world.stream(decision("a", "eu"))
            await world.idle()
        before, asked = written("fenced"), asyncio.Event()

        async def hang(*_: object) -> None:
            asked.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(world.api, "_write", hang)
        world.leads = 0.01
        if what == "delete":
            world.event("DELETED", item("a", "eu"))
        else:
            world.stream(decision("a", "eu"))
        await asked.wait()
        while written("fenced") == before:  # noqa: ASYNC110 - a timer of the loop ends it
            await asyncio.sleep(0)
        assert len(timers.seconds) == 1, "it is tried again, should the Lease be renewed"


async def test_in_manual_mode_what_a_person_let_through_is_published() -> None:
    world = World(item("let_through", "eu"), item("waits", "eu"), mode="manual")
    async with world.running():
        world.stream(decision("let_through", "eu"), decision("waits", "us"))
    assert world.clusters() == [["eu"]]


@pytest.mark.parametrize("mode", ["off", "dry-run"])
async def test_a_mode_that_does_not_write_publishes_nothing(mode: str) -> None:
    world = World(item("a", "eu"), mode=mode)
    before = written(mode)
    async with world.running():
        world.stream(decision("a", "eu"), decision("gone"))
    assert world.api.writes == []
    assert written(mode) - before == (mode != "off")


async def test_what_is_not_ours_is_nothing_to_us() -> None:
    world = World()
    world.relist(b'{"metadata":{"name":"x","uid":"y"}}')
    async with world.running():
        world.stream()
    assert world.api.writes == []


async def test_a_mark_of_a_collection_that_is_not_decided_on_is_left_alone() -> None:
    """It is another installation's, or of an earlier configuration."""
    metadata = {
        "name": "web-0",
        "namespace": "ns",
        "uid": "p",
        "labels": {"app.kubernetes.io/managed-by": "kube-sync-remediator"},
        "annotations": {"kube-sync.io/placed": "deployments.apps/web"},
    }
    world = World()
    body = {"metadata": metadata, "schedulerName": "kube-sync", "decisions": []}
    async with world.running():
        world.relist(json.dumps(body).encode())
        world.stream()
    assert world.api.writes == []
    assert objects() == 1


async def test_what_an_earlier_process_published_goes_once_nothing_is_held() -> None:
    """Of a resource that is gone, and that nobody decides on: no record tells its key."""
    key = ObjectKey("ns", "web-0")
    metadata = {
        "name": key.name,
        "namespace": key.namespace,
        "uid": "p",
        "resourceVersion": "1",
        "labels": {"app.kubernetes.io/managed-by": "kube-sync-remediator"},
        "annotations": {"kube-sync.io/placed": "replicasets.apps/web"},
    }
    world = World()
    body = {"metadata": metadata, "schedulerName": "kube-sync", "decisions": []}
    item_ = Item(key, "p", VERSION, json.dumps(body).encode())
    found = published(item_.body)
    assert found is not None
    world.api.slices[key] = found
    async with world.running():
        listed(world.published.published, Listing([item_], VERSION))
        await world.idle()
        assert world.api.writes == [], "nothing is known of decisions yet"
        world.stream()
    assert (world.api.writes, world.api.slices) == (["delete"], {})


def together(name: str, source: str) -> Item:
    """Return what is published in the namespace argocd of a ReplicaSet `a` of `source`."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "u"}
    metadata = {
        "name": name,
        "namespace": "argocd",
        "uid": "p",
        "resourceVersion": "1",
        "labels": {"app.kubernetes.io/managed-by": "kube-sync-remediator"},
        "annotations": {
            "kube-sync.io/placed": "replicasets.apps/a",
            "kube-sync.io/placed-namespace": source,
            "kube-sync.io/placed-owner": json.dumps(owner),
        },
    }
    body = {"metadata": metadata, "status": {"decisions": [{"clusterName": "eu"}]}}
    return Item(ObjectKey("argocd", name), "p", VERSION, json.dumps(body).encode())


async def test_in_one_namespace_what_a_resource_left_goes_and_its_namesake_stays() -> None:
    """No owner reference spans namespaces: the garbage collector does not do it."""
    world = World(item("a", "eu"), together="argocd")
    items = [together("there", "ns"), together("gone", "elsewhere")]
    for one in items:
        found = ocm_shape("argocd").parse(one.body)
        assert found is not None
        world.api.slices[one.key] = found
    listed(world.published.published, Listing(items, VERSION))
    async with world.running():
        await world.idle()
        assert world.api.writes == [], "nothing is known of decisions yet"
        world.stream()
    assert world.api.writes == ["delete"]
    assert [key.name for key in world.api.slices] == ["there"]


async def test_in_one_namespace_a_resource_that_goes_takes_what_is_published_along() -> None:
    world = World(item("a", "eu"), together="argocd")
    async with world.running():
        world.stream(decision("a", "eu"))
        await world.idle()
        assert [key.namespace for key in world.api.slices] == ["argocd"]
        world.event("DELETED", item("a", "eu"))
    assert world.api.slices == {}


async def test_what_is_held_is_told_once_and_counted_until_it_goes() -> None:
    world = World(item("a", "us"))
    before = held_now("not_applied")
    with capture_logs() as logs:
        async with world.running():
            world.stream(decision("a", "eu"))
            await world.idle()
            world.sink.wake()
            await world.idle()
            assert held_now("not_applied") == before + 1
            assert [held.kind for held in world.sink.held.values()] == ["not_applied"]
            world.decisions.apply_record(DeletedRecord(target("a"), 2))
    assert held_now("not_applied") == before
    assert world.sink.held == {}
    assert [line["event"] for line in logs].count("placement_decision_held") == 1


@pytest.mark.parametrize(
    ("error", "at_least", "at_most"),
    [
        (Conflict("409"), 0.05, 0.1),
        (Refused("403"), 0.05, 0.1),
        (Retriable("429", 7.0), 7.0, 7.0),
    ],
)
async def test_a_failed_write_is_tried_again_when_the_server_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, error: SyncError, at_least: float, at_most: float
) -> None:
    timers = Timers(monkeypatch)
    world = World(item("a", "eu"))
    world.api.failures = [error]
    async with world.running():
        world.stream(decision("a", "eu"))
        await world.idle()
        (seconds,) = timers.seconds
        assert at_least <= seconds <= at_most
        timers.fire()
    assert world.clusters() == [["eu"]]
    assert remembered(world.sink, Backoff) == []


async def test_what_retrying_cannot_help_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    world = World(item("a", "eu"))
    world.api.failures = [Terminal("somebody else's")]
    async with world.running():
        world.stream(decision("a", "eu"))
        await world.idle()
        assert timers.seconds == []
    assert world.clusters() == []
