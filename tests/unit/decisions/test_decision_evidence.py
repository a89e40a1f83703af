from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_sync.decisions.evaluator import Evaluator, Outcome
from kube_sync.decisions.input_reader import MOST_BYTES, MOST_OBJECTS, InputReader
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.opa.analysis.result import Document, FieldRead, Reads
from tests.fakes.untimed import Untimed
from tests.parts import examples

WEB = ObjectKey("shop", "web")
REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
READS = Reads(
    Document((), used=True),
    {"clusters": Document((), used=True), "replicasets": Document(), "secrets": Document()},
    (),
    {},
)


class Opa(Untimed):
    """An OPA that holds clusters, and takes a batch while it is asked where a test wants that."""

    def __init__(self) -> None:
        self.clusters: dict[str, Any] = {"c0": 0}
        self.number = 0
        self.before: list[Callable[[], None]] = []  # what happens before the next answer
        self.web = 0
        self.asked: list[list[str] | None] = []
        self.inputs: list[list[int]] = []

    async def query(self, path: str, body: bytes) -> bytes | None:
        asked = json.loads(body)["input"]
        self.asked.append(asked.get("data"))
        for happens in self.before:
            happens()
        self.before.clear()
        place = ",".join(map(str, [self.web, *self.clusters.values()]))
        decisions = {0: {"uid": "u", "decision": {"annotations": {"place": place}}}}
        if path == "kube_sync/batch/decisions":
            return json.dumps(decisions).encode()
        self.inputs.append(asked["inputs"])
        found = {
            "decisions": decisions,
            "inputs": {number: {"kind": self.web} for number in asked["inputs"]},
            "data": {name: getattr(self, name, {}) for name in asked["data"]},
            "fence": {str(self.number): True},
        }
        return json.dumps(found).encode()


class World:
    def __init__(self, reads: Reads = READS, held: int = 1) -> None:
        self.opa = Opa()
        self.input_reader = InputReader(
            "kubernetes",
            "p/q",
            targets=lambda: {"replicasets": REPLICASETS},
            fields_of=lambda _name, _reads: None,
            count_of=lambda _name: held,
            secrets=lambda: ("secrets",),
        )
        self.evaluator = Evaluator(self.opa, "e", clock=lambda: 0.0, input_reader=self.input_reader)
        self.evaluator.policies_changed(reads)

    def write(self, **clusters: int) -> None:
        self.input_reader.batch({"clusters": [ObjectKey("", "c")]}, self.opa.number + 1)
        self.opa.clusters = dict(clusters)
        self.opa.number += 1

    def change(self, web: int, key: ObjectKey = WEB) -> None:
        self.input_reader.batch({"replicasets": [key]}, self.opa.number + 1)
        self.opa.web = web
        self.opa.number += 1

    async def ask(self, collection: str = "replicasets") -> Outcome:
        return (await self.evaluator.evaluate(collection, [WEB]))[WEB]

    async def data(self) -> dict[str, Any] | None:
        evidence = (await self.ask()).evidence
        if evidence is None:
            return None
        assert evidence.input == b'{"kind": %d}' % self.opa.web
        found = evidence.basis.collections
        return {name: json.loads(body) for name, body in found.items()}

    async def lacks(self) -> Mapping[str, str]:
        evidence = (await self.ask()).evidence
        assert evidence is not None
        return evidence.basis.lacks


async def test_data_is_brought_once_while_nothing_of_it_is_written() -> None:
    world = World()
    assert await world.data() == {"clusters": {"c0": 0}}
    world.change(1)
    assert await world.data() == {"clusters": {"c0": 0}}
    assert world.opa.asked == [["clusters"], []]


async def test_an_input_is_brought_once_while_nothing_of_it_is_written() -> None:
    world = World()
    await world.data()
    world.write(c1=1)
    world.change(0, ObjectKey("shop", "other"))
    assert await world.data() == {"clusters": {"c1": 1}}
    world.change(5)
    await world.data()
    assert world.opa.inputs == [[0], [], [0]]


async def test_an_input_that_is_written_while_opa_decides_is_that_of_the_answer() -> None:
    world = World()
    await world.data()
    world.opa.before.append(lambda: world.change(7))
    await world.data()
    world.change(8)
    # Brought as it was before a batch that is on its way: it is not what OPA has later.
    world.opa.before.append(lambda: world.input_reader.batch({"replicasets": [WEB]}, 99))
    await world.data()
    world.opa.web = 9
    await world.data()


