from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import msgspec
import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.input_reader import Basis, RecordedInput
from kube_sync.decisions.records import DecisionRecord, Source, Target, decode
from kube_sync.decisions.stream import PATH, stream_app
from kube_sync.kube.naming import reference
from kube_sync.ledger.bases import collection_of, state_of
from kube_sync.ledger.entries import Entry
from kube_sync.ledger.journal import Journal
from kube_sync.ledger.reading import reading
from kube_sync.ledger.recording import Recorder
from kube_sync.objects import ObjectKey
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tokenfile import TokenFile
from tests.fakes.ledgers import verified
from tests.unit.async_tools import running, until


class World:
    """A hub whose changes are recorded."""

    def __init__(self, path: Path) -> None:
        self.journal = Journal(path, max_age=1e9, max_size=1 << 40, again=0.01, patience=30)
        self.recorder = Recorder(self.journal, "me")
        self.hub = DecisionHub("me", recorder=self.recorder)
        self.path = path

    def decide(
        self,
        name: str,
        on: str | None,
        cause: str = "data",
        uid: str = "u",
        evidence: RecordedInput | None = None,
    ) -> None:
        decision = None if on is None else Decision({"place": on})
        source = Source("clusters", "fleet/c2", 3)
        outcome = Outcome(uid, decision, evidence=evidence)
        self.hub.publish(_target(name).gvr, _target(name).key, outcome, cause, "p1", source=source)

    async def entries(self) -> list[Entry]:
        assert await self.journal.recorded()
        assert verified(self.path).faults == []
        with reading(self.path) as ledger:
            return [row.entry for row in ledger.history() if row.entry.kind != "start"]


def _target(name: str) -> Target:
    return Target("apps", "v1", "replicasets", name, "shop")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


async def test_objects_of_one_name_are_recorded_in_their_own_collections(path: Path) -> None:
    world, placed = World(path), Outcome("u", Decision({"place": "c1"}))
    kinds = [("apps", "v1", "replicasets"), ("", "v1", "pods"), ("apps", "v1", "deployments")]
    async with running(world.journal.run()):
        for group, version, resource in [*kinds, *kinds]:
            for name in ("web", "db"):
                target = Target(group, version, resource, name, "shop")
                world.hub.publish(target.gvr, target.key, placed, "data", "p1")
        entries = await world.entries()
    found = [(entry.collection, entry.name) for entry in entries]
    names = ["replicasets.v1.apps", "pods.v1", "deployments.v1.apps"]
    assert found == [(collection, name) for collection in names for name in ("web", "db")]


async def test_each_change_is_recorded_with_its_cause_though_no_reader_saw_it(path: Path) -> None:
    world = World(path)
    async with running(world.journal.run()):
        for cluster in ("c1", "c2", "c2", "c3"):
            world.decide("web", cluster)
        one, two, three = await world.entries()
    assert (one.old, two.old, three.old) == ("", one.new, two.new)
    assert (one.status, one.uid, one.policy) == ("decided", "u", "p1")
    assert one.cause == "data: clusters fleet/c2 and 2 more"
    with reading(path) as ledger:
        assert msgspec.json.decode(ledger.text(three.new) or b"")["annotations"] == {"place": "c3"}


def _basis(clusters: bytes) -> Basis:
    return Basis("kubernetes", "p/q", (), {}, {"clusters": clusters}, {"clusters": None}, {})


async def test_what_a_decision_was_made_on_is_recorded_with_it(path: Path) -> None:
    world, basis = World(path), _basis(b'{"c1":{"metadata":{"name":"c1"}}}')
    body = b'{"kind":"ReplicaSet"}'
    kept, let_go = RecordedInput(body, basis), RecordedInput(body, basis)
    async with running(world.journal.run()):
        world.decide("web", "c1", evidence=kept)
        kept.input = None  # of later ones it is not known any more; this one was taken in
        world.decide("other", "c1", evidence=kept)
        let_go.input = None
        world.decide("third", "c1", evidence=let_go)
        world.decide("fourth", "c1")
        world.decide("fifth", "c1", evidence=RecordedInput(body, _basis(b"[]")))
        first, *others = await world.entries()
    assert [(entry.input, entry.data) for entry in others] == [("", "")] * 4
    with reading(path) as ledger:
        assert ledger.text(first.input) == body
        (part,) = state_of(ledger.text(first.data) or b"").collections["clusters"]
        assert collection_of([ledger.text(part) or b""]) == basis.collections["clusters"]


async def test_what_waits_for_a_file_that_cannot_be_written_keeps_no_data(tmp_path: Path) -> None:
    """Ten thousand states of a fleet would be too much."""
    world = World(tmp_path / "later" / "ledger.db")
    evidence = RecordedInput(b"{}", _basis(b"{}"))
    async with running(world.journal.run()):
        await until(lambda: world.journal.failing)
        world.decide("web", "c1", evidence=evidence)
        (tmp_path / "later").mkdir()
        await until(lambda: world.journal.failing is None)
        world.decide("other", "c1", evidence=evidence)
        first, second = await world.entries()
    assert (first.status, first.input, first.data) == ("decided", "", "")
    assert second.input
    assert second.data