async def test_data_that_was_written_is_brought_again() -> None:
    world = World()
    await world.data()
    world.write(c1=1)
    assert await world.data() == {"clusters": {"c1": 1}}
    assert world.opa.asked == [["clusters"], ["clusters"]]


async def test_data_that_is_written_while_opa_decides_is_that_of_the_answer() -> None:
    world = World()
    await world.data()
    world.opa.before.append(lambda: world.write(c1=1))
    assert await world.data() == {"clusters": {"c1": 1}}


_STEPS = ["write", "while", "change", "change while", "other", "ask", "policies", "apart"]


@settings(max_examples=examples(100))
@given(st.lists(st.sampled_from(_STEPS)))
async def test_a_decision_follows_from_the_data_that_is_said_to_be_its_own(
    steps: list[str],
) -> None:
    world = World()
    for number, step in enumerate(steps):
        match step:
            case "write":
                world.write(c=number)
            case "other":
                world.change(world.opa.web, ObjectKey("shop", "other"))
            case "change":
                world.change(number)
            case "change while":
                world.opa.before.append(lambda n=number: world.change(n))  # type: ignore[misc]
            case "while":
                world.opa.before.append(lambda n=number: world.write(c=n))  # type: ignore[misc]
            case "policies":
                world.evaluator.policies_changing()
                world.evaluator.policies_changed(READS)
            case "apart":
                with world.input_reader.writing_whole("clusters"):
                    await world.ask()
                    world.opa.clusters = {"c": number}  # without a number
            case _:
                outcome = await world.ask()
                assert outcome.evidence is not None
                assert outcome.decision is not None
                data = json.loads(outcome.evidence.basis.collections["clusters"])
                web = json.loads(outcome.evidence.input or b"{}")["kind"]
                place = ",".join(map(str, [web, *data.values()]))
                assert outcome.decision.annotations["place"] == place


async def test_while_policies_change_nothing_is_witnessed() -> None:
    world = World()
    world.evaluator.policies_changing()
    assert await world.data() is None
    world.evaluator.policies_changed(READS)
    world.opa.before.append(world.evaluator.policies_changing)
    assert await world.data() is None


async def test_no_secret_is_asked_for() -> None:
    secrets = Document((), used=True)
    reads = Reads(READS.input, {"secrets": secrets}, (), {})
    world = World(reads)
    assert await world.lacks() == {"secrets": "it holds Secrets"}
    assert (await world.ask("secrets")).evidence is None
    assert world.opa.asked == [[], None]


async def test_what_is_not_had_is_named_with_the_reason() -> None:
    read = Document((), used=True)
    reads = Reads(
        READS.input,
        {"replicasets": read, "clusters": read},
        tuple(FieldRead(p, whole=True, asked=()) for p in (("limits", "east"), ("p", "q"))),
        {"time.now_ns": ()},
    )
    too_many = "it has more than 1,000 objects, or 4 MiB"
    assert await World(reads, MOST_OBJECTS + 1).lacks() == {
        "time.now_ns": "what it answers changes without any data",
        "data.limits.east": "it is not replicated",
        "replicasets": "decisions are about it",
        "clusters": too_many,
    }
    world = World()
    world.opa.clusters = {"c0": "x" * MOST_BYTES}
    assert await world.lacks() == {"clusters": too_many}
    assert await world.lacks() == {"clusters": too_many}
    assert world.opa.asked == [["clusters"], []]  # not brought again and again


async def test_what_could_not_be_analysed_is_said() -> None:
    reads = Reads(READS.input, {"clusters": Document()}, (), {}, gave_up="too deep")
    assert await World(reads).lacks() == {"policies": "they could not be analysed: too deep"}


async def test_inputs_take_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube_sync.decisions.input_reader._INPUT_BYTES", 1_060)
    world = World()
    world.opa.web = 10**12
    first = await world.ask()
    world.change(10**13)
    second, third = await world.ask(), await world.ask()
    inputs = [found.evidence and found.evidence.input for found in (first, second, third)]
    assert inputs == [None, *[b'{"kind": 10000000000000}'] * 2]


async def test_data_of_long_ago_is_not_kept_for_the_sake_of_its_inputs() -> None:
    world = World()
    outcome = await world.ask()
    assert outcome.evidence is not None
    basis, evidence = weakref.ref(outcome.evidence.basis), weakref.ref(outcome.evidence)
    del outcome
    world.write(c1=1)
    await world.ask()
    gc.collect()
    assert (basis(), evidence()) == (None, None)