async def test_what_fails_is_refused_or_undefined_is_recorded_as_that(path: Path) -> None:
    world = World(path)
    hub, target = world.hub, _target("web")
    async with running(world.journal.run()):
        world.decide("web", "c1")
        hub.publish(target.gvr, target.key, Outcome("", failure="it broke"), "policy", "p2")
        hub.publish(target.gvr, target.key, Outcome("u", Decision(errors=("no",))), "policy", "p3")
        world.decide("web", None)
        world.decide("web", "c1")
        hub.delete(target)
        entries = await world.entries()
    assert [entry.status for entry in entries] == [
        "decided",
        "failed",
        "refused",
        "undefined",
        "decided",
        "",
    ]
    assert entries[1].new == entries[0].new, "the last good one stands"
    assert (entries[1].note, entries[1].uid) == ("it broke", "u")
    assert entries[5].kind == "gone"


async def test_decision_is_recorded_with_its_trace_and_a_failure_with_its_reason(
    path: Path,
) -> None:
    world, trace = World(path), "4bf92f3577b34da6a3ce929d0e0e4736"
    target, context = _target("web"), f"00-{trace}-00f067aa0ba902b7-01"
    async with running(world.journal.run()):
        for outcome in (
            Outcome("u", Decision({"place": "c1"}), trace=context),
            Outcome("u", failure="it broke", trace=context),
        ):
            world.hub.publish(target.gvr, target.key, outcome, "data", "p1")
        world.decide("web", "c2")
        entries = await world.entries()
    assert [entry.note for entry in entries] == [trace, "it broke", ""]


async def test_a_restart_records_what_differs_and_what_is_gone_alone(path: Path) -> None:
    world = World(path)
    async with running(world.journal.run()):
        for name in ("same", "moved", "gone", "undefined"):
            world.decide(name, "c1", "load")
        assert len(await world.entries()) == 4
    world = World(path)
    async with running(world.journal.run()):
        world.decide("same", "c1", "load")
        world.decide("moved", "c2", "load")
        keys = {ObjectKey("shop", name) for name in ("same", "moved", "undefined")}
        world.hub.retain(_target("").gvr, keys)
        found = (await world.entries())[4:]
    assert [(entry.name, entry.kind, entry.status) for entry in found] == [
        ("moved", "decision", "decided"),
        ("gone", "gone", ""),
        ("undefined", "decision", "undefined"),
    ]


async def test_a_decision_of_another_trace_is_not_recorded_again(path: Path) -> None:
    """Each restart evaluates all objects anew, in new traces."""
    target = _target("web")
    for trace in ("1" * 32, "2" * 32):
        world, context = World(path), f"00-{trace}-{'3' * 16}-01"
        async with running(world.journal.run()):
            outcome = Outcome("u", Decision({"place": "c1"}), trace=context)
            world.hub.publish(target.gvr, target.key, outcome, "load", "p1")
            assert [entry.note for entry in await world.entries()] == ["1" * 32]


async def test_policies_are_recorded_once_for_as_long_as_they_are_in_force(path: Path) -> None:
    world = World(path)
    modules = {"a.rego": "package a", "b.rego": "package b"}
    async with running(world.journal.run()):
        for digest in ("p1", "p1", "p2", "p1"):
            world.recorder.policies(digest, modules if digest == "p1" else {})
        assert [entry.policy for entry in await world.entries()] == ["p1", "p2", "p1"]
    with reading(path) as ledger:
        assert ledger.modules("p1") == modules
        assert ledger.modules("p2") == {}


@pytest.mark.parametrize("query", ["?watch", ""])
async def test_nothing_is_told_to_readers_before_it_is_in_the_ledger(
    path: Path, query: str
) -> None:
    world = World(path)
    for number in range(200):
        world.decide(f"web-{number}", "c1")
    app = stream_app(world.hub, TokenFile(None), wait_until_recorded=world.journal.recorded)
    async with (
        running(world.journal.run()),
        serving(app, ("127.0.0.1", 0), grace=0.05) as port,
        aiohttp.ClientSession() as session,
        session.get(
            f"http://127.0.0.1:{port}{PATH}/io/k8s/federation/admission{query}"
        ) as response,
    ):
        for _ in range(100):
            record = decode(await response.content.readline())
            if isinstance(record, DecisionRecord):
                with reading(path) as ledger:
                    assert ledger.find(reference(record.object.name), "shop")


async def test_readers_are_told_though_the_ledger_cannot_be_written(tmp_path: Path) -> None:
    world = World(tmp_path / "nowhere" / "ledger.db")
    world.decide("web", "c1")
    app = stream_app(world.hub, TokenFile(None), wait_until_recorded=world.journal.recorded)
    async with (
        asyncio.timeout(10),
        running(world.journal.run()),
        serving(app, ("127.0.0.1", 0), grace=0.05) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{PATH}") as response,
    ):
        records = [decode(await response.content.readline()) for _ in range(3)]
    assert any(isinstance(record, DecisionRecord) for record in records)
